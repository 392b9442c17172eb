"""The tab Chat: talk to the model and watch its cache fill. Lays out and wires; what happens is in chat_turns.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.components.exports import Exports
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import LIGHT, MODEL, owner_of, stopping, unhurried
from kvdemo.facts.units import format_seconds
from kvdemo.settings import Settings
from kvdemo.ui.chat import turns as chat_turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.extras import wire_files, wire_settings, wire_times
from kvdemo.ui.chat.form import chat_files, chat_form
from kvdemo.ui.chat.form import chat_times as times_layout
from kvdemo.ui.chat.messages import past_turns
from kvdemo.ui.chat.panel import empty_panel
from kvdemo.ui.chat.settings import ChatSettings
from kvdemo.ui.chat.turns import ChatView, updates

__all__ = ["PLACE", "ChatTab", "build_chat_tab"]

PLACE = "chat"


@dataclass(frozen=True, slots=True)
class ChatTab:
    """What the page needs of the tab: the parts that change once the model is loaded."""

    strategy: gr.Dropdown
    strategy_notes: gr.Markdown


def build_chat_tab(backend: Any, settings: Settings, exports: Exports) -> ChatTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    conversation = gr.State(Conversation())
    with gr.Row(elem_classes="kv-columns"):
        with gr.Column(scale=11, min_width=320, elem_id="chat-main", elem_classes="kv-card"):
            with gr.Column(elem_id="conversation"):
                past = fragment(past_turns(Conversation()), elem_id="chat-past")
                live = fragment(elem_id="chat-live")
            notice = fragment(elem_id="chat-notice")
            line = fragment(elem_id="chat-line")
            with gr.Row(elem_id="composer"):
                box = gr.Textbox(
                    label="Your message",
                    show_label=False,
                    container=False,
                    placeholder="Ask something. Enter sends, Shift+Enter breaks the line.",
                    lines=1,
                    max_lines=8,
                    scale=1,
                    min_width=160,
                    elem_id="chat-box",
                )
                send = gr.Button("Send", variant="primary", scale=0, min_width=96, elem_id="chat-send")
                stop = gr.Button("Stop", scale=0, min_width=96, elem_id="chat-stop", visible=False)
            clear = gr.Button("Clear the conversation", size="sm", elem_id="chat-clear", interactive=False)
            action = gr.Textbox(label="Action", visible="hidden", elem_id="chat-action")
        with gr.Column(scale=6, min_width=300, elem_id="chat-side", elem_classes="kv-card"):
            shown = fragment(empty_panel(), elem_id="chat-panel")
            form, times, files = chat_form(backend, settings), times_layout(), chat_files()

    outputs = [conversation, box, past, live, notice, shown, line, send, stop, clear]
    starts = [
        gr.on([box.submit, send.click], _take(backend), [conversation, box], outputs, **LIGHT),
        action.change(_act(backend), [action, conversation, box], outputs, trigger_mode="multiple", **LIGHT),
    ]
    answer = _answer(backend, settings)
    answers = [start.success(answer, [conversation, *form.fields], outputs, **MODEL) for start in starts]
    for answered in answers:
        answered.failure(_settled, conversation, outputs, **LIGHT)
    stop.click(stopping(backend, PLACE), **LIGHT)
    clear.click(_cleared(backend), None, outputs, **LIGHT)
    wire_settings(form, settings, backend)
    wire_times(times, backend, conversation, form, [*answers, clear.click])
    wire_files(files, backend, settings, exports, conversation, form, outputs)
    return ChatTab(form.strategy, form.notes)


def _take(backend: Any) -> Callable[..., list[Any]]:
    def take(conversation: Conversation, box: str) -> list[Any]:
        return updates(chat_turns.take(backend, conversation, box))

    return take


def _act(backend: Any) -> Callable[..., list[Any]]:
    def act(action: str, conversation: Conversation, box: str) -> list[Any]:
        return updates(chat_turns.act(backend, action, conversation, box))

    return act


def _answer(backend: Any, settings: Settings) -> Callable[..., Iterator[list[Any]]]:
    idle = format_seconds(settings.limits.idle_s)
    kept_words = f"Your cache stays on this machine until you clear, close, or leave it idle for {idle}."

    answering: dict[str, object] = {}

    def answer(request: gr.Request, conversation: Conversation, *form: Any) -> Iterator[list[Any]]:
        owner, mine = owner_of(request, PLACE), object()
        if answering.setdefault(owner, mine) is not mine:
            # A question that was refused because of the answer that is being written follows it here all the same.
            yield updates(ChatView())
            return
        try:
            views = chat_turns.answer(backend, conversation, ChatSettings(*form), owner, kept_words=kept_words)
            for view in unhurried(views):
                yield updates(view)
        finally:
            del answering[owner]

    return answer


def _settled(conversation: Conversation) -> list[Any]:
    return updates(chat_turns.settled(conversation))


def _cleared(backend: Any) -> Callable[..., list[Any]]:
    def cleared(request: gr.Request) -> list[Any]:
        return updates(chat_turns.cleared(backend, owner_of(request, PLACE)))

    return cleared
