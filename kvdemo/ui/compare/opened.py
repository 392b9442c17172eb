"""Results that were not run here and now: out of a file, or recorded ones that come with kvdemo.

A recorded result is named in an address (`?result=NAME`), which is checked like any input: only names of ours count.
"""

from __future__ import annotations

from typing import Any

from kvdemo.errors import KvdemoError
from kvdemo.facts.questions import GrowthResult, PrefixResult, PromptSetResult
from kvdemo.facts.results import ComparisonResult
from kvdemo.questions.documents import AnyResult
from kvdemo.ui.compare.results import measured_where

__all__ = ["EXAMPLE", "example", "from_file_words", "question_of", "recorded", "recorded_words"]

EXAMPLE = "compare"


def question_of(result: AnyResult) -> str:
    """The key of the question whose page shows this result."""
    for kind, key in ((GrowthResult, "growth"), (PromptSetResult, "prompts"), (PrefixResult, "prefix")):
        if isinstance(result, kind):
            return key
    return "faster"


def recorded(backend: Any, name: object) -> AnyResult | None:
    """The recorded result of this name; None where there is none, or it cannot be read."""
    if not isinstance(name, str) or name not in backend.recorded_results():
        return None
    try:
        return backend.recorded_result(name)
    except KvdemoError:
        return None


def example(backend: Any) -> AnyResult | None:
    """What the tab shows before any run: a recorded comparison, that of the tab's name first; None where there is none."""
    names = sorted(backend.recorded_results(), key=lambda name: name != EXAMPLE)
    found = (recorded(backend, name) for name in names)
    return next((result for result in found if isinstance(result, ComparisonResult)), None)


def recorded_words(result: AnyResult) -> str:
    return f"Recorded example: {measured_where(result)}. Run measures this machine (about 2 min)."


def from_file_words(result: AnyResult) -> str:
    return f"Opened from a file: {measured_where(result)}."
