"""Values as a form sends them: what several forms check alike, and refusals in the form's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.question import FormBackend
from kvdemo.facts.requests import checked_int, checked_number

__all__ = ["budget_s", "in_table_order", "lengths", "notice", "refusal", "typed_number"]

# The request's own names, as the form calls them.
LABELS = {
    "prompt": "Prompt",
    "prompts": "Prompts",
    "max_new_tokens": "New tokens",
    "rounds": "Rounds",
    "strategies": "Strategies",
    "strategy": "Strategy",
    "time_budget_s": "Time budget",
    "longest_tokens": "Longest request",
    "prompt_tokens": "Prompt lengths",
    "new_tokens": "Answer lengths",
    "system_prompt": "System prompt",
    "file": "File",
}


def in_table_order(backend: FormBackend, chosen: Any) -> tuple[str, ...]:
    """The chosen strategies as the table orders them, so that the first one, the baseline, is No cache where it is among
    them; names that the table lacks come last and are refused by the experiment."""
    if not isinstance(chosen, list | tuple) or not all(isinstance(key, str) for key in chosen):
        raise InvalidRequest("strategies", "choose at least two")
    order = {row.key: at for at, row in enumerate(backend.strategies())}
    return tuple(sorted(dict.fromkeys(chosen), key=lambda key: order.get(key, len(order))))


def budget_s(minutes: Any) -> float | None:
    """A time budget in seconds from a field in minutes; an empty field: none."""
    return None if minutes is None else 60 * checked_number("time_budget_s", minutes, 0.1, 1440)


def lengths(name: str, typed: Any) -> tuple[int, ...]:
    """Whole numbers out of "16, 64, 256"; nothing typed: none; InvalidRequest names the first that is no number."""
    if typed is None:  # a field that nobody has touched
        return ()
    if not isinstance(typed, str):
        raise InvalidRequest(name, "must be whole numbers with commas between them")
    found = []
    for part in typed.replace(";", ",").split(","):
        word = part.strip().replace("_", "")
        if not word:
            continue
        if not (word.isascii() and word.isdigit() and len(word) < 12):
            raise InvalidRequest(name, f"{word[:20]!r} is not a whole number; write them as 16, 64, 256")
        found.append(checked_int(name, int(word), 1, 10_000_000))
    return tuple(found)


def typed_number(name: str, typed: Any) -> Any:
    """A number out of a box of text; nothing typed: None. (An empty gr.Number turns into 0 when its accordion is opened.)"""
    if not isinstance(typed, str):
        return typed
    if not typed.strip():
        return None
    try:
        return float(typed.strip().replace(",", "."))
    except ValueError as error:
        raise InvalidRequest(name, f"{typed.strip()[:20]!r} is not a number") from error


def refusal(error: KvdemoError, labels: Mapping[str, str] | None = None) -> str:
    """A refusal with the field's name as the form has it; labels: further names of this form."""
    if isinstance(error, InvalidRequest):
        return f"{ {**LABELS, **(labels or {})}.get(error.field, error.field) }: {error.message}"
    return str(error)


def notice(words: str, more: Iterable[str] = ()) -> str:
    """A refusal on the form; what stands below it stays."""
    rest = Markup("").join(Markup(" {}").format(text(sentence)) for sentence in more)
    return Markup('<div class="kv-notice" role="alert">{}{}</div>').format(text(words), rest)
