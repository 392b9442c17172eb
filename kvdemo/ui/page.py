"""The page: header, tabs, what happens when it opens and closes. Knows the backend, nothing below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.choices import strategy_choices, strategy_notes
from kvdemo.components.exports import Exports
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT, bound, owner_of
from kvdemo.facts.model import Loading
from kvdemo.questions.table import QUESTIONS, Table
from kvdemo.settings import Settings
from kvdemo.ui import api
from kvdemo.ui.api import add_api
from kvdemo.ui.chat import tab as chat_tab
from kvdemo.ui.chat.extras import TIMES_PLACE
from kvdemo.ui.chat.tab import build_chat_tab
from kvdemo.ui.compare import tab as compare_tab
from kvdemo.ui.compare.force import in_force
from kvdemo.ui.compare.tab import build_compare_tab
from kvdemo.ui.header import header
from kvdemo.ui.memory import tab as memory_tab
from kvdemo.ui.memory.tab import MemoryTab, build_memory_tab
from kvdemo.ui.theme import page_style

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
        with gr.Tabs(elem_id="kv-tabs") as tabs:
            with gr.Tab("Chat", id="chat", elem_id="tab-chat"):
                chat = build_chat_tab(backend, settings, exports)
            with gr.Tab("Compare", id="compare", elem_id="tab-compare") as compare_place:
                compare = build_compare_tab(backend, settings, exports, table)
            with gr.Tab("Memory", id="memory", elem_id="tab-memory") as memory_place:
                memory = build_memory_tab(backend, settings)
        parts = [head, timer, chat.form.fields["strategy"], chat.form.notes]
        told = gr.on([demo.load, timer.tick], _status(backend), None, parts, **LIGHT)
        told.then(bound(compare_tab.ready, compare), compare.counted, compare.following, **LIGHT)
        told.then(bound(in_force, backend), None, compare.force, **LIGHT)
        arrived = demo.load(_opened(memory), None, [tabs, *memory.linked], **LIGHT)
        # Drawing libraries take seconds to import: only for those who look.
        seen = gr.State(False)
        compare_place.select(
            bound(compare_tab.seen, compare), [compare.question, compare.looked], compare.shown, **LIGHT
        )
        arrived.then(bound(compare_tab.arrived, compare), [compare.question, compare.looked], compare.shown, **LIGHT)
        memory_place.select(_seen(memory), memory.inputs, [seen, *memory.outputs], **LIGHT)
        arrived.then(_seen_on_arrival(memory), memory.inputs, [seen, *memory.outputs], **LIGHT)
        told.then(_budget_known(backend, memory), memory.budget_inputs, memory.budget_outputs, **LIGHT)
        told.then(_came(backend, memory), [seen, *memory.inputs], memory.outputs, **LIGHT)
        add_api(backend)
        demo.unload(bound(closed, backend, (*PLACES, *compare.places)))
    return demo


def _status(backend: Backend) -> Callable[[], list[Any]]:
    def status() -> list[Any]:
        """How is the model? Ticking stops as soon as nothing will change any more."""
        now = backend.status()
        if isinstance(now, Loading):
            return [header(now), *(gr.skip() for _ in range(3))]
        rows = backend.strategies()
        return [header(now), gr.update(active=False), gr.update(choices=strategy_choices(rows)), strategy_notes(rows)]

    return status


def _opened(memory: MemoryTab) -> Callable[..., list[Any]]:
    def opened(request: gr.Request) -> list[Any]:
        """What the address asks for, as far as there is such a thing: the tab, and Memory's form."""
        asked = request.query_params
        tab = asked.get("tab") or ("compare" if asked.get("result") else "")
        return [gr.update(selected=tab) if tab in TABS else gr.skip(), *memory.opened(request.query_params)]

    return opened


def _seen(memory: MemoryTab) -> Callable[..., list[Any]]:
    def seen(*form: Any) -> list[Any]:
        return [True, *memory.show(*form)]

    return seen


def _seen_on_arrival(memory: MemoryTab) -> Callable[..., list[Any]]:
    def seen(request: gr.Request, *form: Any) -> list[Any]:
        if request.query_params.get("tab") != "memory":
            return [gr.skip() for _ in range(1 + len(memory.outputs))]
        return [True, *memory.show(*form)]

    return seen


def _budget_known(backend: Backend, memory: MemoryTab) -> Callable[..., list[Any]]:
    def budget_known(request: gr.Request, *asking: Any) -> list[Any]:
        """The model has come, and with it the accelerator whose memory is the budget; a link has the last word."""
        if isinstance(backend.status(), Loading) or {"model", "hub", "layers", "budget"} & set(request.query_params):
            return [gr.skip() for _ in memory.budget_outputs]
        return memory.budget(*asking)

    return budget_known


def _came(backend: Backend, memory: MemoryTab) -> Callable[..., list[Any]]:
    def came(seen: bool, *form: Any) -> list[Any]:
        """The model has come while Memory was open: draw it."""
        if not seen or isinstance(backend.status(), Loading):
            return [gr.skip() for _ in memory.outputs]
        return memory.show(*form)

    return came


def closed(backend: Backend, places: tuple[str, ...], request: gr.Request) -> None:
    """A visitor has left: end what he runs and free what he holds."""
    for place in places:
        owner = owner_of(request, place)
        backend.stop(owner)
        backend.release(owner)
