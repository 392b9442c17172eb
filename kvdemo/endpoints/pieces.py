"""The bytes of a streamed answer -> what they say: pieces of text, an end, counts. Server-sent events, or one JSON document.

It waits for nothing and knows no clock; whatever a server may send is read or refused here.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from httpx_sse._decoders import SSEDecoder, SSELineDecoder

__all__ = ["MOST_LINE_BYTES", "BadAnswer", "Piece", "Reading", "error_words", "parsed"]

MOST_LINE_BYTES, MOST_BYTES = 2**20, 64 * 2**20
MOST_WORDS = 300
UNTOLD = "it did not say why"


class BadAnswer(Exception):
    """What was sent is an error, or nothing that can be read. Its text goes after the server's name, and may be shown."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that came at once. reasoning: thought before the answer, which some servers send apart."""

    text: str
    reasoning: bool = False


@dataclass
class Reading:
    """One answer being read. usage, timings: as the server wrote them last; done: it said that it had ended.

    skipped      events that were no JSON
    most_bytes   after so many of them the answer is taken to have no end
    """

    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    skipped: int = 0
    most_bytes: int = MOST_BYTES
    _utf8: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    _lines: SSELineDecoder = field(default_factory=SSELineDecoder)
    _events: SSEDecoder = field(default_factory=SSEDecoder)
    _since_line: int = 0
    _num_bytes: int = 0
    _halves: dict[bool, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """It said that the answer is complete."""
        return self.done or self.finish_reason is not None

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that are complete with these bytes. BadAnswer: an error, or a line or an answer without an end."""
        self._num_bytes += len(data)
        if self._num_bytes > self.most_bytes:
            raise BadAnswer(f"sent more than {self.most_bytes / 2**20:g} MiB for one answer")
        text = self._utf8.decode(data)
        lines = self._lines.decode(text) if text else []
        self._since_line = 0 if lines else self._since_line + len(data)
        if self._since_line > MOST_LINE_BYTES or any(len(line) > MOST_LINE_BYTES for line in lines):
            raise BadAnswer(f"sent a line that is longer than {MOST_LINE_BYTES // 2**20} MiB")
        for line in lines:
            yield from self._line(line)

    def close(self) -> Iterator[Piece]:
        """What was still to be read when the connection ended."""
        for line in (*self._lines.flush(), ""):
            yield from self._line(line)

    def whole(self, body: bytes) -> Iterator[Piece]:
        """A server that does not stream: one JSON document."""
        try:
            value = parsed(body)
        except ValueError as error:
            raise BadAnswer("answered with something that is not JSON") from error
        self.done = True
        yield from self._value(value)

    def _line(self, line: str) -> Iterator[Piece]:
        if line.startswith("error:"):  # no field of the standard: how llama.cpp's server once told it
            raise BadAnswer(f"reports an error: {error_in(line.partition(':')[2])}")
        event = self._events.decode(line)
        if event is None or not event.data:
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        try:
            value = parsed(event.data)
        except ValueError:
            if BROKEN_ERROR.match(event.data):
                raise BadAnswer(f"reports an error: {error_in(event.data)}") from None
            self.skipped += 1
            return
        yield from self._value(value)

    def _value(self, value: Any) -> Iterator[Piece]:
        if not isinstance(value, dict):
            self.skipped += 1
            return
        if value.get("error") or value.get("object") == "error":
            raise BadAnswer(f"reports an error: {error_words(value)}")
        self.usage = value["usage"] if isinstance(value.get("usage"), dict) else self.usage
        self.timings = value["timings"] if isinstance(value.get("timings"), dict) else self.timings
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        said = next((choice[name] for name in ("delta", "message") if isinstance(choice.get(name), dict)), choice)
        for names, reasoning in ((("reasoning_content", "reasoning"), True), (("content", "text"), False)):
            found = next((said[name] for name in names if isinstance(said.get(name), str) and said[name]), "")
            if text := self._whole_characters(found, reasoning):
                yield Piece(text, reasoning)

    def _whole_characters(self, text: str, reasoning: bool) -> str:
        """Some servers send a character beyond 16 bits as two halves, also in two events: a first half waits for its second."""
        text = self._halves.pop(reasoning, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[reasoning] = text[-1]
            text = text[:-1]
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


BROKEN_ERROR = re.compile(r'\s*\{\s*"error"\s*:\s*"?')
"""Its text was put between quotes as it is, so that its own quotes and line ends break it."""


def error_in(text: str) -> str:
    """What an error says that may be no JSON."""
    try:
        return error_words(parsed(text))
    except ValueError:
        return one_line(BROKEN_ERROR.sub("", text, count=1).rstrip('"} \t'))


def parsed(text: str | bytes) -> Any:
    """JSON from a server; ValueError for anything else, also for what is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def error_words(value: Any) -> str:
    """What an error document says, in one line that can be printed."""
    found = value
    for _ in range(3):  # {"error": {"message": ...}}, {"detail": {"error": ...}}
        if isinstance(found, dict):
            found = next((found[name] for name in ("error", "message", "detail", "code") if found.get(name)), None)
    if isinstance(found, list):  # one for each field that was refused
        found = "; ".join(part["msg"] for part in found if isinstance(part, dict) and isinstance(part.get("msg"), str))
    return one_line(str(found)) if isinstance(found, str | int | float) else UNTOLD


def one_line(text: str) -> str:
    """No line ends, and nothing that a terminal would take for a command."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:10_000]).split())[:MOST_WORDS] or UNTOLD
