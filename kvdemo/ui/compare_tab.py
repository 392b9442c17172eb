"""The tab Compare: the same prompt with and without the cache, on this machine. Lays out and wires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.experiments.documents import document, dumps
from kvdemo.experiments.wording import DEMONSTRATION_PROMPT
from kvdemo.facts.results import ComparisonResult
from kvdemo.settings import Settings
from kvdemo.ui import compare_runs
from kvdemo.ui.choices import strategy_choices, strategy_notes
from kvdemo.ui.compare_results import EMPTY, empty_result
from kvdemo.ui.compare_runs import AS_CHAT, AS_TEXT, CompareForm, CompareView
from kvdemo.ui.exports import Exports
from kvdemo.ui.markup import fragment
from kvdemo.ui.wiring import LIGHT, MODEL, owner_of

__all__ = ["PLACE", "CompareTab", "build_compare_tab"]

PLACE = "compare"
NEW_TOKENS = 64
CHARTS = ("arrival", "step-cost", "time-split", "work")


@dataclass(frozen=True, slots=True)
class CompareTab:
    """What the page needs of the tab: the parts that change once the model is loaded."""

    strategies: gr.CheckboxGroup
    strategy_notes: gr.Markdown
    count: gr.Markdown
    counted: list[Any]


def build_compare_tab(backend: Any, settings: Settings, exports: Exports) -> CompareTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    limit = settings.limits.new_tokens
    result = gr.State(None)
    with gr.Column(elem_classes="kv-card", elem_id="compare-form"):
        with gr.Row(elem_id="compare-line"):
            prompt = gr.Textbox(
                DEMONSTRATION_PROMPT,
                label="Prompt",
                lines=2,
                max_lines=10,
                scale=6,
                min_width=260,
                elem_id="compare-prompt",
            )
            with gr.Column(scale=3, min_width=200, elem_id="compare-mode"):
                mode = gr.Radio([AS_TEXT, AS_CHAT], value=AS_TEXT, label="The model reads it", elem_id="compare-as")
                counter = fragment(elem_id="compare-count")
            new_tokens = gr.Number(
                NEW_TOKENS,
                label="New tokens",
                precision=0,
                minimum=1,
                maximum=limit,
                scale=1,
                min_width=104,
                elem_id="compare-new-tokens",
            )
            rounds = gr.Number(
                1, label="Rounds", precision=0, minimum=1, maximum=100, scale=1, min_width=90, elem_id="compare-rounds"
            )
        with gr.Row(elem_id="compare-arms-line"):
            strategies = gr.CheckboxGroup(
                strategy_choices(backend.strategies()),
                value=["none", "dynamic"],
                label="Compare, the first with every other",
                scale=6,
                elem_id="compare-strategies",
            )
            start = gr.Button("Run", variant="primary", scale=0, min_width=110, elem_id="compare-run")
            stop = gr.Button("Stop", scale=0, min_width=110, visible=False, elem_id="compare-stop")
        with gr.Accordion("More settings", open=False, elem_id="compare-settings", elem_classes="kv-more"):
            fixed = gr.Checkbox(
                True,
                label="Fixed length: no end token, every strategy makes exactly as many tokens",
                elem_id="compare-fixed",
            )
            system_prompt = gr.Textbox(
                label="System prompt, for a chat message", lines=2, max_lines=8, elem_id="compare-system-prompt"
            )
            notes = fragment(strategy_notes(backend.strategies()), elem_id="compare-strategy-notes")
        notice = fragment(elem_id="compare-notice")
    headline = fragment(empty_result(EMPTY), elem_id="compare-headline")
    arms = fragment(elem_id="compare-arms")
    with gr.Column(visible=False, elem_id="compare-result") as drawn:
        plots = []
        for names in (CHARTS[:2], CHARTS[2:]):
            with gr.Row(elem_classes="kv-charts"):
                for name in names:
                    with gr.Column(elem_classes="kv-card kv-chart", min_width=300):
                        plots.append(gr.Plot(show_label=False, container=False, elem_id=f"compare-{name}"))
    tables = fragment(elem_id="compare-tables")
    with gr.Row(visible=False, elem_id="compare-save") as saving:
        as_json = gr.Button("Save as JSON", scale=0, min_width=170, elem_id="compare-json")
        as_csv = gr.Button("Save as CSV", scale=0, min_width=170, elem_id="compare-csv")
        download = gr.DownloadButton("Download", elem_id="compare-download", elem_classes="kv-download")
        saved = fragment(elem_id="compare-saved")

    outputs = [notice, headline, arms, tables, *plots, result, start, stop, drawn, saving]
    form = [prompt, mode, strategies, new_tokens, rounds, fixed, system_prompt]
    ran = start.click(_run(backend), form, outputs, **MODEL)
    ran.failure(_failed, None, outputs, **LIGHT)
    stop.click(_stop(backend), **LIGHT)
    counted = [prompt, mode, system_prompt]
    gr.on(
        [prompt.change, mode.change, system_prompt.change],
        _count(backend),
        counted,
        counter,
        trigger_mode="always_last",
        **LIGHT,
    )
    as_json.click(_saved(exports, "json"), result, [download, saved], **LIGHT)
    as_csv.click(_saved(exports, "csv"), result, [download, saved], **LIGHT)
    return CompareTab(strategies, notes, counter, counted)


def _updates(view: CompareView) -> list[Any]:
    """The view's parts, then Run, Stop, the charts' and the saving row, which follow from it."""
    if view.running is None:
        return [*view.parts(), gr.skip(), gr.skip(), gr.skip(), gr.skip()]
    has_result = isinstance(view.result, ComparisonResult)
    has_charts = has_result and not isinstance(view.charts[0], dict)
    shown = gr.update(visible=has_charts) if view.running or has_result else gr.skip()
    saved = gr.update(visible=has_result) if view.running or has_result else gr.skip()
    return [*view.parts(), gr.update(visible=not view.running), gr.update(visible=view.running), shown, saved]


def _run(backend: Any) -> Callable[..., Iterator[list[Any]]]:
    def run(request: gr.Request, *form: Any) -> Iterator[list[Any]]:
        for view in compare_runs.run(backend, CompareForm(*form), owner_of(request, PLACE)):
            yield _updates(view)

    return run


def _failed() -> list[Any]:
    return _updates(compare_runs.failed())


def _stop(backend: Any) -> Callable[..., None]:
    def stop(request: gr.Request) -> None:
        backend.stop(owner_of(request, PLACE))

    return stop


def _count(backend: Any) -> Callable[..., str]:
    def count(prompt: str, mode: str, system_prompt: str) -> str:
        return compare_runs.count(backend, prompt, mode, system_prompt)

    return count


def _saved(exports: Exports, kind: str) -> Callable[..., list[Any]]:
    def saved(result: ComparisonResult | None) -> list[Any]:
        """The file, and its name: as soon as the browser shows the name it saves the file."""
        if result is None:
            return [gr.skip(), gr.skip()]
        if kind == "json":
            path = exports.write("kvdemo-compare", "json", dumps(document(result)))
        else:
            from kvdemo.reports.spreadsheet import runs_csv

            path = exports.write("kvdemo-compare", "csv", runs_csv(result))
        return [str(path), f'<div class="kv-saved" title="{path.parent.name}">Saved as {path.name}</div>']

    return saved
