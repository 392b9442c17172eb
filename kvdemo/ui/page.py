"""The page: header, tabs, what happens when it opens and closes. Knows the backend, nothing below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from kvdemo.facts.model import Loading
from kvdemo.settings import Settings
from kvdemo.ui import chat_tab, compare_runs, compare_tab
from kvdemo.ui.chat_tab import build_chat_tab
from kvdemo.ui.choices import strategy_choices, strategy_notes
from kvdemo.ui.compare_tab import build_compare_tab
from kvdemo.ui.exports import Exports
from kvdemo.ui.header import header
from kvdemo.ui.markup import fragment
from kvdemo.ui.theme import page_style
from kvdemo.ui.wiring import LIGHT, owner_of

__all__ = ["build_page", "page_style"]

TABS = ("chat", "compare", "memory")
PLACES = (chat_tab.PLACE, compare_tab.PLACE)
TICK_S = 0.5
TITLE = "kvdemo: what a KV cache buys, and what it costs"


def build_page(backend: Any, settings: Settings) -> gr.Blocks:
    """The page over this backend; build it once per process, launch it with `page_style()`."""
    exports = Exports()
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(600, 3600)) as demo:
        head = fragment(header(backend.status()), elem_id="kv-header")
        timer = gr.Timer(TICK_S)
        with gr.Tabs(elem_id="kv-tabs") as tabs:
            with gr.Tab("Chat", id="chat", elem_id="tab-chat"):
                chat = build_chat_tab(backend, settings)
            with gr.Tab("Compare", id="compare", elem_id="tab-compare"):
                compare = build_compare_tab(backend, settings, exports)
        parts = [head, timer, chat.strategy, chat.strategy_notes]
        parts += [compare.strategies, compare.strategy_notes, compare.count]
        gr.on([demo.load, timer.tick], _status(backend), compare.counted, parts, **LIGHT)
        demo.load(_opened, None, tabs, **LIGHT)
        demo.unload(_closed(backend))
    return demo


def _status(backend: Any) -> Callable[..., list[Any]]:
    def status(prompt: str, mode: str, system_prompt: str) -> list[Any]:
        """How is the model? Ticking stops as soon as nothing will change any more."""
        now = backend.status()
        if isinstance(now, Loading):
            return [header(now), *(gr.skip() for _ in range(6))]
        rows = backend.strategies()
        choices, notes = strategy_choices(rows), strategy_notes(rows)
        counted = compare_runs.count(backend, prompt, mode, system_prompt)
        return [
            header(now),
            gr.update(active=False),
            gr.update(choices=choices),
            notes,
            gr.update(choices=choices),
            notes,
            counted,
        ]

    return status


def _opened(request: gr.Request) -> Any:
    """The tab that the address asks for, if there is one of that name."""
    wanted = request.query_params.get("tab", "")
    return gr.update(selected=wanted) if wanted in TABS else gr.skip()


def _closed(backend: Any) -> Callable[..., None]:
    def closed(request: gr.Request) -> None:
        for place in PLACES:
            owner = owner_of(request, place)
            backend.stop(owner)
            backend.release(owner)

    return closed
