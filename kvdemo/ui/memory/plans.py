"""What the tab Memory shows for a plan: words, cards and charts, of which only what has changed is sent.

Plain values in, a MemoryView out; planning.py maps it to components.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict, cast

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.errors import KvdemoError, ModelNotReady, ModelUnavailable
from kvdemo.facts.plans import Architecture, MeasuredPoint, MemoryPlan
from kvdemo.ui.memory.cards import arithmetic_card, engine_card, figures_card, fits_card
from kvdemo.ui.memory.form import GROWS, MemoryForm
from kvdemo.ui.memory.models import others
from kvdemo.ui.memory.words import asked_words, headline_card

__all__ = ["Beside", "MemoryView", "hint", "plan_view", "problem"]

LAST = "said"
"""Under this name the state of what is shown keeps the words of the last good result."""

WORKS = "Known models, a config.json and numbers typed by hand work already."

Shown = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside a plan in the growth chart.

    by         what it grows with, a key of GROWS
    models     names of up to three known models
    measured   points of the loaded model, where that is what is planned
    """

    by: Any = "length"
    models: Any = ()
    measured: tuple[MeasuredPoint, ...] = ()


class MemoryView(TypedDict, total=False):
    """What the tab shows next; a part that is not named stays as it is."""

    shown: Shown
    notice: str
    headline: str
    growth: Any
    layers: Any
    arithmetic: str
    fits: str
    sharing: Any
    figures: str


def plan_view(
    backend: Backend, geometry: Architecture, form: MemoryForm, beside: Beside, shown: Shown | None = None
) -> MemoryView:
    """The plan for this form, or why there is none; then what stood there stays, marked as the last good result.

    shown   what the visitor's page shows already, by part: what has not changed is not sent again
    """
    try:
        request = form.request(geometry, backend.usual_budget(geometry))
        uniform = form.keeping == "uniform"
        plan = backend.plan_of(geometry, request, one_page_size=uniform)
        as_built = backend.plan_of(geometry, request) if uniform else plan
        compared = [
            backend.plan_of(one, form.request(one), one_page_size=uniform)
            for one in others(backend, beside.models, geometry)
        ]
    except KvdemoError as error:
        return {"notice": problem(error, shown)}
    parts = _parts(plan, as_built, form.keeping, beside, compared)
    old = shown or {}
    new = {name: make() for name, (key, make) in parts.items() if old.get(name) != key}
    keys = {name: key for name, (key, _) in parts.items()}
    view: MemoryView = {"shown": {**keys, LAST: asked_words(plan)}, "notice": ""}
    return view | cast(MemoryView, new)


def problem(error: KvdemoError, shown: Shown | None = None) -> str:
    """A refusal, what works nevertheless, and which result stays below it."""
    if isinstance(error, ModelNotReady):
        return _notice("The model is still loading; its numbers appear here by themselves", WORKS, shown, hinted=True)
    return _notice(error, WORKS if isinstance(error, ModelUnavailable) else "", shown)


def hint(words: str, shown: Shown | None = None) -> str:
    """What is to be done before there is something new to show."""
    return _notice(words, "", shown, hinted=True)


def _notice(what: object, more: str, shown: Shown | None, *, hinted: bool = False) -> str:
    """Its class dims what is below, which belongs to other values than those in the form."""
    last = (shown or {}).get(LAST)
    stays = f"Below: the last good result, {last}." if last else ""
    kind, role = ("kv-notice kv-notice-hint", "status") if hinted else ("kv-notice", "alert")
    said = str(what).rstrip(".")
    small = " ".join(part for part in (more, stays) if part)
    return Markup('<div class="{} kv-stale" role="{}">{}. <span class="kv-small">{}</span></div>').format(
        kind, role, text(said), text(small)
    )


def _parts(
    plan: MemoryPlan, as_built: MemoryPlan, keeping: str, beside: Beside, compared: Sequence[MemoryPlan]
) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Every part: what it depends on, as a key, and how it is made. Words are made at once, charts only when they differ."""
    from kvdemo.charts.layer_charts import layer_chart, sharing_chart
    from kvdemo.charts.memory_growth_chart import growth_chart

    by = beside.by if isinstance(beside.by, str) and beside.by in GROWS else "length"
    kept = "one page size" if keeping == "uniform" else ""
    sized = _without(plan, budget_gib=None, keep_free=0, weights_dtype=None, page_tokens=1)
    words = {
        "headline": headline_card(plan, keeping),
        "arithmetic": arithmetic_card(plan),
        "fits": Markup("{}{}").format(fits_card(plan), engine_card(plan)),
        "figures": figures_card(as_built, plan, keeping),
    }
    grows = (by, kept, _key(*beside.measured), _growing(plan, by), *(_growing(one, by) for one in compared))
    return {
        **{name: (_key(card), partial(str, card)) for name, card in words.items()},
        "growth": (
            _key(*grows),
            lambda: growth_chart(plan, by, measured=beside.measured, others=compared, kept=kept),
        ),
        "layers": (sized, lambda: layer_chart(plan)),
        "sharing": (sized, lambda: sharing_chart(plan)),
    }


def _growing(plan: MemoryPlan, by: str) -> str:
    """What a growth chart depends on: with length on its axis, the asked length only where it is beyond all others."""
    from kvdemo.charts.memory_growth_lines import NO_LIMIT_TOKENS

    usual = max(plan.architecture.context_limit or NO_LIMIT_TOKENS, 1024)
    length = 1 if by == "length" and plan.request.seq_len <= usual else plan.request.seq_len
    return _without(plan, keep_free=0, page_tokens=1, seq_len=length)


def _without(plan: MemoryPlan, **usual: Any) -> str:
    """A plan's model and request, with `usual` in place of what makes no difference."""
    return _key(plan.architecture, replace(plan.request, **usual))


def _key(*values: Hashable) -> str:
    """Equal for equal values, in this process."""
    return f"{hash(values):x}"
