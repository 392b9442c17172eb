"""Below each question's form: headline, what streams, figures, table, the answer to take away. Lays out and wires.

Every question has an area of its own, so that its result stays while another question is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.components.exports import Exports, saved
from kvdemo.components.form_values import Question
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT, MODEL, owner_of, unhurried
from kvdemo.facts.questions import GrowthResult, PromptSetResult
from kvdemo.ui.compare import runs as compare_runs
from kvdemo.ui.compare.change import change_card
from kvdemo.ui.compare.files import FILES, content_of
from kvdemo.ui.compare.results import charts, empty_result
from kvdemo.ui.compare.runs import CompareView

__all__ = ["Area", "build_area", "place_of", "wire_area"]

ALONG = [("with the answer", "new_tokens"), ("with the prompt", "prompt_tokens")]


def place_of(question: Question) -> str:
    """Where on the page the question's runs belong: Stop in one question leaves the others alone."""
    return f"compare/{question.key}"


@dataclass(frozen=True, slots=True)
class Area:
    """A question's parts below its form."""

    question: Question
    notice: gr.Markdown
    start: gr.Button
    stop: gr.Button
    headline: gr.Markdown
    live: gr.Markdown
    verdict: gr.Markdown
    tables: gr.Markdown
    drawn: gr.Column
    plots: tuple[gr.Plot, ...]
    along: gr.Radio | None
    beside_baseline: gr.Radio | None
    answer: gr.Column
    arm: gr.Radio
    change: gr.Markdown
    files: tuple[gr.Button, ...]
    download: gr.DownloadButton
    saved: gr.Markdown
    beside: gr.UploadButton
    result: gr.State

    @property
    def outputs(self) -> list[Any]:
        pickers = [part for part in (self.beside_baseline,) if part is not None]
        texts = [self.notice, self.headline, self.live, self.verdict, self.tables]
        return [
            *texts,
            self.result,
            self.drawn,
            *self.plots,
            *pickers,
            self.answer,
            self.arm,
            self.change,
            self.start,
            self.stop,
        ]

    def updates(self, view: CompareView) -> list[Any]:
        """The view as values of `outputs`; what follows from its result is shown or hidden with it."""
        texts = [view.notice, view.headline, view.live, view.verdict, view.tables]
        if view.running is None:
            return [*texts, *(gr.skip() for _ in self.outputs[len(texts) :])]
        buttons = [gr.update(visible=not view.running), gr.update(visible=view.running)]
        if view.arms is not None and not isinstance(view.arms, tuple):  # a refusal: what stands there stays
            return [*texts, *(gr.skip() for _ in self.outputs[len(texts) : -2]), *buttons]
        has_charts = view.charts is not None and any(figure is not None for figure in view.charts)
        has_result = view.result is not None
        plots: list[Any] = [gr.skip() for _ in self.plots]
        if has_charts:
            plots = [gr.update(value=figure, visible=figure is not None) for figure in view.charts or ()]
        choices, chosen = view.arms or ([], None)
        picker = gr.update(choices=choices[1:], value=choices[1][1] if choices[1:] else None, visible=len(choices) > 2)
        return [
            *texts,
            view.result,
            gr.update(visible=has_charts),
            *plots,
            *([picker] if self.beside_baseline is not None else []),
            gr.update(visible=has_result),
            gr.update(choices=choices, value=chosen, visible=bool(choices)),
            view.change,
            *buttons,
        ]


def build_area(
    question: Question, notice_place: gr.Markdown, start: gr.Button, stop: gr.Button, pickers: Sequence[str] = ()
) -> Area:
    """Lay the area out in the current Blocks. pickers: "along" and "candidate", for figures of which one is shown."""
    key = question.key
    headline = fragment(empty_result(question.empty), elem_id=f"compare-{key}-headline")
    live = fragment(elem_id=f"compare-{key}-live")
    along = beside = None
    with gr.Column(visible=False, elem_id=f"compare-{key}-charts", elem_classes="kv-drawn") as drawn:
        if pickers:
            with gr.Row(elem_classes="kv-pickers"):
                if "along" in pickers:
                    along = gr.Radio(
                        ALONG, value="new_tokens", label="How does it grow", elem_id=f"compare-{key}-along"
                    )
                if "candidate" in pickers:
                    beside = gr.Radio(
                        [], label="Which one, beside the first", visible=False, elem_id=f"compare-{key}-candidate"
                    )
        plots: list[gr.Plot] = []
        for first in range(0, len(question.charts), 2):
            with gr.Row(elem_classes="kv-charts"):
                for name in question.charts[first : first + 2]:
                    with gr.Column(elem_classes="kv-card kv-chart", min_width=300):
                        plots.append(gr.Plot(show_label=False, container=False, elem_id=f"compare-{key}-{name}"))
                if first + 1 == len(question.charts) > 1:  # the last one stands alone: the verdict beside it
                    with gr.Column(min_width=300, elem_classes="kv-beside-chart"):
                        verdict = fragment(elem_id=f"compare-{key}-verdict")
        if len(question.charts) == 1 or len(question.charts) % 2 == 0:
            verdict = fragment(elem_id=f"compare-{key}-verdict")
    tables = fragment(elem_id=f"compare-{key}-tables")
    with gr.Column(visible=False, elem_id=f"compare-{key}-answer", elem_classes="kv-card kv-answer-card") as answer:
        arm = gr.Radio([], label="Which one do you choose?", elem_id=f"compare-{key}-arm")
        change = fragment(elem_id=f"compare-{key}-change")
        with gr.Row(elem_classes="kv-share"):
            files = tuple(
                gr.Button(words, variant=variant, scale=0, min_width=90, elem_id=f"compare-{key}-{kind}")
                for (kind, words, _), variant in zip(FILES, ("primary", *["secondary"] * len(FILES)), strict=False)
            )
            download = gr.DownloadButton("Download", elem_id=f"compare-{key}-download", elem_classes="kv-download")
            saved = fragment(elem_id=f"compare-{key}-saved")
            second = gr.UploadButton(
                "Open another beside this one",
                type="filepath",
                file_types=[".json"],
                scale=0,
                min_width=90,
                elem_id=f"compare-{key}-beside",
            )
    return Area(
        question=question,
        notice=notice_place,
        start=start,
        stop=stop,
        headline=headline,
        live=live,
        verdict=verdict,
        tables=tables,
        drawn=drawn,
        plots=tuple(plots),
        along=along,
        beside_baseline=beside,
        answer=answer,
        arm=arm,
        change=change,
        files=files,
        download=download,
        saved=saved,
        beside=second,
        result=gr.State(None),
    )


def wire_area(area: Area, backend: Any, exports: Exports, form: list[Any]) -> None:
    """Run, Stop, the choice of an arm, what the figures show, and the files."""
    ran = area.start.click(_run(area, backend), form, area.outputs, **MODEL)
    ran.failure(_failed(area), None, area.outputs, **LIGHT)
    area.stop.click(_stop(area, backend), **LIGHT)
    area.arm.input(_choose(backend), [area.result, area.arm], area.change, **LIGHT)
    pickers = [part for part in (area.along, area.beside_baseline) if part is not None]
    if pickers:
        gr.on([part.input for part in pickers], _redraw(area), [area.result, *pickers], [*area.plots], **LIGHT)
    for (kind, _, suffix), button in zip(FILES, area.files, strict=True):
        button.click(
            _saved(backend, exports, area.question.key, kind, suffix),
            [area.result, area.arm],
            [area.download, area.saved],
            **LIGHT,
        )


def _run(area: Area, backend: Any) -> Callable[..., Iterator[list[Any]]]:
    def run(request: gr.Request, *form: Any) -> Iterator[list[Any]]:
        views = compare_runs.run(backend, area.question, form, owner_of(request, place_of(area.question)))
        for view in unhurried(views):
            yield area.updates(view)

    return run


def _failed(area: Area) -> Callable[[], list[Any]]:
    def failed() -> list[Any]:
        return area.updates(compare_runs.failed(area.question))

    return failed


def _stop(area: Area, backend: Any) -> Callable[..., None]:
    def stop(request: gr.Request) -> None:
        backend.stop(owner_of(request, place_of(area.question)))

    return stop


def _choose(backend: Any) -> Callable[..., str]:
    def choose(result: Any, chosen: Any) -> str:
        return "" if result is None else change_card(backend, result, chosen)

    return choose


def _redraw(area: Area) -> Callable[..., list[Any]]:
    def redraw(result: Any, *picked: Any) -> list[Any]:
        """The figures again, along another length or for another arm."""
        if not isinstance(result, GrowthResult | PromptSetResult):
            return [gr.skip() for _ in area.plots]
        along = picked[0] if area.along is not None else "new_tokens"
        candidate = picked[-1] if area.beside_baseline is not None else None
        known = result.spec.strategies[1:]
        figures = charts(result, along, candidate if candidate in known else None)
        return [gr.update(value=figure, visible=figure is not None) for figure in figures]

    return redraw


def _saved(backend: Any, exports: Exports, key: str, kind: str, suffix: str) -> Callable[..., list[Any]]:
    def save(result: Any, chosen: Any) -> list[Any]:
        if result is None:
            return [gr.skip(), gr.skip()]
        return saved(exports, f"kvdemo-{key}", suffix, lambda: content_of(kind, backend, result, chosen))

    return save
