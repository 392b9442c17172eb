"""Two results side by side: before and after, this machine and that one.

Headlines, tables, two figures of each on one scale, and in what the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.markup import fragment, table, text
from kvdemo.components.wiring import Updates
from kvdemo.experiments.question import AnyResult
from kvdemo.questions.documents import any_document
from kvdemo.questions.table import Table, question_of
from kvdemo.ui.compare.results import headline_card, measured_where, result_tables

__all__ = ["Beside", "beside_layout", "differences", "hidden", "side_by_side"]

NUM_CHARTS = 2
COMPARED = (
    ("model", "name", "Model"),
    ("model", "dtype", "dtype"),
    ("model", "device", "Device"),
    ("model", "attention", "Attention"),
    ("environment", "processor", "Processor"),
    ("environment", "accelerator", "Accelerator"),
    ("environment", "cpu_cores", "CPU cores"),
    ("environment", "threads", "Threads"),
    ("environment", "torch", "torch"),
    ("environment", "transformers", "transformers"),
    ("environment", "kvdemo", "kvdemo"),
    ("environment", "commit", "Commit"),
    ("environment", "measured_at", "Measured at"),
    ("environment", "on_page", "Measured on a page"),
    ("request", "prompt", "Prompt"),
    ("request", "prompt_tokens", "Prompt tokens"),
    ("request", "strategies", "Strategies"),
    ("request", "noise", "Beside itself"),
    ("request", "max_new_tokens", "New tokens"),
    ("request", "rounds", "Rounds"),
)


@dataclass(frozen=True, slots=True)
class Beside:
    """The parts, in pairs: the one on the left and the one on the right."""

    place: gr.Column
    close: gr.Button
    apart: gr.Markdown
    texts: tuple[gr.Markdown, ...]
    plots: tuple[gr.Plot, ...]

    @property
    def outputs(self) -> list[Any]:
        return [self.place, self.apart, *self.texts, *self.plots]


def beside_layout() -> Beside:
    """Lay it out in the current Blocks, hidden."""
    with gr.Column(visible=False, elem_id="compare-beside", elem_classes="kv-drawn") as place:
        with gr.Row(elem_classes="kv-share"):
            fragment(Markup('<div><h2 class="kv-card-title">Side by side</h2></div>'), elem_id="compare-beside-title")
            close = gr.Button("Close", scale=0, min_width=90, elem_id="compare-beside-close")
        texts, plots = [], []
        for name in ("headline", "table"):
            with gr.Row(elem_classes="kv-charts"):
                for side in ("one", "other"):
                    with gr.Column(min_width=300, elem_classes="kv-beside-chart"):
                        texts.append(fragment(elem_id=f"compare-beside-{name}-{side}"))
        for at in range(NUM_CHARTS):
            with gr.Row(elem_classes="kv-charts"):
                for side in ("one", "other"):
                    with gr.Column(elem_classes="kv-card kv-chart", min_width=300):
                        plots.append(gr.Plot(show_label=False, container=False, elem_id=f"compare-beside-{at}-{side}"))
        apart = fragment(elem_id="compare-beside-apart")
    return Beside(place, close, apart, tuple(texts), tuple(plots))


def side_by_side(parts: Beside, one: AnyResult, other: AnyResult, table: Table) -> Updates:
    """What the parts show of these two results."""
    both = [(question_of(result, table), result) for result in (one, other)]
    heads = [
        headline_card(question, result, f"{name}: {measured_where(result)}")
        for name, (question, result) in zip("AB", both, strict=True)
    ]
    tables = [result_tables(question, result) for question, result in both]
    drawn = [[*question.draw(result, {}), None, None][:NUM_CHARTS] for question, result in both]
    figures: list[Any] = []
    for pair in zip(*drawn, strict=True):
        if both[0][0] is both[1][0]:
            _on_one_scale(pair)
        figures += pair
    return {
        parts.place: gr.update(visible=True),
        parts.apart: differences(one, other, table),
        **dict(zip(parts.texts, [*heads, *tables], strict=True)),
        **{
            plot: gr.update(value=figure, visible=figure is not None)
            for plot, figure in zip(parts.plots, figures, strict=True)
        },
    }


def hidden(parts: Beside) -> Updates:
    """Everything put away."""
    return {
        parts.place: gr.update(visible=False),
        parts.apart: "",
        **dict.fromkeys(parts.texts, ""),
        **{plot: gr.update(value=None, visible=False) for plot in parts.plots},
    }


def differences(one: AnyResult, other: AnyResult, table_of: Table) -> str:
    """In what do the two differ, beside the times? A table, so that nobody takes one cause for another."""
    left, right = _facts(one, table_of), _facts(other, table_of)
    rows = [
        [text(words), text(_short(left[group].get(name))), text(_short(right[group].get(name)))]
        for group, name, words in COMPARED
        if left[group].get(name) != right[group].get(name)
    ]
    shown = table(["In what they differ", "A", "B"], rows, caption="In what the two differ") if rows else ""
    return Markup('<div class="kv-card kv-tables">{}</div>').format(
        shown or Markup("<p>Model, machine, versions and request are the same.</p>")
    )


def _facts(result: AnyResult, table_of: Table) -> dict[str, Any]:
    question = question_of(result, table_of)
    facts = any_document(result, table_of)
    lengths = sorted({run.prompt_tokens for _, run in question.runs(result) if run.prompt_tokens is not None})
    return {**facts, "request": {**facts["request"], "prompt_tokens": lengths}} if len(lengths) == 1 else facts


def _short(value: object) -> str:
    if value is None:
        return "none"
    words = ", ".join(str(part) for part in value) if isinstance(value, list) else str(value)
    return words if len(words) <= 80 else f"{words[:79]}…"


def _on_one_scale(figures: Sequence[Any]) -> None:
    """The same range on both, so that heights and lengths can be compared by eye."""
    known = [figure for figure in figures if figure is not None]
    if len(known) < 2:
        return
    for axis in ("xaxis", "yaxis"):
        ranges = [figure.layout[axis].range for figure in known]
        if any(found is None or found[0] > found[1] for found in ranges):
            continue
        common = [min(found[0] for found in ranges), max(found[1] for found in ranges)]
        for figure in known:
            figure.layout[axis].range = common
