"""The tab Chat: talk to the model and watch its cache fill. Lays out and wires; what happens is in chat_turns.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from kvdemo.facts.units import format_seconds
from kvdemo.settings import Settings
from kvdemo.ui import chat_turns
from kvdemo.ui.chat_messages import past_turns
from kvdemo.ui.chat_panel import empty_panel
from kvdemo.ui.chat_turns import ChatSettings, ChatView
from kvdemo.ui.choices import strategy_choices, strategy_notes
from kvdemo.ui.conversation import Conversation
from kvdemo.ui.markup import fragment
from kvdemo.ui.wiring import LIGHT, MODEL, owner_of

__all__ = ["ChatTab", "build_chat_tab"]

PLACE = "chat"
LONGEST = 256


@dataclass(frozen=True, slots=True)
class ChatTab:
    """What the page needs of the tab: the parts that change once the model is loaded."""

    strategy: gr.Dropdown
    strategy_notes: gr.Markdown


def build_chat_tab(backend: Any, settings: Settings) -> ChatTab:
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
            strategy, notes, form = _more_settings(backend, settings)

    view_parts = [conversation, box, past, live, notice, shown, line]
    outputs = [*view_parts, send, stop, clear]
    asked = {"inputs": [conversation, box], "outputs": outputs}
    fed = {"inputs": [conversation, *form], "outputs": outputs}
    starts = [
        gr.on([box.submit, send.click], _take(backend), **asked, **LIGHT),
        action.change(_act(backend), [action, conversation, box], outputs, trigger_mode="multiple", **LIGHT),
    ]
    for start in starts:
        answered = start.success(_answer(backend, settings), **fed, **MODEL)
        answered.failure(_settled, conversation, outputs, **LIGHT)
    stop.click(_stop(backend), **LIGHT)
    clear.click(_cleared(backend), None, outputs, **LIGHT)
    return ChatTab(strategy, notes)


def _more_settings(backend: Any, settings: Settings) -> tuple[gr.Dropdown, gr.Markdown, list[Any]]:
    """The settings, each with its default, in the order of ChatSettings."""
    limit = settings.limits.new_tokens
    with gr.Accordion("More settings", open=False, elem_id="chat-settings"):
        strategy = gr.Dropdown(
            strategy_choices(backend.strategies()),
            value="dynamic",
            label="Cache strategy",
            elem_id="chat-strategy",
            filterable=False,
        )
        notes = fragment(strategy_notes(backend.strategies()), elem_id="chat-strategy-notes")
        keep = gr.Checkbox(True, label="Keep the cache between turns", elem_id="chat-keep")
        longest = gr.Slider(
            1, limit, value=min(LONGEST, limit), step=1, label="Longest answer, tokens", elem_id="chat-longest"
        )
        temperature = gr.Slider(
            0,
            2,
            value=0,
            step=0.05,
            label="Temperature",
            info="0 always takes the likeliest token",
            elem_id="chat-temp",
        )
        top_p = gr.Slider(0.05, 1, value=1, step=0.05, label="Top p", info="1 is off", elem_id="chat-top-p")
        top_k = gr.Number(0, label="Top k", info="0 is off", precision=0, minimum=0, elem_id="chat-top-k")
        seed = gr.Number(0, label="Seed", info="Same seed, same text", precision=0, minimum=0, elem_id="chat-seed")
        system_prompt = gr.Textbox(
            label="System prompt", lines=3, max_lines=10, placeholder="None", elem_id="chat-system-prompt"
        )
    return strategy, notes, [system_prompt, strategy, keep, longest, temperature, top_p, top_k, seed]


def _updates(view: ChatView) -> list[Any]:
    """The view's parts, then Send, Stop and Clear, which follow from the conversation."""
    parts = [getattr(view, part.name) for part in fields(view)]
    if not isinstance(view.conversation, Conversation):
        return [*parts, gr.skip(), gr.skip(), gr.skip()]
    running = view.conversation.running
    something = bool(view.conversation.turns) and not running
    return [*parts, gr.update(visible=not running), gr.update(visible=running), gr.update(interactive=something)]


def _take(backend: Any) -> Callable[..., list[Any]]:
    def take(conversation: Conversation, box: str) -> list[Any]:
        if conversation.running:
            raise gr.Error(chat_turns.BUSY, title="Not sent yet", duration=6, print_exception=False)
        return _updates(chat_turns.take(backend, conversation, box))

    return take


def _act(backend: Any) -> Callable[..., list[Any]]:
    def act(action: str, conversation: Conversation, box: str) -> list[Any]:
        if conversation.running:
            raise gr.Error(chat_turns.BUSY, title="Not now", duration=6, print_exception=False)
        return _updates(chat_turns.act(backend, action, conversation, box))

    return act


def _answer(backend: Any, settings: Settings) -> Callable[..., Iterator[list[Any]]]:
    idle = format_seconds(settings.limits.idle_s)
    kept_words = f"Your cache stays on this machine until you clear, close, or leave it idle for {idle}."

    def answer(request: gr.Request, conversation: Conversation, *form: Any) -> Iterator[list[Any]]:
        owner = owner_of(request, PLACE)
        for view in chat_turns.answer(backend, conversation, ChatSettings(*form), owner, kept_words=kept_words):
            yield _updates(view)

    return answer


def _settled(conversation: Conversation) -> list[Any]:
    return _updates(chat_turns.settled(conversation))


def _stop(backend: Any) -> Callable[..., None]:
    def stop(request: gr.Request) -> None:
        backend.stop(owner_of(request, PLACE))

    return stop


def _cleared(backend: Any) -> Callable[..., list[Any]]:
    def cleared(request: gr.Request) -> list[Any]:
        return _updates(chat_turns.cleared(backend, owner_of(request, PLACE)))

    return cleared
