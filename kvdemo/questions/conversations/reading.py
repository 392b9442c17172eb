"""Conversations out of JSON lines: a request or a whole conversation per line; lines that belong together are found.

A line that ends with an answer is a whole conversation, unfolded into its requests. Any other line is one request. Lines
belong to one conversation where they have the same id, or where one begins with the messages of the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate, takewhile

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import checked_text
from kvdemo.facts.templates import MAX_TEMPLATE_CHARS, TemplateMessage, TemplateRequest, ToolCall
from kvdemo.facts.text_files import text_of
from kvdemo.questions.conversations.spec import MAX_LINES, Asked, BadLine, Talk

__all__ = ["read_conversations"]

MAX_BYTES = 5 * 1024 * 1024
MAX_MESSAGES = 2000
LINE_END = re.compile(r"\r\n|\r|\n")
REASONING_PARTS = ("reasoning", "thinking")
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
CANDIDATES = 50  # conversations with the same first question that a line is compared with, the latest first


def read_conversations(data: str | bytes) -> tuple[tuple[Talk, ...], tuple[BadLine, ...]]:
    """(conversations in the order of their first lines, lines that cannot be read) of at most 5 MB and 5,000 lines.

    InvalidRequest where the whole cannot be read.
    """
    if len(data) > MAX_BYTES:
        raise InvalidRequest("file", f"is {len(data):,} bytes long; the limit is {MAX_BYTES:,}")
    text = data.removeprefix("\ufeff") if isinstance(data, str) else text_of("file", data)
    lines = [(number, line) for number, line in enumerate(LINE_END.split(text), 1) if line.strip()]
    if len(lines) > MAX_LINES:
        raise InvalidRequest("file", f"has {len(lines):,} lines; at most {MAX_LINES:,} are read")
    if not lines:
        raise InvalidRequest("file", "is empty; it takes a conversation or a request per line, as JSON")
    bad: list[BadLine] = []
    sorting = _Sorting()
    for number, line in lines:
        try:
            sorting.add(_line(number, line))
        except InvalidRequest as error:
            bad.append(BadLine(number, error.message if error.field == "line" else str(error)))
    return tuple(talk.done() for talk in sorting.talks), tuple(bad)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    id: str
    request: TemplateRequest


def _line(number: int, line: str) -> _Line:
    """InvalidRequest that says what is wrong with the line."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidRequest("line", f"is not JSON: column {error.colno:,}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("line", "is not JSON that can be read") from error
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict):
        raise InvalidRequest("line", "must be an object or a list of messages")
    at, name = _time(value.get("time")), value.get("id")
    if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        raise InvalidRequest("id", "must be text or a whole number")
    own_id = "" if name is None else checked_text("id", str(name), max_chars=200)
    if "messages" not in value and isinstance(value.get("prompt"), str):
        prompt = checked_text("prompt", value["prompt"], max_chars=MAX_TEMPLATE_CHARS)
        return _Line(number, own_id, TemplateRequest(prompt=prompt, at=at))
    messages = tuple(_messages(value.get("messages", value.get("prompt"))))
    if system := _text(value.get("system"), "system")[0]:
        messages = (TemplateMessage("system", system), *messages)
    request = TemplateRequest(messages, _tools(value.get("tools")), at=at)
    if request.chars > MAX_TEMPLATE_CHARS:
        raise InvalidRequest("line", f"has {request.chars:,} characters; the limit is {MAX_TEMPLATE_CHARS:,}")
    if all(message.role in ("system", "assistant") for message in messages):
        raise InvalidRequest("messages", "there is no message of a user or tool in it")
    return _Line(number, own_id, request)


def _time(value: object) -> str:
    """ISO 8601, or seconds since 1970."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC).isoformat()
        if value is None:
            return ""
        if isinstance(value, str):
            return datetime.fromisoformat(value).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    raise InvalidRequest("time", "must be a date and time such as 2026-01-31T12:00:00, or seconds since 1970")


def _tools(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise InvalidRequest("tools", "must be a list of objects")
    return tuple(json.dumps(tool, ensure_ascii=False) for tool in value)


def _messages(value: object) -> Iterator[TemplateMessage]:
    if not isinstance(value, list) or not value:
        raise InvalidRequest("messages", "must be a list with at least one message")
    if len(value) > MAX_MESSAGES:
        raise InvalidRequest("messages", f"there are {len(value):,}; at most {MAX_MESSAGES:,} are read")
    for number, item in enumerate(value, 1):
        try:
            yield _message(item)
        except InvalidRequest as error:
            raise InvalidRequest(f"message {number}", f"{error.field}: {error.message}") from error


def _message(item: object) -> TemplateMessage:
    if not isinstance(item, dict):
        raise InvalidRequest("message", "must be an object")
    content, reasoning = _text(item.get("content"), "content")
    for name in REASONING_FIELDS:
        reasoning = reasoning or _text(item.get(name), name)[0]
    return TemplateMessage(
        role=item.get("role"),  # type: ignore[arg-type]  # checked there
        content=content,
        reasoning=reasoning,
        tool_calls=tuple(_calls(item.get("tool_calls"))),
        name=_text(item.get("name"), "name")[0],
        call_id=_text(item.get("tool_call_id"), "tool_call_id")[0],
    )


def _text(value: object, name: str) -> tuple[str, str]:
    """(text, reasoning) of a text or a list of parts."""
    if value is None:
        return "", ""
    if isinstance(value, str):
        return value, ""
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise InvalidRequest(name, "must be text or a list of parts")
    texts: list[str] = []
    thoughts: list[str] = []
    for part in value:
        kind = part.get("type", "text")
        content = part.get("text", part.get(kind) if isinstance(kind, str) else None)
        if kind not in ("text", *REASONING_PARTS) or not isinstance(content, str):
            raise InvalidRequest(name, f"has a part of type {str(kind)[:40]!r}; only text and reasoning are read")
        (thoughts if kind in REASONING_PARTS else texts).append(content)
    return "".join(texts), "".join(thoughts)


def _calls(value: object) -> Iterator[ToolCall]:
    if value is None:
        return
    if not isinstance(value, list):
        raise InvalidRequest("tool_calls", "must be a list")
    for call in value:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequest("tool_calls", "each must have a function with a name")
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as error:
                raise InvalidRequest("tool_calls", f"the arguments of {function['name']!r} are not JSON") from error
        if not isinstance(arguments, dict):
            raise InvalidRequest("tool_calls", f"the arguments of {function['name']!r} must be an object")
        yield ToolCall(function["name"], json.dumps(arguments, ensure_ascii=False), str(call.get("id") or ""))


@dataclass
class _Growing:
    """A conversation while its lines are read. most: messages of its longest request; said: of its latest line."""

    id: str
    asked: list[Asked] = field(default_factory=list)
    most: int = 0
    said: tuple[TemplateMessage, ...] = ()

    def add(self, line: _Line) -> None:
        found = list(_unfolded(line))
        newer = [one for one in found if len(one.request.messages) > self.most] or found[-1:]
        if self.asked and self.asked[-1].answer is None and (answer := _answer_in(self.said, line.request.messages)):
            self.asked[-1] = replace(self.asked[-1], answer=answer)
        self.asked += newer
        self.most = max(self.most, *(len(one.request.messages) for one in newer))
        self.said = line.request.messages

    def done(self) -> Talk:
        return Talk(self.id, tuple(self.asked))


def _unfolded(line: _Line) -> Iterator[Asked]:
    """A whole conversation as its requests, else the one request; each with its answer, where the line has one."""
    messages, request = line.request.messages, line.request
    if not messages or messages[-1].role != "assistant":
        yield Asked(request, line=line.number)
        return
    for at, message in enumerate(messages):
        if message.role == "assistant" and any(one.role in ("user", "tool") for one in messages[:at]):
            yield Asked(replace(request, messages=messages[:at]), message, line=line.number)


def _answer_in(before: Sequence[TemplateMessage], now: Sequence[TemplateMessage]) -> TemplateMessage | None:
    """The answer to the request before, as the history of the next one tells it."""
    at = len(before)
    return now[at] if len(now) > at and now[at].role == "assistant" else None


class _Sorting:
    """Which lines are requests of one conversation?"""

    def __init__(self) -> None:
        self.talks: list[_Growing] = []
        self._by_id: dict[str, _Growing] = {}
        self._by_said: dict[int, _Growing] = {}
        self._by_first: dict[object, list[_Growing]] = {}

    def add(self, line: _Line) -> None:
        said = tuple(one for one in line.request.messages if one.role != "system")
        beginnings = list(accumulate(said, lambda before, one: hash((before, one)), initial=0))
        talk = self._by_id.get(line.id) if line.id else self._found(line, said, beginnings)
        if talk is None:
            talk = _Growing(line.id or f"line {line.number}")
            self.talks.append(talk)
            if line.id:
                self._by_id[line.id] = talk
        talk.add(line)
        if line.id:
            return
        if said:
            self._by_said[beginnings[-1]] = talk
        known = self._by_first.setdefault(said[0] if said else "prompt", [])
        if talk not in known[-CANDIDATES:]:
            known.append(talk)

    def _found(self, line: _Line, said: tuple[TemplateMessage, ...], beginnings: Sequence[int]) -> _Growing | None:
        """The conversation that this goes on with: one that it begins with, else the one that it shares most with."""
        if not said:
            prompts = reversed(self._by_first.get("prompt", [])[-CANDIDATES:])
            text = line.request.prompt
            return next((talk for talk in prompts if text.startswith(talk.asked[-1].request.prompt)), None)
        for length in range(len(said) - 1, 0, -1):
            if (talk := self._by_said.get(beginnings[length])) is not None:
                return talk
        best, most = None, 0
        for talk in reversed(self._by_first.get(said[0], [])[-CANDIDATES:] if len(said) > 1 else []):
            before = [one for one in talk.said if one.role != "system"]
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, said, strict=False)))
            if common > most and len(said) >= len(before) > 1:
                best, most = talk, common
        return best
