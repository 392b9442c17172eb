"""My application: the question's row. The command kvdemo watch answers it; the page opens its results and runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvdemo.experiments.question import Page, Question
from kvdemo.questions.application import words
from kvdemo.questions.application.code import COUNTING_CODE
from kvdemo.questions.application.document import document, read
from kvdemo.questions.application.evidence import evidence
from kvdemo.questions.application.run import not_here
from kvdemo.questions.application.spec import ApplicationResult, ApplicationSpec
from kvdemo.questions.application.tables import application_table, call_rows

__all__ = ["APPLICATION"]


def draw(result: ApplicationResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.application.charts import draw

    return draw(result, picked)


def drawings(result: ApplicationResult) -> Sequence[Any]:
    from kvdemo.questions.application.charts import drawings

    return drawings(result)


def page() -> Page[ApplicationSpec]:
    from kvdemo.questions.application.page import PAGE

    return PAGE


def ask() -> Callable[..., ApplicationSpec]:
    from kvdemo.questions.application.command import watch

    return watch


APPLICATION = Question(
    key="application",
    command="watch",
    kind="watch",
    title="My application",
    empty=(
        "Here you see what your own program does. From which lines does it generate, and how often? Is a cache used, and who "
        "decided that? What did every forward compute and read? How much of the program's time is generation at all? A "
        "comparison also says what the whole program gains."
    ),
    unit="calls",
    needs="nothing",
    settles=(1, 2, 3, 4, 5, 9),
    evidence=evidence,
    example="application",
    spec=ApplicationSpec,
    result=ApplicationResult,
    run=not_here,
    words=words,
    document=document,
    read=read,
    runs=lambda _: (),
    rows=call_rows,
    labels=lambda result: {arm.key: arm.label for arm in result.arms},
    strategies=lambda _: (),
    table=application_table,
    draw=draw,
    drawings=drawings,
    page=page,
    ask=ask,
    code=COUNTING_CODE,
)
