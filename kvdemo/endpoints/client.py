"""Talks to one OpenAI-compatible server: which models it has, one request and its bytes as they come, and what it counts.

Reading happens in a thread of its own, which stamps the clock when bytes arrive, so that Stop ends it in silence, too.
"""

from __future__ import annotations

import math
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx

from kvdemo.endpoints.pieces import BadAnswer, Piece, Reading, error_words, parsed
from kvdemo.endpoints.policy import Target
from kvdemo.errors import InvalidRequest, KvdemoError, Unanswered
from kvdemo.facts.endpoint import Counters, ServedModel

__all__ = ["Client", "Patience", "Received", "counters_in", "model_of"]

MOST_BODY_BYTES, MOST_REFUSAL_BYTES = 16 * 2**20, 64 * 1024
COUNTERS = {
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "sglang:prompt_tokens_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "sglang:cached_tokens_total"),
    "cache_use": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
}
SAMPLE = re.compile(r"^(\w[\w:]*)(?:\{[^\n]*\})?[ \t]+([0-9.eE+-]+)(?:[ \t]+\d+)?[ \t\r]*$", re.MULTILINE)
PAGES = re.compile(r'^vllm:cache_config_info\{[^\n]*\bblock_size="(\d{1,5})"', re.MULTILINE)
MOST_NAME = 300
A_SECRET = 16  # characters: what is shorter may be a word, which an answer may hold as it likes


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, s: for a connection, for the first byte, between two."""

    connect_s: float = 5.0
    first_s: float = 60.0
    between_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Received:
    """Pieces that came together, at_s after the request was sent. ended: with them came that the answer is complete."""

    at_s: float
    pieces: tuple[Piece, ...]
    ended: bool = False


Trace = Callable[[str, Mapping[str, Any]], None]


class Client:
    """For one server, one model and one key, as long as it is open."""

    def __init__(
        self,
        target: Target,
        key: str | None = None,
        *,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.target, self.patience, self._clock, self._key = target, patience or Patience(), clock, key
        self._with_usage = True
        headers = {
            "Host": target.authority,
            "User-Agent": "kvdemo",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            base_url=target.base_url,
            headers=headers,
            timeout=httpx.Timeout(self.patience.first_s, connect=self.patience.connect_s, pool=None),
            # A connection for each request: it can be closed at any moment, and none is found closed by the server.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,  # no proxy and no key of the environment
            follow_redirects=False,
        )

    def close(self) -> None:
        self._http.close()

    def models(self, stop: threading.Event | None = None) -> tuple[ServedModel, ...]:
        """What /models lists, those that a person can be shown. Unanswered where it does not, or when `stop` is set."""
        value = self._get("models", stop)
        listed = value.get("data") if isinstance(value, dict) else value
        if not isinstance(listed, list):
            raise Unanswered(
                f"{self._name} answers, but lists no models: is this the address of an OpenAI-compatible server?"
            )
        found = []
        for item in listed[:1000]:
            name = item.get("id") if isinstance(item, dict) else None
            if isinstance(name, str) and name and self.may_be_shown(name):
                limit, engine = item.get("max_model_len"), item.get("owned_by")
                known = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
                said = isinstance(engine, str) and self.may_be_shown(engine)
                found.append(ServedModel(name, limit if known else None, engine if said else ""))
        return tuple(found)

    def counters(self, stop: threading.Event | None = None) -> Counters | None:
        """From /metrics beside the API; None where there is none."""
        with suppress(httpx.HTTPError, Unanswered):
            answer, body = self._got(f"{self.target.base_url.removesuffix(self.target.path)}/metrics", stop)
            if answer.status_code == 200:
                return counters_in(body.decode(errors="replace"))
        return None

    def stream(
        self, path: str, body: Mapping[str, Any], reading: Reading, stop: threading.Event, *, every_s: float = 0.1
    ) -> Iterator[Received | None]:
        """Send one request and yield what comes; None: nothing new for `every_s`. Unanswered, also after some of it came.

        When `stop` is set the connection is closed, and this ends. reading: holds finish reason and counts afterwards.
        """
        exchange = Exchange(self, path, body, reading)
        exchange.begin()
        try:
            yield from exchange.received(stop, every_s)
        finally:
            exchange.cut()

    # --- for one exchange ----------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, path: str, body: Mapping[str, Any], trace: Trace) -> Iterator[tuple[httpx.Response, bytes]]:
        """The answer's head, and, where it is a refusal, its beginning. trace: is told each step of the connection.

        stream_options go out at first, and once more without, where a server does not know them.
        """
        full = {**body, "stream": True}
        if self._with_usage:
            full["stream_options"] = {"include_usage": True}
        answer, refusal = self._posted(path, full, trace)
        try:
            if answer.status_code in (400, 422) and self._with_usage and b"stream_options" in refusal:
                answer.close()
                self._with_usage = False
                del full["stream_options"]
                answer, refusal = self._posted(path, full, trace)
            yield answer, refusal
        finally:
            answer.close()

    def _posted(self, path: str, body: dict[str, Any], trace: Trace) -> tuple[httpx.Response, bytes]:
        request = self._http.build_request("POST", path, json=body)
        request.extensions = {**request.extensions, "sni_hostname": self.target.host, "trace": trace}
        answer = self._http.send(request, stream=True)
        return answer, b"" if answer.status_code == 200 else beginning(answer, MOST_REFUSAL_BYTES)

    def _got(self, url: str, stop: threading.Event | None) -> tuple[httpx.Response, bytes]:
        """A whole answer, in the time that a first byte may take, however slowly its bytes come. Unanswered when stopped."""
        wire = Wire()
        ended: queue.SimpleQueue[tuple[httpx.Response, bytes] | Exception] = queue.SimpleQueue()

        def get() -> None:
            try:
                request = self._http.build_request("GET", url)
                request.extensions = {**request.extensions, "sni_hostname": self.target.host, "trace": wire.trace}
                answer = self._http.send(request, stream=True)
                try:
                    ended.put((answer, beginning(answer, MOST_BODY_BYTES)))
                finally:
                    answer.close()
            except Exception as error:
                ended.put(error)

        allowed_s = self.patience.connect_s + self.patience.first_s
        until_s = self._clock() + allowed_s
        threading.Thread(target=get, name="kvdemo-endpoint", daemon=True).start()
        try:
            while True:
                with suppress(queue.Empty):
                    found = ended.get(timeout=0.05)
                    break
                if stop is not None and stop.is_set():
                    raise Unanswered(f"Stopped before {self._name} had answered.")
                if self._clock() > until_s:
                    raise Unanswered(f"{self._name} did not answer within {allowed_s:g} s.")
        finally:
            wire.cut()
        if isinstance(found, Exception):
            raise found
        return found

    def _get(self, path: str, stop: threading.Event | None) -> Any:
        try:
            answer, body = self._got(path, stop)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if not self.target.others:
                raise Unanswered(self.unreached(error)) from None
            self.target = self.target.another()  # all of them were checked
            self._http.base_url = self.target.base_url
            return self._get(path, stop)
        except httpx.HTTPError as error:
            raise Unanswered(self.unreached(error)) from None
        if answer.status_code != 200:
            raise Unanswered(self.refused(answer, body))
        return self.json_of(answer, body)

    @property
    def _name(self) -> str:
        return self.target.authority

    # --- what went wrong, in one sentence --------------------------------------------------------------------------------

    def json_of(self, answer: httpx.Response, body: bytes) -> Any:
        self.check_plain(answer)
        if "html" in answer.headers.get("content-type", "") or body.lstrip()[:1] == b"<":
            raise Unanswered(f"{self._name} answers with a page for people, not with JSON: is /v1 missing in it?")
        try:
            return parsed(body)
        except ValueError:
            raise Unanswered(f"{self._name} answers with something that is not JSON.") from None

    def check_plain(self, answer: httpx.Response) -> None:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise Unanswered(f"{self._name} compresses its answer, although it was asked not to.")

    def without_key(self, words: str) -> str:
        """What a server says may repeat what it was sent."""
        return words.replace(self._key, "(the key)") if self._key else words

    def answer_without_key(self, text: str) -> str:
        """The same for an answer, which may hold a word that somebody took for a key."""
        return self.without_key(text) if self._key and len(self._key) >= A_SECRET else text

    def may_be_shown(self, name: str) -> bool:
        return len(name) <= MOST_NAME and name.isprintable() and self.answer_without_key(name) == name

    def refused(self, answer: httpx.Response, body: bytes) -> str:
        """A status other than 200."""
        status, name = answer.status_code, self._name
        if 300 <= status < 400:
            return f"{name} sends us on to another address, which is not followed: give the final one."
        if status in (401, 403):  # in its own words there may be a part of the key
            return f"{name} refused the key, or wants one ({status})."
        words = ""
        with suppress(ValueError):
            words = f" It says: {self.without_key(error_words(parsed(body)))}"
        if status == 404:
            return f"{name} knows no such model or address (404).{words}"
        if status == 429:
            later = answer.headers.get("retry-after", "")
            when = f" It asks to wait {later[:40]} s." if later.isdigit() else ""
            return f"{name} has had enough requests for now (429).{when}{words}"
        if status >= 500:
            return f"{name} failed ({status}).{words}"
        return f"{name} did not take the request ({status}).{words}"

    def unreached(self, error: httpx.HTTPError) -> str:
        """No answer at all, or none any more."""
        name, patience = self._name, self.patience
        if isinstance(error, httpx.ConnectTimeout):
            return f"{name} did not let us connect within {patience.connect_s:g} s."
        if isinstance(error, httpx.ConnectError):
            words = str(error).lower()
            if "certificate" in words:
                return f"{name} cannot show that it is {self.target.host}."
            return f"{name} does not answer in https: is it http?" if "ssl" in words else f"Nothing listens at {name}."
        if isinstance(error, httpx.TimeoutException):
            return f"{name} sent nothing for {patience.first_s:g} s."
        if isinstance(error, httpx.RemoteProtocolError) and "illegal" in str(error).lower():
            return f"{name} answers with something that is not HTTP: is it https?"
        return f"{name} broke off the connection."


class Wire:
    """The connection of one request, to be closed whatever is waited for."""

    def __init__(self, on_sent: Callable[[], None] = lambda: None) -> None:
        """on_sent: called when the request goes out; connecting is no part of its time."""
        self._on_sent = on_sent
        self._stream: Any = None
        self._over = threading.Event()

    def trace(self, step: str, told: Mapping[str, Any]) -> None:
        """For httpcore: keeps the connection as soon as there is one."""
        if step in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = told["return_value"]
            if self._over.is_set():
                self.cut()
        elif step == "http11.send_request_headers.started":
            self._on_sent()

    def cut(self) -> None:
        self._over.set()
        if self._stream is not None:
            with suppress(Exception):
                self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class Exchange:
    """One request: a thread that reads, and whoever waits for what it reads."""

    def __init__(self, client: Client, path: str, body: Mapping[str, Any], reading: Reading) -> None:
        self._client, self._path, self._body, self._reading = client, path, body, reading
        self._facts: queue.SimpleQueue[Received | BaseException | None] = queue.SimpleQueue()
        self._wire = Wire(self._sent)
        self._heard_s = 0.0
        self._sent_s = 0.0

    def begin(self) -> None:
        self._sent_s = self._heard_s = self._client._clock()
        threading.Thread(target=self._read, name="kvdemo-endpoint", daemon=True).start()

    def received(self, stop: threading.Event, every_s: float) -> Iterator[Received | None]:
        patience, came = self._client.patience, False
        while not stop.is_set():
            try:
                fact = self._facts.get(timeout=every_s)
            except queue.Empty:
                quiet_s = self._client._clock() - self._heard_s
                limit_s = patience.between_s if came else patience.first_s + patience.connect_s
                if quiet_s > limit_s:
                    raise Unanswered(f"{self._client._name} stalled: nothing came for {limit_s:g} s.") from None
                yield None
                continue
            if fact is None:
                return
            if isinstance(fact, BaseException):
                raise fact
            came = True
            yield fact

    def cut(self) -> None:
        """Close the connection, whatever it waits for."""
        self._wire.cut()

    def _sent(self) -> None:
        self._sent_s = self._client._clock()

    def _read(self) -> None:
        try:
            with self._client._opened(self._path, self._body, self._wire.trace) as (answer, refusal):
                self._tell(answer, refusal)
            self._facts.put(None)
        except BadAnswer as error:
            self._facts.put(Unanswered(f"{self._client._name} {self._client.without_key(str(error))}"))
        except KvdemoError as error:
            self._facts.put(error)
        except httpx.HTTPError as error:
            self._facts.put(Unanswered(self._client.unreached(error)))
        except Exception as error:
            self._facts.put(error)

    def _tell(self, answer: httpx.Response, refusal: bytes) -> None:
        client, reading = self._client, self._reading
        if answer.status_code != 200:
            raise Unanswered(client.refused(answer, refusal))
        content_type = answer.headers.get("content-type", "")
        if "event-stream" not in content_type:
            body = beginning(answer, MOST_BODY_BYTES)
            client.json_of(answer, body)
            self._put(reading.whole(body))
            return
        client.check_plain(answer)
        for data in answer.iter_raw():
            self._put(reading.feed(data))
            if reading.done:
                return
        self._put(reading.close())
        if not reading.ended:
            raise Unanswered(f"{client._name} broke off in the middle of its answer.")

    def _put(self, read: Iterator[Piece]) -> None:
        """What came together; also what stood in front of an error."""
        self._heard_s = self._client._clock()
        pieces: list[Piece] = []
        before = self._reading.ended
        try:
            pieces.extend(read)
        finally:
            ended = self._reading.ended and not before
            if pieces or ended:
                self._facts.put(Received(self._heard_s - self._sent_s, tuple(pieces), ended))


def beginning(answer: httpx.Response, most_bytes: int) -> bytes:
    """The first bytes of a body; what is beyond is left unread."""
    found = bytearray()
    for part in answer.iter_raw():
        found += part
        if len(found) >= most_bytes:
            break
    return bytes(found[:most_bytes])


def counters_in(text: str) -> Counters | None:
    """The counters in a page of Prometheus text; None where none of them is known. Several engines: tokens are summed."""
    samples: dict[str, list[float]] = {}
    for name, value in SAMPLE.findall(text):
        with suppress(ValueError):
            if math.isfinite(number := float(value)):
                samples.setdefault(name, []).append(number)
    found = {field: next((samples[name] for name in names if name in samples), []) for field, names in COUNTERS.items()}
    pages = PAGES.search(text)
    page_tokens = int(pages[1]) or None if pages else None
    if not any(found.values()) and page_tokens is None:
        return None
    queries, hits, use = (found[field] for field in ("prefix_queries", "prefix_hits", "cache_use"))
    return Counters(
        sum(queries) if queries else None,
        sum(hits) if hits else None,
        sum(use) / len(use) if use else None,
        page_tokens,
    )


def model_of(models: tuple[ServedModel, ...], wanted: str | None, name: str) -> ServedModel:
    """The one that is wanted, else the first; InvalidRequest where it is not among them."""
    if not models:
        if wanted is not None:
            return ServedModel(wanted)
        raise InvalidRequest("model", f"{name} lists no models: name the one to ask")
    if wanted is None:
        return models[0]
    found = next((model for model in models if model.name == wanted), None)
    if found is None:
        listed = ", ".join(model.name for model in models[:5])
        raise InvalidRequest("model", f"{name} has no {wanted[:100]!r}; it lists {listed}")
    return found
