"""The tab Compare: one question at a time, each with its form and its result. Reads the table; knows no question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.exports import Exports
from kvdemo.components.form_values import notice, refusal
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT, Updates, bound, updates
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.question import AnyResult, Starts
from kvdemo.facts.model import Loading
from kvdemo.facts.workload import Workload
from kvdemo.questions.table import Table, question_of
from kvdemo.questions.verdict import ready_to_decide
from kvdemo.settings import Settings
from kvdemo.ui.compare import runs
from kvdemo.ui.compare.area import Area, build_area, place_of, show, wire_area
from kvdemo.ui.compare.beside import Beside, beside_layout, hidden, side_by_side
from kvdemo.ui.compare.files import read_result
from kvdemo.ui.compare.in_force import NOT_YET, in_force_line
from kvdemo.ui.compare.opened import example, from_file_words, others, recorded, recorded_words
from kvdemo.ui.compare.ready import judged, ready_card
from kvdemo.ui.workload import WorkloadParts, build_workload, user_notices

__all__ = ["CompareTab", "arrived", "build_compare_tab", "in_force", "judge", "judge_when_known", "ready", "seen"]


@dataclass(frozen=True, slots=True)
class CompareTab:
    """The tab's parts that the page's own events are wired to.

    looked   keys of the questions that somebody has looked at: their examples are drawn only then
    """

    backend: Backend
    table: Table
    limit_bytes: int
    question: gr.Radio
    notice_place: gr.Markdown
    in_force: gr.Markdown
    looked: gr.State
    columns: dict[str, gr.Column]
    areas: tuple[Area, ...]
    beside: Beside
    workload: WorkloadParts
    readiness: gr.State

    @property
    def places(self) -> tuple[str, ...]:
        """Where the runs of this tab belong."""
        return tuple(place_of(area.question) for area in self.areas)

    @property
    def shown(self) -> list[Any]:
        """Everything that opening a result may change."""
        parts = [part for area in self.areas for part in area.outputs]
        return [self.looked, self.question, self.notice_place, *self.columns.values(), *parts]

    @property
    def counted(self) -> list[Any]:
        """What is counted again once the model is loaded."""
        return [part for area in self.areas if area.form.counted for part in area.form.counted[0]]

    @property
    def following(self) -> list[Any]:
        """What changes once the model is loaded."""
        follows = [part for area in self.areas for part, _ in area.form.follows]
        return [*follows, *(area.form.counted[1] for area in self.areas if area.form.counted)]

    @property
    def starts(self) -> Starts:
        """What starts from somebody's workload."""
        return tuple(start for area in self.areas for start in area.form.starts)

    @property
    def judged_by(self) -> list[Any]:
        """What "Ready to decide?" is made of."""
        return [self.workload.said, *(area.own for area in self.areas), *(area.result for area in self.areas)]

    @property
    def judged(self) -> list[Any]:
        """Where it stands."""
        return [self.readiness, self.workload.user, self.workload.words, *(area.ready for area in self.areas)]


def build_compare_tab(backend: Backend, settings: Settings, exports: Exports, table: Table) -> CompareTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    with gr.Row(elem_classes="kv-force-line"):
        shown_in_force = fragment(NOT_YET, elem_id="compare-force")
        opener = gr.UploadButton(
            "Open a saved result",
            type="filepath",
            file_types=[".json"],
            size="sm",
            scale=0,
            min_width=170,
            elem_id="compare-open",
        )
    workload = build_workload()
    question = gr.Radio(
        [(item.title, item.key) for item in table],
        value=table[0].key,
        label="Question",
        show_label=False,
        container=False,
        elem_id="compare-question",
    )
    notice_place = fragment(elem_id="compare-told")
    columns, areas, runs_end = {}, [], []
    readiness = gr.State(None)
    nothing = ready_card(ready_to_decide(Workload(), (), table=table))
    for item in table:
        visible = item is table[0]
        with gr.Column(visible=visible, elem_id=f"compare-{item.key}", elem_classes="kv-question-column") as column:
            area = build_area(item, item.page().form(backend, settings), nothing, readiness)
        columns[item.key] = column
        areas.append(area)
        runs_end += wire_area(area, backend, exports, table)
    tab = CompareTab(
        backend=backend,
        table=table,
        limit_bytes=settings.limits.upload_bytes,
        question=question,
        notice_place=notice_place,
        in_force=shown_in_force,
        looked=gr.State(()),
        columns=columns,
        areas=tuple(areas),
        beside=beside_layout(),
        workload=workload,
        readiness=readiness,
    )
    question.input(bound(turn_to, tab), [question, tab.looked], [*tab.shown, tab.beside.place], **LIGHT)
    opened = opener.upload(bound(open_result, tab), opener, tab.shown, **LIGHT)
    for event in (opened, *runs_end):
        event.then(bound(judge, tab), tab.judged_by, tab.judged, **LIGHT)
    for area in areas:
        outputs = [area.saved, *tab.beside.outputs]
        area.beside.upload(bound(open_beside, tab, area), [area.beside, area.result], outputs, **LIGHT)
    tab.beside.close.click(bound(hidden, tab.beside), None, tab.beside.outputs, **LIGHT)
    return tab


def turn_to(tab: CompareTab, chosen: str, looked: Sequence[str]) -> Updates:
    """One question at a time; two results side by side belong to the one that is left."""
    return {tab.beside.place: gr.update(visible=False), **_turned(tab, chosen), **_first_look(tab, chosen, looked)}


def ready(tab: CompareTab, *counted: Any) -> Updates:
    """What the model's coming changes: how long the prompt is, and what can be chosen."""
    if isinstance(tab.backend.status(), Loading):
        return updates({})
    rows = tab.backend.strategies()
    following = {part: follow(rows) for area in tab.areas for part, follow in area.form.follows}
    values = list(counted)
    for area in tab.areas:
        if area.form.counted:
            inputs, output, count = area.form.counted
            following[output] = count(*values[: len(inputs)])
            del values[: len(inputs)]
    return updates(following)


def judge(tab: CompareTab, wanted: Workload, *states: Any) -> Updates:
    """Ready to decide? What this visitor's own results come to; and what a user would notice, where that is known."""
    counts, results = states[: len(tab.areas)], states[len(tab.areas) :]
    own = [result for result, own in zip(results, counts, strict=True) if own is True and result is not None]
    found = judged(tab.backend, wanted, own, tab.table)
    cards = dict.fromkeys((area.ready for area in tab.areas), ready_card(found))
    return {tab.readiness: found, **cards, **user_notices(tab.workload, found)}


def judge_when_known(tab: CompareTab, *states: Any) -> Updates:
    """The model has come, and with it which cache is in force."""
    return updates({} if isinstance(tab.backend.status(), Loading) else judge(tab, *states))


def in_force(tab: CompareTab) -> Updates:
    """Which cache is in force, as soon as that can be told."""
    return updates({} if isinstance(tab.backend.status(), Loading) else {tab.in_force: in_force_line(tab.backend)})


def open_result(tab: CompareTab, path: Any) -> Updates:
    """A saved result on the page of its question, as if it had been run here."""
    try:
        result = read_result(path, tab.limit_bytes, tab.table)
        shown = _shown(tab, result, from_file_words(result))
        return {tab.looked: tuple(tab.columns), **shown}
    except KvdemoError as error:
        return {tab.notice_place: notice(f"The file cannot be opened. {refusal(error)}")}


def open_beside(tab: CompareTab, area: Area, path: Any, one: Any) -> Updates:
    """A second saved result beside the one that is shown."""
    try:
        other = read_result(path, tab.limit_bytes, tab.table)
        if one is None:
            raise InvalidRequest("file", "there is nothing yet to put it beside; run or open a result first")
        return {area.saved: "", **side_by_side(tab.beside, one, other, tab.table)}
    except KvdemoError as error:
        return {area.saved: notice(f"The file cannot be opened. {refusal(error)}")}


def seen(tab: CompareTab, request: gr.Request, chosen: str, looked: Sequence[str]) -> Updates:
    """Somebody has come to the tab; by an address that names a result, `arrived` shows that one, whichever comes first."""
    named = not looked and request.query_params.get("result") in tab.backend.recorded_results()
    return updates({} if named else _first_look(tab, chosen, looked))


def arrived(tab: CompareTab, request: gr.Request, chosen: str, looked: Sequence[str]) -> Updates:
    """The recorded result or the question that the address names; the example, when it names the tab alone."""
    asked = request.query_params
    name = asked.get("result")
    named = recorded(tab.backend, name)
    if named is not None:
        own = question_of(named, tab.table)
        shown = _shown(tab, named, recorded_words(own, named), own=False, further=others(own, name), name=name)
        return {tab.looked: (*looked, own.key), **shown}
    question = asked.get("question")
    if question in tab.columns:
        return {**_turned(tab, question), **_first_look(tab, question, looked)}
    return updates(_first_look(tab, chosen, looked) if asked.get("tab") == "compare" else {})


def _first_look(tab: CompareTab, chosen: str, looked: Sequence[str]) -> Updates:
    """The recorded example of a question that is looked at for the first time, where there is one."""
    area = next((area for area in tab.areas if area.question.key == chosen), None)
    if area is None or chosen in looked:
        return {}
    recording = example(tab.backend, area.question)
    if recording is None:
        return {tab.looked: (*looked, chosen)}
    own = area.question
    words, beside = recorded_words(own, recording), others(own, own.example)
    view = runs.shown(tab.backend, own, recording, source=words, own=False, further=beside, name=own.example)
    return {tab.looked: (*looked, chosen), **show(area, view)}


def _shown(
    tab: CompareTab,
    result: AnyResult,
    source: str,
    *,
    own: bool = True,
    further: Sequence[tuple[str, str]] = (),
    name: str | None = None,
) -> Updates:
    """The result on the page of its question, which is turned to; the other questions stay as they are."""
    question = question_of(result, tab.table)
    (area,) = (area for area in tab.areas if area.question is question)
    view = runs.shown(tab.backend, question, result, source=source, own=own, further=further, name=name)
    return {**_turned(tab, question.key), **show(area, view)}


def _turned(tab: CompareTab, key: str) -> Updates:
    columns = {column: gr.update(visible=name == key) for name, column in tab.columns.items()}
    return {tab.question: key, tab.notice_place: "", **columns}
