"""Why does a prompt differ from what is held, and what can be done about it?

What was observed (the token, both sides) is kept apart from the cause. A cause is looked for in what was sent: where system
prompt, tools or an earlier message changed, it is the one that makes the difference go away when it is undone. Where nothing
that was sent changed, it is the template or the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.bench import Tokens
from kvdemo.facts.templates import Rendered, TemplateMessage, TemplateRequest, ToolCall
from kvdemo.questions.conversations.spec import Asked, Kind, Miss

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AVOIDABLE", "Sent", "explain", "first_request"]

BEFORE, AFTER = 4, 8  # tokens shown around the first difference
LONGEST = 120  # characters of them
DATE_OR_TIME = (
    (re.compile(r"\d{1,2}:\d{2}"), "the time of day"),
    (re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}"), "a date"),
    (re.compile(r"\b\d{1,2} [A-Z][a-z]+ \d{4}|[A-Z][a-z]+ \d{1,2}, \d{4}"), "a date"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}|\b[0-9a-f]{16,}\b|\d{3,}"), "a number or id that changes"),
)  # fmt: skip
ADVICE: dict[Kind, str] = {
    "system_changed": "Put what changes last, after the conversation, or leave it out.",
    "tools_changed": "Send the same tools with every request of a conversation.",
    "tools_reordered": "Sort the tools.",
    "message_changed": "Add a message in place of changing an earlier one.",
    "history_shortened": "Shorten the history seldom and by much, so that the rest stays the same for many turns.",
    "reasoning_dropped": "Keep reasoning in the history, where the template allows it.",
    "whitespace_changed": "Use a template that writes an answer as the model wrote it.",
    "date_changed": "Give the template a date that stays the same, or put the date last.",
    "generation_prompt": "Use a template whose history keeps what it begins an answer with.",
    "template_rerenders": "Use a template that writes a message the same way whatever follows it.",
    "tokens_joined": "End what comes before the boundary where a token ends: no space or line break there.",
}
AVOIDABLE = frozenset(ADVICE) - {"message_changed", "history_shortened"}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as it was sent, with what a cache holds after it.

    emitted   the text that was written after the prompt; held: prompt and answer less one token
    """

    asked: Asked
    prompt: Rendered
    ids: NDArray[np.int32]
    emitted: str
    held: NDArray[np.int32]

    @property
    def held_text(self) -> str:
        return self.prompt.text + self.emitted


def first_request(tokens: Tokens, ids: NDArray[np.int32]) -> Miss:
    text = tokens.decode(ids[:AFTER].tolist())[:LONGEST]
    return Miss(0, "", text, "", "first_request", "It is the first request: nothing was held yet.")


def explain(tokens: Tokens, before: Sent, now: Sent, shared: int) -> Miss:
    """The miss at token `shared`."""
    kind, cause, message = _cause(tokens, before, now)
    window = slice(max(0, shared - BEFORE), shared + AFTER)
    held_text, new_text = (tokens.decode(ids[window].tolist())[:LONGEST] for ids in (before.held, now.ids))
    return Miss(shared, held_text, new_text, message, kind, cause, ADVICE.get(kind, ""))


Cause = tuple[Kind, str, str]


def _cause(tokens: Tokens, before: Sent, now: Sent) -> Cause:
    """(kind, in plain words, where it lies)"""
    was, is_ = before.asked.request, now.asked.request
    differs_at = common_chars(before.held_text, now.prompt.text)
    found = [*_changes(tokens, before.asked, is_)]
    if len(found) > 1:
        for cause, undone in found:
            try:
                text = tokens.render(undone).text
            except InvalidRequest:
                continue
            if common_chars(before.held_text, text) > differs_at:
                return cause
    if found:
        return found[0][0]
    if was.prompt:
        return _same_text(before, now) or ("message_changed", "The text of the prompt changed.", "prompt")
    return _same_text(before, now) or _rerendered(tokens, before, now, differs_at)


def _changes(tokens: Tokens, before: Asked, now: TemplateRequest) -> Iterator[tuple[Cause, TemplateRequest]]:
    """What was sent otherwise than before, each with the request in which it is undone, in the order of a prompt."""
    was = before.request
    if was.prompt or now.prompt:
        return
    if was.tools != now.tools:
        undone = replace(now, tools=was.tools)
        if sorted(was.tools) == sorted(now.tools):
            yield ("tools_reordered", "The same tools were sent in another order.", "tools"), undone
        else:
            yield ("tools_changed", "The list of tools changed.", "tools"), undone
    if tokens.prints_time and was.at != now.at:
        yield ("date_changed", "The template prints the date of the request.", "template"), replace(now, at=was.at)
    old, new = _system(was.messages), _system(now.messages)
    if old != new:
        rest = tuple(one for one in now.messages if one.role != "system")
        system = (TemplateMessage("system", old),) if old else ()
        yield ("system_changed", _system_words(old, new), "system prompt"), replace(now, messages=(*system, *rest))
    said = [one for one in (*was.messages, *([before.answer] if before.answer else [])) if one.role != "system"]
    told = [one for one in now.messages if one.role != "system"]
    at = next((at for at, (one, other) in enumerate(zip(said, told, strict=False)) if one != other), None)
    leading = len(now.messages) - len(told)
    if at is not None:
        yield _changed_message(said, told, at, leading), now
    elif len(told) < len(said) - (before.answer is not None):
        yield ("history_shortened", "Later messages were left out.", f"message {len(now.messages)}"), now


def _changed_message(said: Sequence[TemplateMessage], told: Sequence[TemplateMessage], at: int, leading: int) -> Cause:
    place = f"message {leading + at + 1} ({told[at].role})"
    rest = list(told[at:])
    if any(list(said[later : later + len(rest)])[: len(said) - later] == rest[: len(said) - later]
           for later in range(at + 1, len(said))):  # fmt: skip
        return "history_shortened", "Earlier messages were left out of the history.", place
    if said[at].reasoning and replace(said[at], reasoning="") == told[at]:
        return "reasoning_dropped", "The request leaves the reasoning of an earlier answer out.", place
    if "".join(said[at].content.split()) == "".join(told[at].content.split()) and said[at].role == told[at].role:
        return "message_changed", "White space in an earlier message changed.", place
    return "message_changed", "An earlier message changed.", place


def _system(messages: Sequence[TemplateMessage]) -> str:
    return "\n".join(one.content for one in messages if one.role == "system")


def _system_words(old: str, new: str) -> str:
    if not old or not new:
        return "A system prompt was added." if new else "The system prompt was left out."
    at = common_chars(old, new)
    around = [text[max(0, at - 20) : at + 20] for text in (old, new)]
    what = next((name for form, name in DATE_OR_TIME if all(_covers(form, text, min(at, 20)) for text in around)), None)
    return f"The system prompt carries {what}." if what else "The system prompt changed."


def _covers(form: re.Pattern[str], text: str, at: int) -> bool:
    return any(found.start() <= at <= found.end() for found in form.finditer(text))


def _same_text(before: Sent, now: Sent) -> Cause | None:
    """One text begins with the other, and yet the tokens differ."""
    held, new = before.held_text, now.prompt.text
    if not new.startswith(held) and not held.startswith(new):
        return None
    if before.asked.answer_ids is not None:
        words = "The model had written the same text in other tokens than the tokenizer makes of it."
        return "other_tokens", words, "the answer before"
    return "tokens_joined", "The tokenizer joins characters across the boundary between two messages.", "the boundary"


def _rerendered(tokens: Tokens, before: Sent, now: Sent, differs_at: int) -> Cause:
    """Nothing that was sent changed: the template writes it in another way."""
    held, new = before.held_text, now.prompt.text
    place = _message_at(tokens, now.asked.request, differs_at)
    thoughts = [_reasoning(one) for one in (*before.asked.request.messages, before.asked.answer) if one is not None]
    if any(text and text in held[differs_at:] and text not in new[differs_at:] for text in thoughts) or (
        "</think>" in held[differs_at:] and "</think>" not in new[differs_at:]
    ):
        return "reasoning_dropped", "The template leaves the reasoning out of the history.", place
    if any(call.name not in new[differs_at:] for call in _calls(before.asked.answer)):
        return "template_rerenders", "The template leaves calls of tools out of the history.", place
    if _squeezed(new[differs_at:]).startswith(rest := _squeezed(held[differs_at:])) and (rest or held[differs_at:]):
        return "whitespace_changed", "White space around a message is written otherwise in the history.", place
    if _begins_answer(tokens, before) <= differs_at < len(before.prompt.text):
        return (
            "generation_prompt",
            "What the template begins an answer with is not what it writes in the history.",
            place,
        )
    if before.asked.answer_ids is not None and differs_at >= len(before.prompt.text):
        return "unknown", "Not known: the answer reads otherwise in the history than the model wrote it.", place
    return "template_rerenders", "The template writes earlier messages in another way once more follow.", place


def _reasoning(message: TemplateMessage) -> str:
    if message.reasoning:
        return message.reasoning
    thought, end, _ = message.content.partition("</think>")
    return thought.removeprefix("<think>").strip() if end and message.role == "assistant" else ""


def _calls(message: TemplateMessage | None) -> tuple[ToolCall, ...]:
    return message.tool_calls if message is not None else ()


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _begins_answer(tokens: Tokens, sent: Sent) -> int:
    """Where the generation prompt begins in a prompt."""
    try:
        return common_chars(tokens.render(sent.asked.request, answered=True).text, sent.prompt.text)
    except InvalidRequest:
        return len(sent.prompt.text)


def _message_at(tokens: Tokens, request: TemplateRequest, at: int) -> str:
    """The message in which a character of the prompt lies, as far as the template can tell."""
    low, high = 1, len(request.messages)
    while low < high:
        middle = (low + high) // 2
        try:
            longer = len(tokens.render(replace(request, messages=request.messages[:middle]), answered=True).text) > at
        except InvalidRequest:  # it takes no such beginning
            return "template"
        low, high = (low, middle) if longer else (middle + 1, high)
    return f"message {low} ({request.messages[low - 1].role})" if request.messages else "prompt"


def common_chars(one: str, other: str) -> int:
    """Length of the longest common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
