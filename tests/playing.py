"""A loopback server that plays bytes as a script says, with pauses that the test lets go: what no real server does on request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["EVENTS", "HOLD", "Played", "chunk", "playing"]

HOLD = b"<hold>"
"""In the place of bytes: wait until the test lets go, or the client has gone."""

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def chunk(delta: str, finish: str = "null", usage: str = "") -> bytes:
    """One event of a chat completion; delta as JSON."""
    return (
        'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
        f'{delta},"finish_reason":{finish}}}]{usage}}}\n\n'
    ).encode()


@dataclass
class Played:
    """The server's side: where it is, what it was asked, and whether the client has gone."""

    url: str = ""
    asked: list[bytes] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)


@contextmanager
def playing(*scripts: Sequence[bytes]) -> Iterator[Played]:
    """Each connection gets the next script; the last one is for all that follow. GET /v1/models is answered by itself."""
    played, server = Played(), socket.create_server(("127.0.0.1", 0))
    played.url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    left = list(scripts)
    closing = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection:
            request = read_request(connection)
            if not request:
                return
            played.asked.append(request)
            script = left.pop(0) if len(left) > 1 else left[0]
            try:
                for part in script:
                    if part == HOLD:
                        wait(connection)
                    else:
                        connection.sendall(part)
            except OSError:
                played.gone.set()

    def wait(connection: socket.socket) -> None:
        connection.settimeout(0.05)
        while not played.let_go.is_set() and not closing.is_set():
            try:
                if not connection.recv(1):
                    played.gone.set()
                    raise BrokenPipeError
            except TimeoutError:
                continue
        connection.settimeout(None)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, name="playing", daemon=True).start()
    try:
        yield played
    finally:
        closing.set()
        server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts, which would take one more connection
        server.close()


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65_536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body
