"""What happens in a question of Compare: the form is checked, the runs stream, the result is drawn.

Handlers take plain values, make one backend call and give back CompareViews; compare_area.py maps them to components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from kvdemo.components.form_values import Question, notice, refusal
from kvdemo.components.wiring import MEASURING
from kvdemo.errors import KvdemoError
from kvdemo.facts.questions import GrowthResult, PrefixResult, PromptSetResult
from kvdemo.facts.requests import CompareSpec, Message
from kvdemo.facts.results import ComparisonResult, Progress
from kvdemo.facts.units import format_count
from kvdemo.questions.documents import AnyResult
from kvdemo.ui.compare.arms import ArmView, CompareRun, columns, finished_columns, progress_card
from kvdemo.ui.compare.change import arms, change_card, fastest
from kvdemo.ui.compare.results import charts, empty_result, headline_card, result_tables, verdict_card
from kvdemo.ui.compare.series import SeriesRun, so_far

__all__ = ["CompareView", "count", "failed", "run", "shown"]

COUNTED_CHARS = 50_000
RESULTS = (ComparisonResult, GrowthResult, PromptSetResult, PrefixResult)


@dataclass(frozen=True, slots=True)
class CompareView:
    """What a question shows next; gr.skip() leaves a part as it is.

    charts    one per figure of the question, None: nothing to draw; None altogether: they stay
    running   None: unchanged
    """

    notice: Any = field(default_factory=gr.skip)
    headline: Any = field(default_factory=gr.skip)
    live: Any = field(default_factory=gr.skip)
    verdict: Any = field(default_factory=gr.skip)
    tables: Any = field(default_factory=gr.skip)
    charts: Sequence[Any] | None = None
    result: Any = field(default_factory=gr.skip)
    arms: Any = field(default_factory=gr.skip)
    change: Any = field(default_factory=gr.skip)
    running: bool | None = None


def run(backend: Any, question: Question, form: Sequence[Any], owner: str) -> Iterator[CompareView]:
    """Ask the question: a view with each progress while runs go on, the result at the end, all of it kept.

    What is refused is told before anything runs, and what stands on the page stays.
    """
    steps = None
    begun = False
    try:
        backend.describe()
        asked = question.read(backend, *form)
        so_far_run = _begin(backend, asked)
        steps = getattr(backend, question.method)(asked, owner=owner, reader=MEASURING)
        step = next(steps)
        begun = True
        so_far_run = so_far_run.after(step)
        head, live = _shown(question, so_far_run)
        yield CompareView("", head, live, "", "", result=None, arms=None, change="", running=True)
        _import_drawing()  # before the first run: these libraries take seconds to import
        while not isinstance(step, RESULTS):
            step = next(steps)
            so_far_run = so_far_run.after(step)
            if isinstance(step, Progress):  # it comes when all is told that is known so far
                head, live = _shown(question, so_far_run)
                yield CompareView(headline=head, live=live)
        # Columns of texts stay as they ended; what stood there so far is told by the table.
        yield shown(backend, step, live=columns(so_far_run) if isinstance(so_far_run, CompareRun) else "")
    except KvdemoError as error:
        headline = empty_result(question.empty) if begun else gr.skip()
        yield CompareView(notice=notice(refusal(error)), headline=headline, running=False)
    finally:
        if steps is not None:
            steps.close()


def shown(backend: Any, result: AnyResult, *, source: str = "", live: str | None = None) -> CompareView:
    """A result on its page. `source`: where it comes from when it was not run here; live: what stood there while it ran."""
    if live is None:
        live = finished_columns(result) if isinstance(result, ComparisonResult) else ""
    drawn = charts(result)
    chosen = fastest(result)
    return CompareView(
        notice="",
        headline=headline_card(result, source),
        live=live,
        verdict=verdict_card(result),
        tables=result_tables(result),
        charts=drawn,
        result=result,
        arms=(arms(result), chosen),
        change=change_card(backend, result, chosen),
        running=False,
    )


def failed(question: Question) -> CompareView:
    """After a fault of ours: nothing runs any more."""
    words = "Something went wrong on our side; the log of this program says what. Your settings are as you left them."
    return CompareView(notice=notice(words), headline=empty_result(question.empty), running=False)


def count(backend: Any, prompt: object, as_chat: object, system_prompt: object) -> str:
    """The prompt's length in tokens as the model will see it, as a fragment; empty where it cannot be known."""
    if not isinstance(prompt, str) or not prompt.strip():
        return ""
    if len(prompt) > COUNTED_CHARS:
        return f'<div class="kv-count">{format_count(len(prompt))} characters</div>'
    try:
        told: str | tuple[Message, ...] = prompt
        if as_chat:
            system = system_prompt if isinstance(system_prompt, str) else ""
            told = (*((Message("system", system),) if system.strip() else ()), Message("user", prompt))
        tokens = backend.count_tokens(told)
    except KvdemoError:
        return ""
    return f'<div class="kv-count">{format_count(tokens)} {"token" if tokens == 1 else "tokens"}</div>'


def _begin(backend: Any, asked: Any) -> CompareRun | SeriesRun:
    if not isinstance(asked, CompareSpec):
        return SeriesRun(progress=Progress("Getting ready", 0, None, 0.0))
    rows = {row.key: row for row in backend.strategies()}
    known = {key: ArmView(rows[key]) for key in asked.strategies if key in rows}
    return CompareRun(known, asked.max_new_tokens)


def _shown(question: Question, run: CompareRun | SeriesRun) -> tuple[str, str]:
    live = columns(run) if isinstance(run, CompareRun) else so_far(run)
    return progress_card(run.progress, question.unit), live


def _import_drawing() -> None:
    pass
