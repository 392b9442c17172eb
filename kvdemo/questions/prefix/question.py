"""Does a shared prefix pay? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvdemo.experiments.comparison import ENDPOINT_ARM
from kvdemo.experiments.question import Page, Question
from kvdemo.experiments.tables import PlacedRuns
from kvdemo.questions.prefix import words
from kvdemo.questions.prefix.code import PREFIX_CODE
from kvdemo.questions.prefix.document import document, read
from kvdemo.questions.prefix.run import prefix_reuse as run
from kvdemo.questions.prefix.spec import PrefixResult, PrefixSpec
from kvdemo.questions.prefix.tables import prefix_table

__all__ = ["PREFIX"]


def placed(result: PrefixResult) -> PlacedRuns:
    """Every run with its place in the result."""
    yield from (({"question": "", "prefix": "warm-up"}, run) for run in result.warmups)
    for pair in result.pairs:
        yield {"question": pair.question, "prefix": "processed"}, pair.fresh
        yield {"question": pair.question, "prefix": "kept"}, pair.kept


def draw(result: PrefixResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.prefix.charts import draw

    return draw(result, picked)


def drawings(result: PrefixResult) -> Sequence[Any]:
    from kvdemo.questions.prefix.charts import drawings

    return drawings(result)


def page() -> Page[PrefixSpec]:
    from kvdemo.questions.prefix.page import PAGE

    return PAGE


def ask() -> Callable[..., PrefixSpec]:
    from kvdemo.questions.prefix.command import prefix

    return prefix


PREFIX = Question(
    key="prefix",
    command="prefix",
    kind="prefix_reuse",
    title="Does a shared prefix pay?",
    empty=(
        "Run asks every question twice: with the system prompt processed again, and with it processed once, kept and copied. "
        "Then you see here how much sooner the answers begin, what is kept for that, and after how many questions it pays."
    ),
    unit="runs",
    settles=(),
    example="prefix",
    spec=PrefixSpec,
    result=PrefixResult,
    run=run,
    words=words,
    document=document,
    read=read,
    runs=placed,
    labels=lambda _: {"fresh": "processed every time", "kept": "prefix kept"},
    strategies=lambda spec: (spec.strategy,),
    table=prefix_table,
    comparison=lambda _: None,
    draw=draw,
    drawings=drawings,
    at_endpoint=lambda spec: replace(spec, strategy=ENDPOINT_ARM),
    cold=False,
    page=page,
    ask=ask,
    code=PREFIX_CODE,
)
