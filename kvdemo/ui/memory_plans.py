"""What happens in the tab Memory: a model is chosen, a plan is made and drawn, caches of the loaded model are weighed.

Handlers take plain values, ask the backend and give back a MemoryView; the tab maps it to components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from kvdemo.errors import KvdemoError, ModelNotReady, ModelUnavailable
from kvdemo.facts.plans import CACHE_DTYPES, Architecture, MeasuredPoint, MemoryPlan, MemoryRequest
from kvdemo.facts.requests import MeasureSpec, checked_choice, checked_int, checked_number
from kvdemo.facts.units import format_count
from kvdemo.ui.markup import table, text
from kvdemo.ui.memory_words import arithmetic_card, figures_card, fits_card, headline_card, model_line

__all__ = ["LOADED", "PASTED", "MemoryForm", "MemoryView", "architecture", "limit_mark", "measure", "plan_view"]

LOADED, PASTED = "", "config.json"
AS_MODEL = "as the model"
SHORTEST_LOG2, LONGEST_LOG2 = 7, 20
MEASURED_LENGTHS = (32, 256, 1024)
MEASURED_STRATEGIES = ("dynamic", "static")


@dataclass(frozen=True, slots=True)
class MemoryForm:
    """The settings of a plan as they come from the form, unchecked."""

    seq_len: Any = 1024
    batch_size: Any = 1
    cache_dtype: Any = AS_MODEL
    budget_gib: Any = None
    keep_free_percent: Any = 10
    weights_dtype: Any = AS_MODEL
    tensor_parallel: Any = 1

    def request(self, architecture: Architecture) -> MemoryRequest:
        """Checked; InvalidRequest names the field."""
        own = architecture.dtype if architecture.dtype in CACHE_DTYPES else "bfloat16"
        dtype = (
            own if self.cache_dtype == AS_MODEL else checked_choice("cache dtype", self.cache_dtype, (*CACHE_DTYPES,))
        )
        weights = None if self.weights_dtype == AS_MODEL else self.weights_dtype
        return MemoryRequest(
            seq_len=checked_int("sequence length", self.seq_len, 1, 100_000_000),
            batch_size=checked_int("requests at once", self.batch_size, 1, 1_000_000),
            cache_dtype=dtype,
            weights_dtype=weights,
            budget_gib=self.budget_gib or None,
            keep_free=checked_number("keep free", self.keep_free_percent, 0, 99) / 100,
            tensor_parallel=checked_int("devices", self.tensor_parallel, 1, 1024),
        )


@dataclass(frozen=True, slots=True)
class MemoryView:
    """What the tab shows next, in the order of its outputs; gr.skip() leaves a part as it is."""

    notice: Any = field(default_factory=gr.skip)
    headline: Any = field(default_factory=gr.skip)
    growth: Any = field(default_factory=gr.skip)
    layers: Any = field(default_factory=gr.skip)
    arithmetic: Any = field(default_factory=gr.skip)
    fits: Any = field(default_factory=gr.skip)
    sharing: Any = field(default_factory=gr.skip)
    figures: Any = field(default_factory=gr.skip)

    def parts(self) -> list[Any]:
        return [
            self.notice,
            self.headline,
            self.growth,
            self.layers,
            self.arithmetic,
            self.fits,
            self.sharing,
            self.figures,
        ]


def architecture(backend: Any, model: object, config: object) -> Architecture:
    """The geometry of the chosen model; KvdemoError that says what to do where there is none."""
    if model == PASTED:
        return backend.architecture(None, config if isinstance(config, str) and config.strip() else "{}")
    return backend.architecture(None if model == LOADED else str(model))


def plan_view(
    backend: Any, geometry: Architecture | None, form: MemoryForm, by: str, measured: tuple[MeasuredPoint, ...] = ()
) -> MemoryView:
    """The plan for this form drawn, or why there is none; then what stood there stays, marked."""
    if geometry is None:
        return MemoryView()
    try:
        plan = backend.plan_of(geometry, form.request(geometry))
    except KvdemoError as error:
        return MemoryView(notice=problem(error))
    return _drawn(plan, by, measured)


def problem(error: KvdemoError) -> str:
    """A refusal, and what still works: the last good result stays below it."""
    missing = isinstance(error, ModelNotReady | ModelUnavailable)
    more = (
        "Known models work already: choose one."
        if missing
        else "What you see is the last result that could be computed."
    )
    kind = "kv-notice kv-notice-hint" if isinstance(error, ModelNotReady) else "kv-notice"
    return f'<div class="{kind}" role="alert">{text(error)} <span class="kv-small">{more}</span></div>'


def limit_mark(geometry: Architecture | None) -> str:
    """Where on the slider the model's own limit lies."""
    limit = geometry.context_limit if geometry else None
    if not limit or geometry is None:
        return '<div class="kv-limit"></div>'
    share = (math.log2(limit) - SHORTEST_LOG2) / (LONGEST_LOG2 - SHORTEST_LOG2)
    return (
        f'<div class="kv-limit"><span class="kv-limit-mark" style="left:{100 * min(max(share, 0), 1):.1f}%"></span>'
        f'<p class="kv-small">The model\'s own limit: {format_count(limit)} tokens</p></div>'
    )


def chosen(geometry: Architecture) -> list[Any]:
    """The model's line and its mark on the slider."""
    return [model_line(geometry), limit_mark(geometry)]


def measure(backend: Any, owner: str) -> Iterator[tuple[str, tuple[MeasuredPoint, ...] | None]]:
    """Fill caches of the loaded model and weigh them: a fragment after each, the points once all are there."""
    points: list[MeasuredPoint] = []
    try:
        limit = backend.describe().context_limit or MEASURED_LENGTHS[-1]
        lengths = tuple(length for length in MEASURED_LENGTHS if length < limit) or (2,)
        rows = {row.key: row for row in backend.strategies()}
        usable = tuple(key for key in MEASURED_STRATEGIES if rows[key].unavailable_reason is None)
        total = len(lengths) * len(usable)
        yield _measuring(0, total), None
        found = backend.measure_memory(MeasureSpec(lengths, usable), owner=owner)
        try:
            for point in found:
                points.append(point)
                yield _measuring(len(points), total), None
        finally:
            found.close()
    except KvdemoError as error:
        yield f'<div class="kv-notice" role="alert">{text(error)}</div>', None
        return
    yield measured_card(tuple(points), total), tuple(points)


def measured_card(points: tuple[MeasuredPoint, ...], planned: int) -> str:
    """Predicted and measured beside each other, in words and as a table; where they differ, layer by layer."""
    from kvdemo.reports.frames import differences_frame, measured_frame

    if not points:
        return '<div class="kv-card kv-measured"><p class="kv-said">Stopped before anything was measured.</p></div>'
    layers = [layer for point in points for layer in point.layers]
    exact = sum(layer.held_bytes == layer.predicted_bytes for layer in layers)
    apart = sum(abs(layer.held_bytes - layer.predicted_bytes) for layer in layers)
    per_cache = len(points[0].layers)
    words = (
        f"{per_cache} of {per_cache} layers hold exactly what was predicted, in {len(points)} measured caches: "
        "0 bytes difference."
        if exact == len(layers)
        else f"{exact} of {len(layers)} measured layers hold exactly what was predicted; {format_count(apart)} bytes differ."
    )
    stopped = "" if len(points) == planned else f"<p>Stopped after {len(points)} of {planned} caches.</p>"
    tables = _table(measured_frame(points), "Predicted and measured, one row per cache")
    differing = differences_frame(points)
    if len(differing):
        tables += f"<details><summary>Where they differ</summary>{_table(differing, 'Layers that differ')}</details>"
    return (
        f'<div class="kv-card kv-measured"><h2 class="kv-card-title">Measured on the loaded model</h2>'
        f'<p class="kv-said"><strong>{text(words)}</strong></p>{stopped}{tables}</div>'
    )


def _measuring(done: int, total: int) -> str:
    return (
        '<div class="kv-card kv-measured" role="status"><h2 class="kv-card-title">Measured on the loaded model</h2>'
        f'<p class="kv-said">Filling caches and weighing them: {done} of {total} done.</p></div>'
    )


def _drawn(plan: MemoryPlan, by: str, measured: tuple[MeasuredPoint, ...]) -> MemoryView:
    from kvdemo.reports.growth_chart import GROWS_WITH, growth_chart
    from kvdemo.reports.layer_charts import layer_chart, sharing_chart

    return MemoryView(
        notice="",
        headline=headline_card(plan),
        growth=growth_chart(plan, by if by in GROWS_WITH else "length", measured=measured),
        layers=layer_chart(plan),
        arithmetic=arithmetic_card(plan),
        fits=fits_card(plan),
        sharing=sharing_chart(plan),
        figures=figures_card(plan),
    )


def _table(frame: Any, caption: str) -> str:
    rows = [[text(value) for value in values] for values in frame.itertuples(index=False)]
    return table([text(name) for name in frame.columns], rows, caption=caption)
