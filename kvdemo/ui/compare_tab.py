"""The tab Compare: the same prompt with and without the cache, on this machine. Lays out and wires its questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.facts.model import Loading
from kvdemo.settings import Settings
from kvdemo.ui import compare_runs
from kvdemo.ui.choices import strategy_choices, strategy_notes
from kvdemo.ui.compare_area import build_area, place_of, wire_area
from kvdemo.ui.compare_faster import AS_CHAT, FASTER, FasterForm, faster_form
from kvdemo.ui.compare_force import NOT_YET, in_force
from kvdemo.ui.exports import Exports
from kvdemo.ui.markup import fragment
from kvdemo.ui.wiring import LIGHT

__all__ = ["PLACES", "CompareTab", "build_compare_tab"]

QUESTIONS = (FASTER,)
PLACES = tuple(place_of(question) for question in QUESTIONS)


@dataclass(frozen=True, slots=True)
class CompareTab:
    """What the page needs of the tab: what to ask once the model is loaded, and where the answers go."""

    ready: Callable[..., list[Any]]
    inputs: list[Any]
    outputs: list[Any]
    in_force: Callable[[], Any]
    force: gr.Markdown


def build_compare_tab(backend: Any, settings: Settings, exports: Exports) -> CompareTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    force = fragment(NOT_YET, elem_id="compare-force")
    question = gr.Radio(
        [(item.title, item.key) for item in QUESTIONS],
        value=FASTER.key,
        label="Question",
        show_label=False,
        container=False,
        elem_id="compare-question",
    )
    columns = []
    with gr.Column(elem_classes="kv-question-column") as column:
        faster = faster_form(backend)
        area = build_area(FASTER, faster.notice, faster.start, faster.stop)
    columns.append(column)
    question.input(_show_question, question, columns, **LIGHT)
    wire_area(area, backend, exports, faster.fields)
    _wire_count(faster, backend)
    return CompareTab(
        ready=_ready(backend),
        inputs=faster.counted,
        outputs=[faster.strategies, faster.notes, faster.count],
        in_force=lambda: in_force(backend) or gr.skip(),
        force=force,
    )


def _wire_count(form: FasterForm, backend: Any) -> None:
    gr.on(
        [item.change for item in form.counted],
        _count(backend),
        form.counted,
        form.count,
        trigger_mode="always_last",
        **LIGHT,
    )


def _show_question(chosen: str) -> list[Any]:
    return [gr.update(visible=question.key == chosen) for question in QUESTIONS]


def _ready(backend: Any) -> Callable[..., list[Any]]:
    def ready(*counted: Any) -> list[Any]:
        """What the model's coming changes: what can be chosen, how long the prompt is."""
        if isinstance(backend.status(), Loading):
            return [gr.skip() for _ in range(3)]
        rows = backend.strategies()
        return [
            gr.update(choices=strategy_choices(rows)),
            strategy_notes(rows),
            _count(backend)(*counted),
        ]

    return ready


def _count(backend: Any) -> Callable[..., str]:
    def count(prompt: str, mode: str, system_prompt: str) -> str:
        return compare_runs.count(backend, prompt, mode == AS_CHAT, system_prompt)

    return count
