"""The tab Compare: the same prompt with and without the cache, on this machine. Lays out its questions and wires them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.components.choices import strategy_choices, strategy_notes
from kvdemo.components.exports import Exports
from kvdemo.components.form_values import notice, refusal
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.facts.model import Loading
from kvdemo.questions.faster.page import AS_CHAT, FASTER, FasterForm, faster_form
from kvdemo.questions.grow.page import GROWTH, growth_form
from kvdemo.questions.prefix.page import PREFIX, copyable, prefix_form
from kvdemo.questions.prompts.page import PROMPTS, prompts_form
from kvdemo.settings import Settings
from kvdemo.ui.compare import runs as compare_runs
from kvdemo.ui.compare.area import Area, build_area, place_of, wire_area
from kvdemo.ui.compare.beside import beside_layout, hidden, side_by_side
from kvdemo.ui.compare.files import read_result
from kvdemo.ui.compare.force import NOT_YET, in_force
from kvdemo.ui.compare.opened import example, from_file_words, question_of, recorded, recorded_words

__all__ = ["PLACES", "CompareTab", "build_compare_tab"]

QUESTIONS = (FASTER, PROMPTS, GROWTH, PREFIX)
PLACES = tuple(place_of(question) for question in QUESTIONS)


@dataclass(frozen=True, slots=True)
class CompareTab:
    """What the page needs of the tab.

    ready, in_force     to be asked once the model is loaded, with their inputs and outputs
    seen, arrived       to be asked when somebody comes to the tab, and when the page opens (both give `views`): a recorded
                        example, or the result that the address names, is drawn only then
    """

    ready: Callable[..., list[Any]]
    inputs: list[Any]
    outputs: list[Any]
    in_force: Callable[[], Any]
    force: gr.Markdown
    seen: Callable[..., list[Any]]
    arrived: Callable[..., list[Any]]
    seen_inputs: list[Any]
    views: list[Any]


def build_compare_tab(backend: Any, settings: Settings, exports: Exports) -> CompareTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    limit_bytes = settings.limits.upload_bytes
    with gr.Row(elem_classes="kv-force-line"):
        force = fragment(NOT_YET, elem_id="compare-force")
        opener = gr.UploadButton(
            "Open a saved result",
            type="filepath",
            file_types=[".json"],
            size="sm",
            scale=0,
            min_width=170,
            elem_id="compare-open",
        )
    question = gr.Radio(
        [(item.title, item.key) for item in QUESTIONS],
        value=FASTER.key,
        label="Question",
        show_label=False,
        container=False,
        elem_id="compare-question",
    )
    told = fragment(elem_id="compare-told")
    looked = gr.State(False)
    columns, areas, forms = [], [], []
    for item in QUESTIONS:
        with gr.Column(
            visible=item is FASTER, elem_id=f"compare-{item.key}", elem_classes="kv-question-column"
        ) as column:
            if item is FASTER:
                form = faster_form(backend)
            elif item is PROMPTS:
                form = prompts_form(backend, limit_bytes)
            else:
                form = growth_form(backend) if item is GROWTH else prefix_form(backend)
            pickers = {PROMPTS.key: ("candidate",), GROWTH.key: ("along", "candidate")}.get(item.key, ())
            area = build_area(item, form.notice, form.start, form.stop, pickers)
        columns.append(column)
        areas.append(area)
        forms.append(form)
        wire_area(area, backend, exports, form.fields)
    beside = beside_layout()

    shown = [question, told, *columns, *(part for area in areas for part in area.outputs)]
    question.input(_show_question, question, [beside.place, told, *columns], **LIGHT)
    opener.upload(_open(backend, areas, limit_bytes), opener, shown, **LIGHT)
    for area in areas:
        area.beside.upload(
            _open_beside(limit_bytes), [area.beside, area.result], [area.saved, *beside.outputs], **LIGHT
        )
    beside.close.click(hidden, None, beside.outputs, **LIGHT)
    first = forms[0]
    _wire_count(first, backend)
    return CompareTab(
        ready=_ready(backend),
        inputs=first.counted,
        outputs=[first.count, first.notes, *(form.strategies for form in forms)],
        in_force=lambda: in_force(backend) or gr.skip(),
        force=force,
        seen=_seen(backend, areas),
        arrived=_arrived(backend, areas),
        seen_inputs=[looked],
        views=[looked, *shown],
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
    """One question at a time; two results side by side belong to the one that is left."""
    return [gr.update(visible=False), "", *(gr.update(visible=question.key == chosen) for question in QUESTIONS)]


def _ready(backend: Any) -> Callable[..., list[Any]]:
    def ready(*counted: Any) -> list[Any]:
        """What the model's coming changes: how long the prompt is, and what can be chosen."""
        if isinstance(backend.status(), Loading):
            return [gr.skip() for _ in range(2 + len(QUESTIONS))]
        rows = backend.strategies()
        # One of its own for each: Gradio empties an update while it shows it.
        choices = [gr.update(choices=strategy_choices(rows)) for _ in range(3)]
        return [_count(backend)(*counted), strategy_notes(rows), *choices, gr.update(choices=copyable(rows))]

    return ready


def _count(backend: Any) -> Callable[..., str]:
    def count(prompt: str, mode: str, system_prompt: str) -> str:
        return compare_runs.count(backend, prompt, mode == AS_CHAT, system_prompt)

    return count


def _shown(areas: list[Area], result: Any, view: Any) -> list[Any]:
    """The result on the page of its question, which is turned to; the other questions stay as they are."""
    key = question_of(result)
    parts: list[Any] = [key, "", *(gr.update(visible=question.key == key) for question in QUESTIONS)]
    for area in areas:
        parts += area.updates(view) if area.question.key == key else [gr.skip() for _ in area.outputs]
    return parts


def _nothing(areas: list[Area], told: Any = None) -> list[Any]:
    """Everything stays, but for what is told."""
    many = 1 + len(QUESTIONS) + sum(len(area.outputs) for area in areas)
    parts: list[Any] = [gr.skip() for _ in range(many + 1)]
    return parts if told is None else [parts[0], told, *parts[2:]]


def _open(backend: Any, areas: list[Area], limit_bytes: int) -> Callable[..., list[Any]]:
    def opened(path: Any) -> list[Any]:
        """A saved result on the page of its question, as if it had been run here."""
        try:
            result = read_result(path, limit_bytes)
            view = compare_runs.shown(backend, result, source=from_file_words(result))
        except KvdemoError as error:
            return _nothing(areas, notice(f"The file cannot be opened. {refusal(error)}"))
        return _shown(areas, result, view)

    return opened


def _open_beside(limit_bytes: int) -> Callable[..., list[Any]]:
    def opened_beside(path: Any, one: Any) -> list[Any]:
        """A second saved result beside the one that is shown."""
        try:
            other = read_result(path, limit_bytes)
            if one is None:
                raise InvalidRequest("file", "there is nothing yet to put it beside; run or open a result first")
            return ["", *side_by_side(one, other)]
        except KvdemoError as error:
            return [notice(f"The file cannot be opened. {refusal(error)}"), *(gr.skip() for _ in hidden())]

    return opened_beside


def _seen(backend: Any, areas: list[Area]) -> Callable[..., list[Any]]:
    def seen(looked: bool) -> list[Any]:
        """The first time, before any run: the recorded example, where there is one."""
        recording = None if looked else example(backend)
        if recording is None:
            return [True, *_nothing(areas)]
        view = compare_runs.shown(backend, recording, source=recorded_words(recording))
        return [True, *_shown(areas, recording, view)]

    return seen


def _arrived(backend: Any, areas: list[Area]) -> Callable[..., list[Any]]:
    def arrived(request: gr.Request, looked: bool) -> list[Any]:
        """The recorded result that the address names; the example, when it names the tab alone."""
        asked = request.query_params
        named = recorded(backend, asked.get("result"))
        if named is not None:
            view = compare_runs.shown(backend, named, source=recorded_words(named))
            return [True, *_shown(areas, named, view)]
        return _seen(backend, areas)(looked) if asked.get("tab") == "compare" else [looked, *_nothing(areas)]

    return arrived
