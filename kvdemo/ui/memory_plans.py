"""What the tab Memory shows for a plan: words, cards and charts, of which only what has changed is sent.

Handlers take plain values, ask the backend and give back a MemoryView; the tab maps it to components.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import gradio as gr

from kvdemo.errors import KvdemoError, ModelNotReady, ModelUnavailable
from kvdemo.facts.plans import Architecture, MeasuredPoint, MemoryPlan
from kvdemo.ui.markup import text
from kvdemo.ui.memory_cards import arithmetic_card, figures_card, fits_card
from kvdemo.ui.memory_form import GROWS, MemoryForm
from kvdemo.ui.memory_models import others
from kvdemo.ui.memory_words import asked_words, headline_card

__all__ = ["Beside", "MemoryView", "hint", "plan_view", "problem"]

LAST = "said"
"""Under this name the state of what is shown keeps the words of the last good result."""

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


@dataclass(frozen=True, slots=True)
class MemoryView:
    """What the tab shows next, in the order of its outputs; gr.skip() leaves a part as it is."""

    shown: Any = field(default_factory=gr.skip)
    notice: Any = field(default_factory=gr.skip)
    headline: Any = field(default_factory=gr.skip)
    growth: Any = field(default_factory=gr.skip)
    layers: Any = field(default_factory=gr.skip)
    arithmetic: Any = field(default_factory=gr.skip)
    fits: Any = field(default_factory=gr.skip)
    sharing: Any = field(default_factory=gr.skip)
    figures: Any = field(default_factory=gr.skip)

    def parts(self) -> list[Any]:
        return [getattr(self, one.name) for one in fields(self)]


def plan_view(
    backend: Any, geometry: Architecture | None, form: MemoryForm, beside: Beside, shown: Shown | None = None
) -> MemoryView:
    """The plan for this form, or why there is none; then what stood there stays, marked as the last good result.

    shown   what the visitor's page shows already, by part: what has not changed is not sent again
    """
    if geometry is None:
        return MemoryView()
    try:
        request = form.request(geometry)
        uniform = form.keeping == "uniform"
        plan = backend.plan_of(geometry, request, one_page_size=uniform)
        as_built = backend.plan_of(geometry, request) if uniform else plan
        compared = [
            backend.plan_of(one, form.request(one), one_page_size=uniform)
            for one in others(backend, beside.models, geometry)
        ]
    except KvdemoError as error:
        return MemoryView(notice=problem(error, shown))
    parts = _drawn(plan, as_built, form.keeping, beside, compared)
    return _changed({**parts, "notice": ""}, asked_words(plan), shown or {})


def problem(error: KvdemoError, shown: Shown | None = None) -> str:
    """A refusal, and which result stays below it."""
    if isinstance(error, ModelNotReady | ModelUnavailable):
        return _notice(error, "Known models work already: choose one.", shown, hinted=isinstance(error, ModelNotReady))
    return _notice(error, "", shown)


def hint(words: str, shown: Shown | None = None) -> str:
    """What is to be done before there is something new to show."""
    return _notice(words, "", shown, hinted=True)


def _notice(what: object, more: str, shown: Shown | None, *, hinted: bool = False) -> str:
    """Its class dims what is below, which belongs to other values than those in the form."""
    last = (shown or {}).get(LAST)
    stays = f"Below: the last good result, {last}." if last else ""
    kind, role = ("kv-notice kv-notice-hint", "status") if hinted else ("kv-notice", "alert")
    small = " ".join(part for part in (more, stays) if part)
    return f'<div class="{kind} kv-stale" role="{role}">{text(what)} <span class="kv-small">{text(small)}</span></div>'


def _changed(parts: Mapping[str, Any], said: str, shown: Shown) -> MemoryView:
    """A view of the parts that differ from what is shown."""
    digests = {name: _digest(part) for name, part in parts.items()}
    new = {name: part for name, part in parts.items() if digests[name] != shown.get(name) or name == "notice"}
    return MemoryView(shown={**digests, LAST: said}, **new)


def _digest(part: Any) -> str:
    content = part if isinstance(part, str) else part.to_json()
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _drawn(
    plan: MemoryPlan, as_built: MemoryPlan, keeping: str, beside: Beside, compared: Sequence[MemoryPlan]
) -> dict[str, Any]:
    from kvdemo.reports.growth_chart import growth_chart
    from kvdemo.reports.layer_charts import layer_chart, sharing_chart

    by = beside.by if isinstance(beside.by, str) and beside.by in GROWS else "length"
    return {
        "headline": headline_card(plan, keeping),
        "growth": growth_chart(plan, by, measured=beside.measured, others=compared),
        "layers": layer_chart(plan),
        "arithmetic": arithmetic_card(plan),
        "fits": fits_card(plan),
        "sharing": sharing_chart(plan),
        "figures": figures_card(as_built),
    }
