"""How does it grow? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.question import Page, Question
from kvdemo.experiments.summary import request_size
from kvdemo.experiments.tables import PlacedRuns
from kvdemo.questions.grow import words
from kvdemo.questions.grow.document import document, read
from kvdemo.questions.grow.evidence import evidence
from kvdemo.questions.grow.run import grow as run
from kvdemo.questions.grow.spec import GrowthResult, GrowthSpec
from kvdemo.questions.grow.tables import growth_table

__all__ = ["GROW"]


def placed(result: GrowthResult) -> PlacedRuns:
    """Every run with its place in the result."""
    for point in result.points:
        place = {"point_prompt_tokens": point.prompt_tokens, "point_new_tokens": point.new_tokens}
        yield from ((place, run) for run in point.result.runs)


def longest(result: GrowthResult) -> ComparisonResult | None:
    """The comparison of the longest request that was measured."""
    return max((part.result for part in result.points), key=request_size, default=None)


def draw(result: GrowthResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.grow.charts import draw

    return draw(result, picked)


def drawings(result: GrowthResult) -> Sequence[Any]:
    from kvdemo.questions.grow.charts import drawings

    return drawings(result)


def page() -> Page[GrowthSpec]:
    from kvdemo.questions.grow.page import PAGE

    return PAGE


def ask() -> Callable[..., GrowthSpec]:
    from kvdemo.questions.grow.command import grow

    return grow


GROW = Question(
    key="grow",
    command="grow",
    kind="growth",
    title="How does it grow?",
    empty=(
        "Run compares short requests first, then longer ones. It ends with the longest that you allow, or when its time is up. "
        "You then see here what grows with the prompt and with the answer: the gain, the cost of a step, the bytes that the "
        "cache keeps, the peak of memory."
    ),
    unit="points",
    settles=(6,),
    evidence=evidence,
    takes="up to 5 min",
    example="grow",
    spec=GrowthSpec,
    result=GrowthResult,
    run=run,
    words=words,
    document=document,
    read=read,
    runs=placed,
    labels=lambda result: {row.key: row.label for row in result.strategies},
    strategies=lambda spec: spec.strategies,
    table=growth_table,
    comparison=longest,
    draw=draw,
    drawings=drawings,
    page=page,
    ask=ask,
)
