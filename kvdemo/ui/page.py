"""The page: header, tabs, what happens when it opens and closes. Knows the backend, nothing below it."""

from __future__ import annotations

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.choices import strategy_choices, strategy_notes
from kvdemo.components.exports import Exports
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT, Updates, bound, owner_of
from kvdemo.facts.model import Loading
from kvdemo.questions.table import QUESTIONS, Table
from kvdemo.settings import Settings
from kvdemo.ui import api
from kvdemo.ui.api import add_api
from kvdemo.ui.chat import tab as chat_tab
from kvdemo.ui.chat.extras import TIMES_PLACE
from kvdemo.ui.chat.tab import build_chat_tab
from kvdemo.ui.compare import tab as compare_tab
from kvdemo.ui.compare.tab import build_compare_tab
from kvdemo.ui.foot import foot
from kvdemo.ui.header import header
from kvdemo.ui.memory import tab as memory_tab
from kvdemo.ui.memory.parts import MemoryParts
from kvdemo.ui.memory.tab import build_memory_tab
from kvdemo.ui.theme import page_style
from kvdemo.ui.workload import kept_in_browser, wire_workload

__all__ = ["build_page", "page_style"]

TABS = ("chat", "compare", "memory")
PLACES = (chat_tab.PLACE, memory_tab.PLACE, api.PLACE, TIMES_PLACE)
TICK_S = 0.5
TITLE = "kvdemo: what a KV cache buys, and what it costs"


def build_page(backend: Backend, settings: Settings, table: Table = QUESTIONS) -> gr.Blocks:
    """The page over this backend; build it once per process, launch it with `page_style()`. table: Compare's questions."""
    exports = Exports()
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(600, 3600)) as demo:
        head = fragment(header(backend.status()), elem_id="kv-header")
        timer = gr.Timer(TICK_S)
        kept = kept_in_browser()
        with gr.Tabs(elem_id="kv-tabs") as tabs:
            with gr.Tab("Chat", id="chat", elem_id="tab-chat"):
                chat = build_chat_tab(backend, settings, exports)
            with gr.Tab("Compare", id="compare", elem_id="tab-compare") as compare_place:
                compare = build_compare_tab(backend, settings, exports, table)
            with gr.Tab("Memory", id="memory", elem_id="tab-memory") as memory_place:
                memory = build_memory_tab(backend, settings)
        fragment(foot(), elem_id="kv-foot")
        following = [head, timer, chat.form.fields["strategy"], chat.form.notes]
        status_known = gr.on([demo.load, timer.tick], bound(status, backend, *following), None, following, **LIGHT)
        status_known.then(bound(compare_tab.ready, compare), compare.counted, compare.following, **LIGHT)
        status_known.then(bound(compare_tab.in_force, compare), None, compare.in_force, **LIGHT)
        status_known.then(bound(compare_tab.judge_when_known, compare), compare.judged_by, compare.judged, **LIGHT)
        arriving = bound(opened, backend, settings, tabs, memory)
        arrived = demo.load(arriving, None, [tabs, *memory.linked], **LIGHT)
        workload = wire_workload(compare.workload, kept, compare.starts, memory_tab.starts(memory), arrived)
        for event in workload:
            event.then(bound(compare_tab.judge, compare), compare.judged_by, compare.judged, **LIGHT)
        # Drawing libraries take seconds to import: only for those who look.
        looking = [compare.question, compare.looked]
        compare_place.select(bound(compare_tab.seen, compare), looking, compare.shown, **LIGHT)
        arrived.then(bound(compare_tab.arrived, compare), looking, compare.shown, **LIGHT)
        drawn = [memory.looked, *memory.planned]
        memory_place.select(bound(memory_tab.seen, memory, backend), memory.asked, drawn, **LIGHT)
        arrived.then(bound(memory_tab.seen_on_arrival, memory, backend), memory.asked, drawn, **LIGHT)
        budget_known = bound(memory_tab.budget_known, memory, backend)
        status_known.then(budget_known, [memory.choice["model"], *memory.budget[:2]], memory.budget, **LIGHT)
        came = bound(memory_tab.came, memory, backend)
        status_known.then(came, [memory.looked, *memory.asked], memory.planned, **LIGHT)
        add_api(backend)
        demo.unload(bound(closed, backend, (*PLACES, *compare.places)))
    return demo


def status(backend: Backend, head: gr.Markdown, timer: gr.Timer, strategy: gr.Dropdown, notes: gr.Markdown) -> Updates:
    """How is the model? Ticking stops as soon as nothing will change any more."""
    now = backend.status()
    if isinstance(now, Loading):
        return {head: header(now)}
    rows = backend.strategies()
    return {
        head: header(now),
        timer: gr.update(active=False),
        strategy: gr.update(choices=strategy_choices(rows)),
        notes: strategy_notes(rows),
    }


def opened(backend: Backend, settings: Settings, tabs: gr.Tabs, memory: MemoryParts, request: gr.Request) -> Updates:
    """What the address asks for, as far as there is such a thing: the tab, and Memory's form."""
    asked = request.query_params
    tab = asked.get("tab") or ("compare" if asked.get("result") or asked.get("question") else "")
    turned = {tabs: gr.update(selected=tab)} if tab in TABS else {}
    return {**turned, **memory_tab.linked_values(memory, backend, settings, asked)}


def closed(backend: Backend, places: tuple[str, ...], request: gr.Request) -> None:
    """A visitor has left: end what he runs and free what he holds."""
    for place in places:
        owner = owner_of(request, place)
        backend.stop(owner)
        backend.release(owner)
