"""The tab Memory: how big the cache gets, for any model, length and number of users. Lays out and wires."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.errors import KvdemoError
from kvdemo.facts.plans import CACHE_DTYPES, Architecture
from kvdemo.settings import Settings
from kvdemo.ui import memory_plans
from kvdemo.ui.markup import fragment
from kvdemo.ui.memory_plans import AS_MODEL, LOADED, LONGEST_LOG2, PASTED, SHORTEST_LOG2, MemoryForm
from kvdemo.ui.wiring import LIGHT, MODEL, SLOW, owner_of, stopping

__all__ = ["PLACE", "MemoryTab", "build_memory_tab"]

PLACE = "memory"
SEQ_LEN, BUDGET_GIB = 4096, 80
GROWS = [("length", "length"), ("users", "users"), ("layers", "layers"), ("KV heads", "heads")]


@dataclass(frozen=True, slots=True)
class MemoryTab:
    """What the page needs of the tab: what to do when it is opened, or when the model has come."""

    show: Callable[..., list[Any]]
    inputs: list[Any]
    outputs: list[Any]
    model: gr.Dropdown
    seq_len: gr.Number
    batch: gr.Number


def build_memory_tab(backend: Any, settings: Settings) -> MemoryTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    geometry, measured = gr.State(None), gr.State(())
    models = [
        ("The loaded model", LOADED),
        *((name, name) for name in backend.catalogue()),
        ("A pasted config.json", PASTED),
    ]
    with gr.Row(elem_classes="kv-columns", elem_id="memory-columns"):
        with gr.Column(scale=3, min_width=260, elem_classes="kv-card", elem_id="memory-form"):
            model = gr.Dropdown(models, value=LOADED, label="Model", elem_id="memory-model")
            config = gr.Textbox(
                label="config.json",
                lines=6,
                max_lines=12,
                placeholder="{ ... }",
                visible=False,
                elem_id="memory-config",
            )
            read = gr.Button("Read this config", visible=False, elem_id="memory-read")
            about = fragment(elem_id="memory-about")
            seq_len = gr.Number(
                SEQ_LEN, label="Sequence length, tokens", precision=0, minimum=1, elem_id="memory-length"
            )
            with gr.Column(elem_id="memory-slider-box"):
                slider = gr.Slider(
                    SHORTEST_LOG2,
                    LONGEST_LOG2,
                    value=math.log2(SEQ_LEN),
                    step=0.05,
                    label="Sequence length as a power of two",
                    show_label=False,
                    container=False,
                    elem_id="memory-slider",
                )
                mark = fragment(memory_plans.limit_mark(None), elem_id="memory-limit")
            batch = gr.Number(1, label="Requests at once", precision=0, minimum=1, elem_id="memory-batch")
            dtype = gr.Dropdown(
                [AS_MODEL, *CACHE_DTYPES], value=AS_MODEL, label="Cache dtype", filterable=False, elem_id="memory-dtype"
            )
            with gr.Row(elem_id="memory-budget-line"):
                budget = gr.Number(BUDGET_GIB, label="Budget, GiB", minimum=0, min_width=110, elem_id="memory-budget")
                free = gr.Number(10, label="Keep free, %", minimum=0, maximum=99, min_width=90, elem_id="memory-free")
            with gr.Accordion("More settings", open=False, elem_id="memory-settings", elem_classes="kv-more"):
                weights = gr.Dropdown(
                    [AS_MODEL, *CACHE_DTYPES, "int4"],
                    value=AS_MODEL,
                    label="Weights dtype",
                    filterable=False,
                    elem_id="memory-weights",
                )
                parallel = gr.Number(
                    1, label="Devices (tensor parallel)", precision=0, minimum=1, elem_id="memory-parallel"
                )
            weigh = gr.Button("Measure on the loaded model", elem_id="memory-measure")
            stop = gr.Button("Stop", visible=False, elem_id="memory-stop")
        with gr.Column(scale=10, min_width=320, elem_id="memory-results"):
            notice = fragment(elem_id="memory-notice")
            headline = fragment(elem_id="memory-headline")
            with gr.Row(elem_classes="kv-charts"):
                with gr.Column(scale=2, min_width=300, elem_classes="kv-card kv-chart"):
                    by = gr.Radio(
                        GROWS,
                        value="length",
                        label="Grows with",
                        show_label=False,
                        container=False,
                        elem_id="memory-by",
                    )
                    growth = gr.Plot(show_label=False, container=False, elem_id="memory-growth")
                with gr.Column(scale=1, min_width=260, elem_classes="kv-card kv-chart"):
                    layers = gr.Plot(show_label=False, container=False, elem_id="memory-layers")
            with gr.Row(elem_classes="kv-charts"):
                with gr.Column(scale=1, min_width=300):
                    arithmetic = fragment(elem_id="memory-arithmetic")
                with gr.Column(scale=1, min_width=300):
                    fits = fragment(elem_id="memory-fits")
            with gr.Row(elem_classes="kv-charts"):
                with gr.Column(scale=1, min_width=300, elem_classes="kv-card kv-chart"):
                    sharing = gr.Plot(show_label=False, container=False, elem_id="memory-sharing")
                with gr.Column(scale=1, min_width=300):
                    figures = fragment(elem_id="memory-figures")
            weighed = fragment(elem_id="memory-measured")

    form = [seq_len, batch, dtype, budget, free, weights, parallel]
    drawn = [notice, headline, growth, layers, arithmetic, fits, sharing, figures]
    plan_inputs, chosen_outputs = [geometry, measured, by, *form], [geometry, about, mark]
    show, show_inputs, show_outputs = _show(backend), [model, config, measured, by, *form], [*chosen_outputs, *drawn]
    model.change(_wants_config, model, [config, read], **LIGHT)
    model.change(show, show_inputs, show_outputs, trigger_mode="always_last", **LIGHT)
    read.click(show, show_inputs, show_outputs, **SLOW)
    gr.on(
        [item.change for item in (*form, by)], _plan(backend), plan_inputs, drawn, trigger_mode="always_last", **LIGHT
    )
    slider.input(_from_slider, slider, seq_len, trigger_mode="always_last", **LIGHT)
    seq_len.input(_to_slider, seq_len, slider, trigger_mode="always_last", **LIGHT)
    weighing = weigh.click(_measure(backend), None, [weighed, measured, weigh, stop], **MODEL)
    weighing.success(_plan(backend), plan_inputs, drawn, **LIGHT)
    weighing.failure(lambda: [gr.update(visible=True), gr.update(visible=False)], None, [weigh, stop], **LIGHT)
    stop.click(stopping(backend, PLACE), **LIGHT)
    return MemoryTab(show, show_inputs, show_outputs, model, seq_len, batch)


def _show(backend: Any) -> Callable[..., list[Any]]:
    def show(model: str, config: str, measured: Any, by: str, *form: Any) -> list[Any]:
        """The chosen model's geometry, and its plan."""
        if model == PASTED and not (isinstance(config, str) and config.strip()):
            return [gr.skip() for _ in range(11)]
        try:
            geometry = memory_plans.architecture(backend, model, config)
        except KvdemoError as error:
            return [gr.skip(), gr.skip(), gr.skip(), memory_plans.problem(error), *(gr.skip() for _ in range(7))]
        points = measured if model == LOADED else ()
        view = memory_plans.plan_view(backend, geometry, MemoryForm(*form), by, points)
        return [geometry, *memory_plans.chosen(geometry), *view.parts()]

    return show


def _plan(backend: Any) -> Callable[..., list[Any]]:
    def plan(geometry: Architecture | None, measured: Any, by: str, *form: Any) -> list[Any]:
        points = measured if measured and geometry == backend.architecture() else ()
        return memory_plans.plan_view(backend, geometry, MemoryForm(*form), by, points).parts()

    return plan


def _wants_config(model: str) -> list[Any]:
    return [gr.update(visible=model == PASTED), gr.update(visible=model == PASTED)]


def _from_slider(power: float) -> int:
    """A length with three figures, as people say them; powers of two stay exact."""
    exact = round(2**power)
    if abs(power - round(power)) < 1e-9 or exact < 1000:
        return exact
    digits = len(str(exact)) - 3
    return round(exact, -digits)


def _to_slider(seq_len: float | None) -> Any:
    if not seq_len or seq_len < 1:
        return gr.skip()
    return min(LONGEST_LOG2, max(SHORTEST_LOG2, round(math.log2(seq_len), 2)))


def _measure(backend: Any) -> Callable[..., Iterator[list[Any]]]:
    def measure(request: gr.Request) -> Iterator[list[Any]]:
        running = [gr.update(visible=False), gr.update(visible=True)]
        for drawn, points in memory_plans.measure(backend, owner_of(request, PLACE)):
            done = points is not None or "kv-notice" in drawn
            shown = [gr.update(visible=True), gr.update(visible=False)] if done else running
            yield [drawn, points if points is not None else gr.skip(), *shown]

    return measure
