"""Below each question's form: headline, what streams, figures, table, the answer to take away. Lays out and wires.

Every question has an area of its own, so that its result stays while another question is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.exports import Exports, saved
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT, MODEL, Updates, bound, owner_of, stopping, unhurried, updates
from kvdemo.experiments.question import WATCHED, Form, Question
from kvdemo.questions.table import Table
from kvdemo.questions.verdict import Readiness
from kvdemo.ui.compare import runs
from kvdemo.ui.compare.files import FILES, content_of
from kvdemo.ui.compare.keep_this import keep_card
from kvdemo.ui.compare.results import empty_result

__all__ = ["Area", "build_area", "place_of", "show", "wire_area"]


def place_of(question: Question[Any, Any]) -> str:
    """Where on the page the question's runs belong: Stop in one question leaves the others alone."""
    return f"compare/{question.key}"


@dataclass(frozen=True, slots=True)
class Area:
    """A question's parts, its form's among them.

    own         the result counts for a decision: it was run here, or somebody brought it; a recorded example does not
    readiness   the verdict on all of the visitor's results, as it stands in `ready` of every question
    """

    question: Question[Any, Any]
    form: Form
    headline: gr.Markdown
    ready: gr.Markdown
    live: gr.Markdown
    aside: gr.Markdown
    again: gr.Markdown
    tables: gr.Markdown
    drawn: gr.Column
    plots: tuple[gr.Plot, ...]
    pickers: tuple[gr.Radio, ...]
    answer: gr.Column
    arm: gr.Radio
    change: gr.Markdown
    files: tuple[gr.Button, ...]
    download: gr.DownloadButton
    saved: gr.Markdown
    beside: gr.UploadButton
    result: gr.State
    own: gr.State
    readiness: gr.State

    @property
    def outputs(self) -> list[Any]:
        """Everything that a view may change."""
        texts = [self.form.notice, self.headline, self.live, self.aside, self.again, self.tables, self.change]
        buttons = [self.form.start, self.form.stop, *(button for button, _ in self.form.asks)]
        return [*texts, self.result, self.own, self.drawn, *self.plots, *self.pickers, self.answer, self.arm, *buttons]


def show(area: Area, view: runs.View) -> Updates:
    """The view as values of the area's parts; what follows from its result is shown or hidden with it."""
    form = area.form
    if isinstance(view, runs.Running):
        going = {area.headline: view.headline, area.live: view.live}
        return going if not view.begun else {**_cleared(area), **going, form.notice: "", **_buttons(area, running=True)}
    if isinstance(view, runs.Refused):
        head = {} if view.headline is None else {area.headline: view.headline}
        return {form.notice: view.notice, **head, **_buttons(area, running=False)}
    page = area.question.page()
    picks = {
        radio: gr.update(choices=choices, value=choices[0][1] if choices else None, visible=len(choices) > 1)
        for radio, choices in (
            (radio, item.choices(view.result)) for radio, item in zip(area.pickers, page.pickers, strict=True)
        )
    }
    return {
        form.notice: "",
        area.headline: view.headline,
        area.live: view.live,
        area.aside: view.aside,
        area.again: view.again,
        area.tables: view.tables,
        area.change: view.change,
        area.result: view.result,
        area.own: view.own,
        area.drawn: gr.update(visible=any(figure is not None for figure in view.figures)),
        **_figures(area, view.figures),
        **picks,
        area.answer: gr.update(visible=True),
        area.arm: gr.update(choices=list(view.arms), value=view.chosen, visible=bool(view.arms)),
        **_buttons(area, running=False),
    }


def _cleared(area: Area) -> Updates:
    """What stood there belongs to another request."""
    return {
        **dict.fromkeys((area.aside, area.again, area.tables, area.change), ""),
        area.result: None,
        area.drawn: gr.update(visible=False),
        area.answer: gr.update(visible=False),
    }


def _buttons(area: Area, *, running: bool) -> Updates:
    asks = {button: gr.update(interactive=not running) for button, _ in area.form.asks}
    return {area.form.start: gr.update(visible=not running), area.form.stop: gr.update(visible=running), **asks}


def _figures(area: Area, figures: Any) -> Updates:
    return {
        plot: gr.update(value=figure, visible=figure is not None)
        for plot, figure in zip(area.plots, figures, strict=True)
    }


def build_area(question: Question[Any, Any], form: Form, unjudged: str, readiness: gr.State) -> Area:
    """Lay the area out in the current Blocks, below its form. unjudged: "Ready to decide?" before anything is known."""
    key, page = question.key, question.page()
    with gr.Row(elem_classes="kv-answer-row"):
        with gr.Column(scale=5, min_width=320, elem_classes="kv-answer-column"):
            headline = fragment(empty_result(question.empty), elem_id=f"compare-{key}-headline")
            live = fragment(elem_id=f"compare-{key}-live")
        with gr.Column(scale=3, min_width=320, elem_classes="kv-ready-column"):
            ready = fragment(unjudged, elem_id=f"compare-{key}-ready")
    again = fragment(elem_id=f"compare-{key}-replay")
    with gr.Column(visible=False, elem_id=f"compare-{key}-charts", elem_classes="kv-drawn") as drawn:
        with gr.Row(elem_classes="kv-pickers", visible=bool(page.pickers)):
            pickers = tuple(
                gr.Radio([], label=item.label, visible=False, elem_id=f"compare-{key}-{item.key}")
                for item in page.pickers
            )
        plots: list[gr.Plot] = []
        aside = None
        for first in range(0, len(page.figures), 2):
            with gr.Row(elem_classes="kv-charts"):
                for name in page.figures[first : first + 2]:
                    with gr.Column(elem_classes="kv-card kv-chart", min_width=300):
                        plots.append(gr.Plot(show_label=False, container=False, elem_id=f"compare-{key}-{name}"))
                if first + 1 == len(page.figures) > 1:  # the last one stands alone: the verdict beside it
                    with gr.Column(min_width=300, elem_classes="kv-beside-chart"):
                        aside = fragment(elem_id=f"compare-{key}-verdict")
        if aside is None:
            aside = fragment(elem_id=f"compare-{key}-verdict")
    tables = fragment(elem_id=f"compare-{key}-tables")
    with gr.Column(visible=False, elem_id=f"compare-{key}-answer", elem_classes="kv-card kv-answer-card") as answer:
        arm = gr.Radio([], label="Which one do you choose?", elem_id=f"compare-{key}-arm")
        change = fragment(elem_id=f"compare-{key}-change")
        with gr.Row(elem_classes="kv-share"):
            rows = "CSV, one row per run" if question.rows is None else f"CSV, one row per {question.unit[:-1]}"
            files = tuple(
                gr.Button(
                    rows if kind == "csv" else words,
                    variant=variant,
                    scale=0,
                    min_width=90,
                    elem_id=f"compare-{key}-{kind}",
                )
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
        form=form,
        headline=headline,
        ready=ready,
        live=live,
        aside=aside,
        again=again,
        tables=tables,
        drawn=drawn,
        plots=tuple(plots),
        pickers=pickers,
        answer=answer,
        arm=arm,
        change=change,
        files=files,
        download=download,
        saved=saved,
        beside=second,
        result=gr.State(None),
        own=gr.State(False),
        readiness=readiness,
    )


def wire_area(area: Area, backend: Backend, exports: Exports, table: Table) -> list[Any]:
    """Run, Stop, the choice of an arm, what the figures show, and the files. Gives back what ends with a result."""
    form = area.form
    runs_of_form = []
    ways = [(form.start, form.server, form.fields), *((button, [], fields) for button, fields in form.asks)]
    for button, server, fields in ways:
        ran = button.click(bound(run, area, backend, len(server)), [*server, *fields], area.outputs, **MODEL)
        ran.failure(bound(failed, area), None, area.outputs, **LIGHT)
        runs_of_form.append(ran)
    form.stop.click(stopping(backend, place_of(area.question)), **LIGHT)
    area.arm.input(bound(choose, area, backend), [area.result, area.arm], area.change, **LIGHT)
    if area.pickers:
        pickers = list(area.pickers)
        changed = [*area.plots, area.again]
        gr.on([part.input for part in pickers], bound(redraw, area), [area.result, *pickers], changed, **LIGHT)
    for (kind, _, suffix), button in zip(FILES, area.files, strict=True):
        saving = bound(save, area, backend, exports, table, kind, suffix)
        asked = [area.result, area.arm, area.own, area.readiness]
        button.click(saving, asked, [area.download, area.saved], **LIGHT)
    return runs_of_form


def run(area: Area, backend: Backend, of_server: int, request: gr.Request, *values: Any) -> Iterator[Updates]:
    """The form's question, answered."""
    server, fields = values[:of_server], values[of_server:]
    owner = owner_of(request, place_of(area.question))
    for view in unhurried(runs.run(backend, area.question, fields, owner, server)):
        yield show(area, view)


def failed(area: Area) -> Updates:
    return show(area, runs.failed(area.question))


def choose(area: Area, backend: Backend, result: Any, chosen: Any) -> str:
    """Keep this, and Go back, for another arm."""
    return "" if result is None else keep_card(backend, area.question, result, chosen)


def redraw(area: Area, result: Any, *picked: Any) -> Updates:
    """The figures again, along another length or for another arm; or another arm is watched again."""
    question = area.question
    if not isinstance(result, question.result):
        return updates({})
    keys = [item.key for item in question.page().pickers]
    chosen = dict(zip(keys, picked, strict=True))
    if keys == [WATCHED]:
        arm = runs.known_picks(question, result, chosen).get(WATCHED)
        return updates({area.again: runs.replayed(question, result, arm)} if arm is not None else {})
    return _figures(area, runs.redrawn(question, result, chosen))


def save(
    area: Area,
    backend: Backend,
    exports: Exports,
    table: Table,
    kind: str,
    suffix: str,
    result: Any,
    chosen: Any,
    own: Any = False,
    readiness: Readiness | None = None,
) -> Updates:
    """The file, and its name or why there is none. The verdict on a visitor's results belongs to his own alone."""
    if result is None:
        return updates({})
    return saved(
        exports,
        f"kvdemo-{area.question.key}",
        suffix,
        lambda: content_of(kind, backend, table, result, chosen, readiness if own is True else None),
        download=area.download,
        words=area.saved,
    )
