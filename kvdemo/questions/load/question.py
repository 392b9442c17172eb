"""With many at once? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvdemo.experiments.question import Page, Question
from kvdemo.experiments.tables import PlacedRuns
from kvdemo.questions.load import words
from kvdemo.questions.load.document import document, read
from kvdemo.questions.load.evidence import evidence
from kvdemo.questions.load.run import load as run
from kvdemo.questions.load.spec import LoadResult, LoadSpec, mode_of
from kvdemo.questions.load.tables import load_table

__all__ = ["LOAD"]


def placed(result: LoadResult) -> PlacedRuns:
    """Every request of every round with its place in the result."""
    for point in result.points:
        for one in point.runs:
            for number, found in enumerate(one.record.runs, 1):
                place = {"at_once": point.requests, "mode": one.mode, "request": number}
                yield place, replace(found, round=one.round, order=one.order, warmup=one.round == 0, arm=one.mode)


def draw(result: LoadResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.load.charts import draw

    return draw(result, picked)


def drawings(result: LoadResult) -> Sequence[Any]:
    from kvdemo.questions.load.charts import drawings

    return drawings(result)


def page() -> Page[LoadSpec]:
    from kvdemo.questions.load.page import PAGE

    return PAGE


def ask() -> Callable[..., LoadSpec]:
    from kvdemo.questions.load.command import load

    return load


LOAD = Question(
    key="load",
    command="load",
    kind="load",
    title="With many at once?",
    empty=(
        "Run serves the same requests one by one, as one padded batch, and by continuous batching with a paged cache. "
        "Then you see here how many tokens a second all get together, how long each waits, and what the cache holds."
    ),
    unit="runs",
    settles=(7,),
    evidence=evidence,
    takes="up to 5 min",
    example="load",
    spec=LoadSpec,
    result=LoadResult,
    run=run,
    words=words,
    document=document,
    read=read,
    runs=placed,
    labels=lambda result: {key: mode_of(key).label for key in result.spec.modes},
    strategies=lambda spec: tuple(
        dict.fromkeys(mode.strategy for mode in map(mode_of, spec.modes) if mode.serving != "continuous")
    ),
    table=load_table,
    draw=draw,
    drawings=drawings,
    at_endpoint=lambda spec: replace(spec, modes=("one-by-one", "at-once")),
    page=page,
    ask=ask,
)
