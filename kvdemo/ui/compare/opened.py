"""Results that were not run here and now: out of a file, or recorded ones that come with kvdemo.

A recorded result is named in an address (`?result=NAME`), which is checked like any input: only names of ours count.
"""

from __future__ import annotations

from typing import Any

from kvdemo.backend.protocol import Backend
from kvdemo.errors import KvdemoError
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.ui.compare.results import measured_where

__all__ = ["example", "from_file_words", "others", "recorded", "recorded_words"]


def recorded(backend: Backend, name: object) -> AnyResult | None:
    """The recorded result of this name; None where there is none, or it cannot be read."""
    if not isinstance(name, str) or name not in backend.recorded_results():
        return None
    try:
        return backend.recorded_result(name)
    except KvdemoError:
        return None


def example(backend: Backend, question: Question[Any, Any]) -> AnyResult | None:
    """What a question shows before any run: its recorded example; None where there is none."""
    found = recorded(backend, question.example)
    return found if isinstance(found, question.result) else None


def others(question: Question[Any, Any], name: str) -> tuple[tuple[str, str], ...]:
    """(name, what it shows) of the question's other recorded results than this one."""
    named = ((question.example, "the first example"), *question.further)
    return tuple(item for item in named if item[0] != name)


def recorded_words(question: Question[Any, Any], result: AnyResult) -> str:
    """Where it comes from, and how to have one's own in its place."""
    takes = f" ({question.takes or 'a few minutes'})"
    own = {
        "model": f"Run measures this machine{takes}.",
        "endpoint": f"Run asks your server{takes}.",
        "tokenizer": "Run reads yours, within seconds.",
        "nothing": "Open your own result to see it here.",
    }
    return f"Recorded example: {measured_where(result)}. {own[question.needs]}"


def from_file_words(result: AnyResult) -> str:
    return f"Opened from a file: {measured_where(result)}."
