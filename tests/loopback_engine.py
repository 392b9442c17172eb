"""OpenAI-compatible servers on this machine whose true answers are known: our own generation, or work that takes its time.

They stream one token a piece, say usage at the end, and nothing of caches unless they are told to.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

from kvdemo.facts.events import PromptEncoded, TokenEmitted
from kvdemo.facts.requests import Message
from tests.tiny import tiny_model
from tests.tiny_backend import ready_backend

__all__ = ["MODEL_ID", "Answering", "Asked", "WorkEngine", "own_engine", "serving"]

MODEL_ID = "tiny/served"


@dataclass(frozen=True)
class Asked:
    """What a client asked for. text: all messages as one."""

    messages: tuple[Message, ...]
    max_tokens: int

    @property
    def text(self) -> str:
        return "".join(f"<{part.role}>{part.content}\n" for part in self.messages)


@dataclass
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int | None = None


Answering = Callable[[Asked, Usage], Iterator[str]]
"""Yields one piece per token as it is made and fills in the usage before the first; Refused for another status."""


class Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@contextmanager
def serving(answering: Answering, metrics: Callable[[], str] | None = None) -> Iterator[str]:
    """Its address, until the block ends. metrics: its page for Prometheus; None: it has none."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

        def do_GET(self) -> None:
            if metrics is not None and self.path == "/metrics":
                self.say(200, metrics().encode(), "text/plain")
                return
            models = {"object": "list", "data": [{"id": MODEL_ID, "object": "model"}]}
            self.say(200, models) if self.path.endswith("/models") else self.say(
                404, {"error": {"message": "no such page"}}
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            messages = body.get("messages") or [{"role": "user", "content": body.get("prompt", "")}]
            asked = Asked(
                tuple(Message(part["role"], part["content"]) for part in messages),
                int(body.get("max_tokens") or body.get("max_completion_tokens") or 16),
            )
            usage = Usage()
            pieces = answering(asked, usage)
            try:
                first = next(pieces)
            except Refused as error:
                self.say(error.status, {"error": {"message": str(error)}})
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            try:
                self.stream(first, pieces, usage)
            except (BrokenPipeError, ConnectionResetError):
                pieces.close()  # type: ignore[attr-defined]

        def stream(self, first: str, pieces: Iterator[str], usage: Usage) -> None:
            count = 0
            for piece in chain([first], pieces):
                count += 1
                self.event({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
            told: dict[str, Any] = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": count}
            if usage.cached_tokens is not None:
                told["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
            self.event({"choices": [], "usage": told})
            self.wfile.write(b"data: [DONE]\n\n")

        def event(self, value: dict[str, Any]) -> None:
            self.wfile.write(
                f"data: {json.dumps({'id': 'c1', 'object': 'chat.completion.chunk', **value})}\n\n".encode()
            )
            self.wfile.flush()

        def say(self, status: int, value: dict[str, Any] | bytes, content_type: str = "application/json") -> None:
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="loopback-engine")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def own_engine(*, cached: bool, prefixes: bool = False) -> Iterator[str]:
    """Our own backend behind a URL, one request at a time; each position costs the tiny model something to compute."""

    def model() -> Any:
        return tiny_model(
            hidden_size=384,
            intermediate_size=1536,
            num_hidden_layers=6,
            num_attention_heads=6,
            max_position_embeddings=8192,
            initializer_range=0.05,
        )

    backend = ready_backend(model=model)

    def answering(asked: Asked, usage: Usage) -> Iterator[str]:
        events = backend.chat(
            asked.messages,
            max_new_tokens=asked.max_tokens,
            strategy="dynamic" if cached else "none",
            owner="everybody",
            keep=prefixes,
        )
        for event in events:
            if isinstance(event, PromptEncoded):
                usage.prompt_tokens = event.prompt_tokens or 0
            if isinstance(event, TokenEmitted):
                yield f" {event.token_id}"

    try:
        with serving(answering) as url:
            yield url
    finally:
        backend.close()


@dataclass
class WorkEngine:
    """Every step takes as long as its work would: positions computed, and a step's own time. `Answering` is its answer.

    together   requests do not wait for each other
    answers    so many are answered; then 429
    """

    cached: bool = True
    prefixes: bool = False
    together: bool = True
    reports: bool = False
    answers: int | None = None
    each_s: float = 0.0002
    own_s: float = 0.004
    seen: list[str] = field(default_factory=list)
    sent: int = 0
    queries: int = 0
    hits: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)
    told: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked, usage: Usage) -> Iterator[str]:
        with self.told:
            self.sent += 1
            if self.answers is not None and self.sent > self.answers:
                raise Refused(429, "too many requests")
        if self.together:
            yield from self.work(asked, usage)
        else:
            with self.turn:
                yield from self.work(asked, usage)

    def work(self, asked: Asked, usage: Usage) -> Iterator[str]:
        text = asked.text
        tokens = len(text) // 4
        with self.told:
            kept = max((shared(text, other) // 4 // 16 * 16 for other in self.seen), default=0) if self.prefixes else 0
            self.seen.append(text)
            self.queries, self.hits = self.queries + tokens, self.hits + kept
        usage.prompt_tokens = tokens
        usage.cached_tokens = kept if self.reports else None
        for at in range(asked.max_tokens):
            positions = tokens - kept if at == 0 else 1 if self.cached else tokens + at
            time.sleep(self.own_s + self.each_s * positions)
            yield f" {at}"

    def metrics(self) -> str:
        """As vLLM counts, whose pages have 16 tokens here."""
        return (
            f'vllm:prefix_cache_queries_total{{engine="0"}} {self.queries}.0\n'
            f'vllm:prefix_cache_hits_total{{engine="0"}} {self.hits}.0\n'
            'vllm:cache_config_info{block_size="16",engine="0"} 1.0\n'
        )


def shared(one: str, other: str) -> int:
    """Characters with which both begin."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
