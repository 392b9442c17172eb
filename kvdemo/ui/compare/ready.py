"""Ready to decide? beside the headline: what this visitor's results, and what is known without any, come to."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.errors import KvdemoError
from kvdemo.experiments.evidence import Evidence, of_plan, of_setting, of_way_back
from kvdemo.experiments.question import AnyResult
from kvdemo.facts.decision import CacheDecision, InspectSpec
from kvdemo.facts.model import Loading
from kvdemo.facts.plans import CACHE_DTYPES, MAX_LENGTH, MemoryRequest
from kvdemo.facts.workload import Workload
from kvdemo.questions.table import Table, question_of
from kvdemo.questions.verdict import Readiness, Row, ready_to_decide
from kvdemo.questions.verdict_texts import NOTHING_YET, SAID
from kvdemo.ui.compare.in_force import decision_for
from kvdemo.ui.compare.keep_this import arms

__all__ = ["judged", "ready_card"]


def judged(backend: Backend, workload: Workload, results: Sequence[AnyResult], table: Table) -> Readiness:
    """The ten rows and the verdict on the loaded model; results of another model count where nothing else is there."""
    own = [result for result in results if decision_for(backend, result.model) is not None]
    others = [result for result in results if not any(result is one for one in own)]
    beside: list[Evidence] = []
    if own or not others:
        compared = any(arms(question_of(result, table), result) for result in own)
        decision = _decision(backend)
        if decision is not None:
            beside += [of_setting(decision), *([of_way_back(decision)] if compared else [])]
        beside += _plan(backend, workload)
    return ready_to_decide(workload, [*others, *own], beside=beside, table=table)


def _decision(backend: Backend) -> CacheDecision | None:
    """What is in force for the loaded model; None while it loads: looking takes seconds."""
    if isinstance(backend.status(), Loading):
        return None
    try:
        return backend.inspect(InspectSpec())
    except KvdemoError:
        return None


def _plan(backend: Backend, workload: Workload) -> list[Evidence]:
    """What the longest request takes, as often as it comes at once, of the memory that was said, else this machine's."""
    longest = workload.longest_tokens
    if longest is None or longest > MAX_LENGTH:
        return []
    try:
        geometry = backend.architecture()
        budget = backend.usual_budget(geometry)
        request = MemoryRequest(
            longest,
            workload.at_once or 1,
            cache_dtype=geometry.dtype if geometry.dtype in CACHE_DTYPES else "bfloat16",
            budget_gib=budget.gib if workload.memory_gib is None else workload.memory_gib,
            budget_source=budget.source if workload.memory_gib is None else "given",
        )
        return [of_plan(backend.plan_of(geometry, request))]
    except KvdemoError:
        return []


def ready_card(found: Readiness) -> str:
    """The verdict, why, and the ten rows, each with its answer or the button that brings one."""
    left_out = "" if not found.left_out else f" Left out: results on another model ({found.left_out})."
    return Markup(
        '<div class="kv-card kv-ready"><h2 class="kv-card-title">Ready to decide?</h2>'
        '<p class="kv-ready-verdict"><strong>{}</strong></p><p class="kv-small">{}</p>'
        '<ol class="kv-ready-rows">{}</ol><details><summary>What would overturn it?</summary>'
        '<p class="kv-small">{} {}</p></details></div>'
    ).format(
        text(found.sentence),
        text(found.because),
        Markup("").join(_row(row) for row in found.rows),
        text(_rests_on(found) + found.overturned_by),
        text(found.noise + left_out),
    )


def _rests_on(found: Readiness) -> str:
    numbers = ", ".join(map(str, found.rests_on))
    rows = "row" if len(found.rests_on) == 1 else "rows"
    return f"It rests on {rows} {numbers}. " if found.rests_on and found.outcome != "not enough" else ""


def _row(row: Row) -> str:
    """Its answer and the runs behind it in a line; what exactly was found unfolds.

    Every row unfolds, so that the one somebody has opened is the same one in the next card: page.js counts them.
    """
    kind = "open" if not row.answered else row.answer
    rests_on = (
        Markup(' <span class="kv-small">{}</span>').format(text(row.rests_on)) if row.rests_on and row.answered else ""
    )
    line = Markup(
        '<span class="kv-ready-line"><span>{} {}{}</span><span class="kv-ready-said">{}</span></span>'
    ).format(row.number, text(row.asked), rests_on, SAID[row.answer])
    words = Markup('<p class="kv-small">{}</p>').format(text(row.words or NOTHING_YET))
    folded = Markup("<details><summary>{}</summary>{}</details>").format(line, words)
    return Markup('<li class="kv-ready-{}">{}{}</li>').format(kind, folded, "" if row.answered else _button(row))


def _button(row: Row) -> str:
    """Turns to the question, or to the numbers, that answer it; page.js knows how."""
    if not row.key:
        return ""
    takes = Markup('<span class="kv-small">{}</span>').format(text(row.takes)) if row.takes else ""
    return Markup(
        '<div class="kv-ready-line"><button type="button" class="kv-act kv-act-turn kv-to-{}">{}</button>{}</div>'
    ).format(text(row.key), text(row.button), takes)
