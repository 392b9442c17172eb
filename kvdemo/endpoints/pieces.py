"""The bytes of a streamed answer -> what they say: pieces of text, an end, counts. Server-sent events, or one JSON document.

It waits for nothing and knows no clock; whatever a server may send is read or refused here.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from httpx_sse._decoders import SSEDecoder, SSELineDecoder

__all__ = ["MOST_LINE_BYTES", "BadAnswer", "Piece", "Reading", "error_words"]

MOST_LINE_BYTES = 2**20
MOST_WORDS = 300


class BadAnswer(Exception):
    """What was sent is an error, or nothing that can be read; the text may be shown."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that came at once. reasoning: thought before the answer, which some servers send apart."""

    text: str
    reasoning: bool = False


@dataclass
class Reading:
    """One answer being read. usage, timings: as the server wrote them last; done: it said that it had ended.

    skipped   events that were no JSON
    """

    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    skipped: int = 0
    _utf8: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    _lines: SSELineDecoder = field(default_factory=SSELineDecoder)
    _events: SSEDecoder = field(default_factory=SSEDecoder)
    _since_line: int = 0

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that are complete with these bytes. BadAnswer: an error, or a line without an end."""
        text = self._utf8.decode(data)
        lines = self._lines.decode(text) if text else []
        self._since_line = 0 if lines else self._since_line + len(data)
        if self._since_line > MOST_LINE_BYTES or any(len(line) > MOST_LINE_BYTES for line in lines):
            raise BadAnswer(f"a line of its answer is longer than {MOST_LINE_BYTES // 2**20} MiB")
        for line in lines:
            yield from self._line(line)

    def close(self) -> Iterator[Piece]:
        """What was still to be read when the connection ended."""
        for line in (*self._lines.flush(), ""):
            yield from self._line(line)

    def whole(self, body: bytes) -> Iterator[Piece]:
        """A server that does not stream: one JSON document."""
        try:
            value = json.loads(body)
        except ValueError as error:
            raise BadAnswer("its answer is not JSON") from error
        self.done = True
        yield from self._value(value)

    def _line(self, line: str) -> Iterator[Piece]:
        event = self._events.decode(line)
        if event is None or not event.data:
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        try:
            value = json.loads(event.data)
        except ValueError:
            self.skipped += 1
            return
        yield from self._value(value)

    def _value(self, value: Any) -> Iterator[Piece]:
        if not isinstance(value, dict):
            self.skipped += 1
            return
        if value.get("error"):
            raise BadAnswer(error_words(value))
        if value.get("object") == "error":
            raise BadAnswer(error_words(value))
        self.usage = value["usage"] if isinstance(value.get("usage"), dict) else self.usage
        self.timings = value["timings"] if isinstance(value.get("timings"), dict) else self.timings
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        said = next((choice[name] for name in ("delta", "message") if isinstance(choice.get(name), dict)), choice)
        for name in ("reasoning_content", "reasoning"):
            if isinstance(said.get(name), str) and said[name]:
                yield Piece(said[name], reasoning=True)
                break
        for name in ("content", "text"):
            if isinstance(said.get(name), str) and said[name]:
                yield Piece(said[name])
                break


def error_words(value: Any) -> str:
    """What an error document says, in one line."""
    found = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(found, dict):
        found = next((found[name] for name in ("message", "detail", "code") if found.get(name)), "it did not say why")
    return " ".join(str(found).split())[:MOST_WORDS] or "it did not say why"
