"""Conversations as chat templates read them: tools, calls of tools, reasoning. What Chat sends is plainer: see requests.py."""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import checked_choice, checked_text

__all__ = ["MAX_TEMPLATE_CHARS", "ROLES", "Rendered", "TemplateMessage", "TemplateRequest", "ToolCall"]

ROLES = ("system", "user", "assistant", "tool")
MAX_TEMPLATE_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """arguments: a JSON object as text, its keys in the order in which they were written."""

    name: str
    arguments: str = "{}"
    id: str = ""


@dataclass(frozen=True, slots=True)
class TemplateMessage:
    """reasoning: what an assistant thought before its answer; name, call_id: of the tool that a message comes from."""

    role: str
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    name: str = ""
    call_id: str = ""

    def __post_init__(self) -> None:
        checked_choice("role", self.role, ROLES)
        for field in ("content", "reasoning"):
            checked_text(field, getattr(self, field), max_chars=MAX_TEMPLATE_CHARS, empty=True)
        for field in ("name", "call_id"):
            checked_text(field, getattr(self, field), max_chars=1000, empty=True)
        if self.role != "assistant" and (self.reasoning or self.tool_calls):
            raise InvalidRequest("role", f"a message of {self.role} can neither reason nor call tools")

    @property
    def chars(self) -> int:
        calls = sum(len(call.name) + len(call.arguments) for call in self.tool_calls)
        return len(self.content) + len(self.reasoning) + calls


@dataclass(frozen=True, slots=True)
class TemplateRequest:
    """What is sent for one answer.

    tools   definitions, each a JSON object as text; prompt: a text that is sent as it is, in place of messages
    at      when it was sent, ISO 8601: templates may print the date; "": not known
    """

    messages: tuple[TemplateMessage, ...] = ()
    tools: tuple[str, ...] = ()
    prompt: str = ""
    at: str = ""

    @property
    def chars(self) -> int:
        return len(self.prompt) + sum(one.chars for one in self.messages) + sum(map(len, self.tools))


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text that a tokenizer is given. special: with the tokens that it puts around a text; a template writes its own."""

    text: str
    special: bool = False
