"""On my prompts? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvdemo.experiments.comparison import ENDPOINT_ARM, ComparisonResult
from kvdemo.experiments.question import Page, Question
from kvdemo.experiments.summary import request_size
from kvdemo.experiments.tables import PlacedRuns
from kvdemo.questions.prompts import words
from kvdemo.questions.prompts.document import document, read
from kvdemo.questions.prompts.evidence import evidence
from kvdemo.questions.prompts.run import prompt_set as run
from kvdemo.questions.prompts.spec import PromptSetResult, PromptSetSpec
from kvdemo.questions.prompts.tables import prompt_set_table

__all__ = ["PROMPTS"]


def placed(result: PromptSetResult) -> PlacedRuns:
    """Every run with its place in the result."""
    for item in result.prompts:
        place = {"prompt_id": item.row.id}
        yield from ((place, run) for run in item.result.runs)


def own_prompt(result: PromptSetResult) -> Callable[[Mapping[str, object]], Mapping[str, object]]:
    """What each run was asked."""
    rows = {item.row.id: {"prompt": item.row.prompt, "system_prompt": item.row.system} for item in result.prompts}
    return lambda place: rows[str(place["prompt_id"])]


def longest(result: PromptSetResult) -> ComparisonResult | None:
    """The comparison of the longest request that was measured."""
    return max((part.result for part in result.prompts), key=request_size, default=None)


def draw(result: PromptSetResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.prompts.charts import draw

    return draw(result, picked)


def drawings(result: PromptSetResult) -> Sequence[Any]:
    from kvdemo.questions.prompts.charts import drawings

    return drawings(result)


def page() -> Page[PromptSetSpec]:
    from kvdemo.questions.prompts.page import PAGE

    return PAGE


def ask() -> Callable[..., PromptSetSpec]:
    from kvdemo.questions.prompts.command import prompts

    return prompts


PROMPTS = Question(
    key="prompts",
    command="prompts",
    kind="prompt_set",
    title="On my prompts?",
    empty=(
        "Run compares the strategies on every prompt of the set, one after the other. You then see here how much the set gains "
        "as a whole, and which prompt gains least. Prompts for which there was no time left are listed."
    ),
    unit="prompts",
    settles=(5,),
    evidence=evidence,
    takes="up to 5 min",
    example="prompts",
    spec=PromptSetSpec,
    result=PromptSetResult,
    run=run,
    words=words,
    document=document,
    read=read,
    runs=placed,
    labels=lambda result: {row.key: row.label for row in result.strategies},
    strategies=lambda spec: spec.strategies,
    table=prompt_set_table,
    comparison=longest,
    columns=own_prompt,
    draw=draw,
    drawings=drawings,
    at_endpoint=lambda spec: replace(spec, strategies=(ENDPOINT_ARM,)),
    page=page,
    ask=ask,
)
