"""The tab Memory: how big the cache gets, for any model, length and number of users. Wires what layout.py lays out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.components.wiring import LIGHT, MODEL, Updates, bound, owner_of, stopping, unhurried, updates
from kvdemo.experiments.question import Starts
from kvdemo.facts.model import Loading
from kvdemo.facts.plans import USUAL_BUDGET, Budget
from kvdemo.settings import Settings
from kvdemo.ui.memory.form import slider_place
from kvdemo.ui.memory.layout import build
from kvdemo.ui.memory.links import asked_by
from kvdemo.ui.memory.measured import measure as measured_caches
from kvdemo.ui.memory.model_fields import wire_models
from kvdemo.ui.memory.models import LOADED
from kvdemo.ui.memory.parts import MemoryParts
from kvdemo.ui.memory.planning import plan, planned
from kvdemo.ui.memory.words import budget_line

__all__ = ["PLACE", "budget_known", "build_memory_tab", "came", "linked_values", "seen", "seen_on_arrival", "starts"]

PLACE = "memory"


def build_memory_tab(backend: Backend, settings: Settings) -> MemoryParts:
    """Lay out the tab inside the current Blocks and wire its events."""
    parts = build(backend, settings.mode)
    model, seq_len, slider = parts.choice["model"], parts.form["seq_len"], parts.slider
    asking = [*parts.choice.values(), *parts.beside.values(), *parts.form.values()]
    planning = bound(plan, parts, backend)
    gr.on([part.change for part in asking], planning, parts.asked, parts.planned, trigger_mode="always_last", **LIGHT)
    wire_models(parts, backend, settings)
    slider.input(from_slider, slider, seq_len, trigger_mode="always_last", **LIGHT)
    seq_len.input(bound(to_slider, parts), seq_len, slider, trigger_mode="always_last", **LIGHT)
    weighing = parts.weigh.click(
        bound(measure, parts, backend),
        seq_len,
        [parts.line, parts.card, parts.measured, parts.weigh, parts.stop],
        **MODEL,
    )
    weighing.success(planning, parts.asked, parts.planned, **LIGHT)
    weighing.failure(bound(not_measuring, parts), None, [parts.weigh, parts.stop], **LIGHT)
    parts.stop.click(stopping(backend, PLACE), **LIGHT)
    model.change(bound(budget, parts, backend), [model, *parts.budget[:2]], parts.budget, **LIGHT)
    return parts


def budget(parts: MemoryParts, backend: Backend, model: Any, budget_gib: Any, usual_gib: Any) -> Updates:
    """The usual budget for this choice of a model, in the place of the one before; one that somebody typed stays."""
    usual = _usual(backend, model)
    if usual.gib == usual_gib:
        return updates({})
    untouched = {parts.form["budget_gib"]: usual.gib} if budget_gib == usual_gib else {}
    return {**untouched, parts.usual: usual.gib, parts.budget_from: budget_line(usual)}


def budget_known(
    parts: MemoryParts, backend: Backend, request: gr.Request, model: Any, budget_gib: Any, usual_gib: Any
) -> Updates:
    """The model has come, and with it the accelerator whose memory is the budget; a link has the last word."""
    if isinstance(backend.status(), Loading) or {"model", "hub", "layers", "budget"} & set(request.query_params):
        return updates({})
    return budget(parts, backend, model, budget_gib, usual_gib)


def seen(parts: MemoryParts, backend: Backend, *asked: Any) -> Updates:
    """Somebody has come to the tab."""
    return {parts.looked: True, **planned(parts, backend, *asked)}


def seen_on_arrival(parts: MemoryParts, backend: Backend, request: gr.Request, *asked: Any) -> Updates:
    """The page was opened with this tab in front."""
    return seen(parts, backend, *asked) if request.query_params.get("tab") == "memory" else updates({})


def came(parts: MemoryParts, backend: Backend, looked: bool, *asked: Any) -> Updates:
    """The model has come while Memory was open: draw it."""
    return updates({} if not looked or isinstance(backend.status(), Loading) else planned(parts, backend, *asked))


def linked_values(parts: MemoryParts, backend: Backend, settings: Settings, query: Mapping[str, Any]) -> Updates:
    """The form that the address asks for, and what in it could not be read."""
    machine = backend.usual_budget()
    asked = asked_by(query, backend.catalogue(), hub=settings.mode == "local", machine_gib=machine.gib)
    words = " ".join(f"{problem}." for problem in asked.problems)
    notice = (
        Markup('<div class="kv-notice" role="alert">The link could not be read as a whole. {}</div>').format(
            text(words)
        )
        if words
        else ""
    )
    usual = _usual(backend, asked.choice.model)
    return {
        parts.link_notice: notice,
        parts.slider: slider_place(asked.form.seq_len),
        **{part: getattr(asked.choice, name) for name, part in parts.choice.items()},
        parts.beside["by"]: asked.beside.by,
        parts.beside["models"]: list(asked.beside.models),
        **{part: getattr(asked.form, name) for name, part in parts.form.items()},
        parts.usual: usual.gib,
        parts.budget_from: budget_line(usual),
    }


def starts(parts: MemoryParts) -> Starts:
    """Where the form starts from, once somebody has said what the model is wanted for."""
    return (
        (parts.form["seq_len"], lambda wanted: wanted.longest_tokens),
        (parts.slider, lambda wanted: slider_place(wanted.longest_tokens)),
        (parts.form["batch_size"], lambda wanted: wanted.at_once),
        (parts.form["budget_gib"], lambda wanted: wanted.memory_gib),
    )


def from_slider(power: float) -> int:
    """A length with three figures, as people say them; powers of two stay exact."""
    exact = round(2**power)
    if abs(power - round(power)) < 1e-9 or exact < 1000:
        return exact
    digits = len(str(exact)) - 3
    return round(exact, -digits)


def to_slider(parts: MemoryParts, seq_len: Any) -> Updates:
    """The place of a typed length; what is no length moves nothing."""
    place = slider_place(seq_len)
    return updates({} if place is None else {parts.slider: place})


def measure(parts: MemoryParts, backend: Backend, seq_len: Any, request: gr.Request) -> Iterator[Updates]:
    """Caches of the loaded model, filled and weighed."""
    for now in unhurried(measured_caches(backend, owner_of(request, PLACE), seq_len)):
        found = {parts.card: now.card, parts.measured: now.points}
        changed = {part: value for part, value in found.items() if value is not None}
        yield {parts.line: now.line, **changed, **_buttons(parts, running=not now.done)}


def not_measuring(parts: MemoryParts) -> Updates:
    """After a fault of ours."""
    return _buttons(parts, running=False)


def _usual(backend: Backend, model: Any) -> Budget:
    return backend.usual_budget() if model == LOADED else USUAL_BUDGET


def _buttons(parts: MemoryParts, *, running: bool) -> Updates:
    return {parts.weigh: gr.update(visible=not running), parts.stop: gr.update(visible=running)}
