"""Whole conversations through a tokenizer's chat template: text, ids, and back. Needs no weights.

Templates are told messages in the ways in which Chat tells them (see prompt.py), so that the ids are the same.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdemo.errors import InvalidRequest
from kvdemo.facts.templates import Rendered, TemplateMessage, TemplateRequest
from kvdemo.generation.prompt import chat_templates, refusal_of

__all__ = ["Templated"]

CLOCK = re.compile(r"""strftime_now\(\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\)""")
WAYS = ((False, False), (True, False), (False, True), (True, True))
"""(system prompt folded into the first question, contents as lists of parts)"""


class Templated:
    """A tokenizer with its chat template. lock: held while it encodes.

    Which way of telling the template works is found out once for each kind of conversation: its roles, tools or not.
    """

    def __init__(self, tokenizer: Any, lock: threading.Lock | None = None) -> None:
        self._tokenizer = tokenizer
        self._lock = lock or threading.Lock()
        self._ways: dict[object, tuple[str | None, bool, bool]] = {}

    @property
    def has_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def prints_time(self) -> bool:
        """Does a prompt hold the date on which it is sent?"""
        template = self._tokenizer.chat_template
        texts = template.values() if isinstance(template, dict) else [template or ""]
        return any(CLOCK.search(text) for text in texts)

    @property
    def end(self) -> str:
        """The token that ends an answer, as text; "" where none is named."""
        return str(self._tokenizer.eos_token or "")

    def render(self, request: TemplateRequest, *, answered: bool = False) -> Rendered:
        """The text that the model reads. answered: the last message is an answer, so that none is asked for.

        InvalidRequest where the template refuses it, or would leave out what somebody said.
        """
        if request.prompt:
            return Rendered(request.prompt, special=True)
        if not self.has_template:
            turns = [f"{one.role.capitalize()}: {one.content}" for one in request.messages]
            return Rendered("\n".join(turns if answered else [*turns, "Assistant:"]), special=True)
        kind = (*sorted({one.role for one in request.messages}), request.messages[0].role, bool(request.tools))
        known = self._ways.get(kind)
        if known is not None:
            try:
                return Rendered(self._apply(request, *known, answered=answered))
            except Exception:  # another way may do: all are tried again
                del self._ways[kind]
        return Rendered(self._first_way(request, kind, answered))

    def encode(self, texts: Sequence[Rendered]) -> list[NDArray[np.int32]]:
        """The ids of each text."""
        ids: list[NDArray[np.int32]] = [np.empty(0, np.int32)] * len(texts)
        for special in (False, True):
            places = [at for at, one in enumerate(texts) if one.special is special]
            if not places:
                continue
            with self._lock:
                encoded = self._tokenizer(
                    [texts[at].text for at in places],
                    add_special_tokens=special,
                    return_attention_mask=False,
                    verbose=False,
                )["input_ids"]
            for at, one in zip(places, encoded, strict=True):
                ids[at] = np.asarray(one, np.int32)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special ones among them."""
        return str(self._tokenizer.decode([int(one) for one in ids], skip_special_tokens=False))

    def _first_way(self, request: TemplateRequest, kind: object, answered: bool) -> str:
        """By the first way of telling in which all that a person said arrives."""
        refusal = ""
        for name, _ in chat_templates(self._tokenizer.chat_template):
            for folded, in_parts in WAYS:
                if folded and _folded(request.messages) == request.messages:
                    continue
                try:
                    if left_out := self._left_out(request, name, folded, in_parts):
                        refusal = refusal or f"the model's chat template leaves out the {left_out}"
                        continue
                    text = self._apply(request, name, folded, in_parts, answered=answered)
                except Exception as error:  # a template is a program, and raises whatever it likes
                    refusal = refusal or refusal_of(error)
                    continue
                self._ways[kind] = (name, folded, in_parts)
                return text
        raise InvalidRequest("messages", refusal or "the model names no chat template that can be used")

    def _left_out(self, request: TemplateRequest, name: str | None, folded: bool, in_parts: bool) -> str:
        """What of a person's the template does not print: "message", "system prompt", "tool's answer" or ""."""
        roles = ("system", "user", "tool")
        words = {
            at: f"kvdemo{at}word"
            for at, one in enumerate(request.messages)
            if one.role in roles and one.content.strip()
        }
        stand_ins = tuple(
            TemplateMessage(one.role, words.get(at, one.content), one.reasoning, one.tool_calls, one.name, one.call_id)
            for at, one in enumerate(request.messages)
        )
        text = self._apply(TemplateRequest(stand_ins, request.tools), name, folded, in_parts, answered=False)
        missing = [request.messages[at].role for at, word in words.items() if word not in text]
        names = {"system": "system prompt", "user": "message", "tool": "tool's answer"}
        return names[missing[-1]] if missing else ""

    def _apply(
        self, request: TemplateRequest, name: str | None, folded: bool, in_parts: bool, *, answered: bool
    ) -> str:
        tools = [json.loads(tool) for tool in request.tools] or None
        template = self._tokenizer.get_chat_template(name, tools)
        if request.at:
            sent = datetime.fromisoformat(request.at)
            template = CLOCK.sub(lambda found: json.dumps(sent.strftime(found[1] or found[2] or "")), template)
        messages = _folded(request.messages) if folded else request.messages
        return str(
            self._tokenizer.apply_chat_template(
                [_as_template_reads(one, in_parts) for one in messages],
                tools=tools,
                chat_template=template,
                add_generation_prompt=not answered,
                tokenize=False,
            )
        )


def _as_template_reads(message: TemplateMessage, in_parts: bool) -> dict[str, Any]:
    as_dict: dict[str, Any] = {"role": message.role, "content": message.content}
    if in_parts:
        as_dict["content"] = [{"type": "text", "text": message.content}]
    if message.reasoning:
        as_dict["reasoning_content"] = message.reasoning
    if message.tool_calls:
        as_dict["tool_calls"] = [
            {
                "type": "function",
                **({"id": call.id} if call.id else {}),
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in message.tool_calls
        ]
    if message.name:
        as_dict["name"] = message.name
    if message.call_id:
        as_dict["tool_call_id"] = message.call_id
    return as_dict


def _folded(messages: tuple[TemplateMessage, ...]) -> tuple[TemplateMessage, ...]:
    """The system prompt in front of the first question; the same messages when there is none to fold."""
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return messages
    system, first, *rest = messages
    if not system.content.strip():
        return (first, *rest)
    return (TemplateMessage("user", f"{system.content}\n\n{first.content}"), *rest)
