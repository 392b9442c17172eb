"""The tab Chat: talk to the model and watch its cache fill. Wires what layout.py lays out; what happens is in turns.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.exports import Exports
from kvdemo.components.wiring import LIGHT, MODEL, Updates, bound, owner_of, stopping, unhurried, updates
from kvdemo.facts.units import format_seconds
from kvdemo.settings import Settings
from kvdemo.ui.chat import turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.extras import wire_files, wire_settings, wire_times
from kvdemo.ui.chat.layout import ChatParts, build, show
from kvdemo.ui.chat.reload import chat_reload, wire_reload
from kvdemo.ui.chat.reuse import tell
from kvdemo.ui.chat.settings import ChatSettings
from kvdemo.ui.chat.stepping import wire_stepping

__all__ = ["PLACE", "build_chat_tab"]

PLACE = "chat"


def build_chat_tab(backend: Backend, settings: Settings, exports: Exports) -> ChatParts:
    """Lay out the tab inside the current Blocks and wire its events."""
    parts, reload = build(backend, settings), chat_reload()
    conversation, box, outputs = parts.conversation, parts.box, parts.outputs
    address = parts.form.server[0]
    starts = [
        gr.on(
            [box.submit, parts.send.click], bound(take, parts, backend), [conversation, box, address], outputs, **LIGHT
        ),
        parts.action.change(
            bound(act, parts, backend),
            [parts.action, conversation, box, address],
            outputs,
            trigger_mode="multiple",
            **LIGHT,
        ),
    ]
    idle = format_seconds(settings.limits.idle_s)
    kept_words = f"Your cache stays on this machine until you clear, close, or leave it idle for {idle}."
    asked = [conversation, *parts.form.fields.values(), *parts.form.server]
    # More than once at a time: what follows a refused message would otherwise swallow, unseen, what follows the next one.
    answers = [
        start.success(bound(answer, parts, backend, kept_words), asked, outputs, trigger_mode="multiple", **MODEL)
        for start in starts
    ]
    for answered in answers:
        answered.failure(bound(settled, parts), conversation, outputs, **LIGHT)
    parts.stop.click(stopping(backend, PLACE), **LIGHT)
    parts.clear.click(bound(cleared, parts, backend), None, outputs, **LIGHT)
    wire_settings(parts.form, settings, backend)
    wire_times(parts, backend, after=[*(answered.success for answered in answers), parts.clear.click])
    wire_files(parts, backend, settings, exports)
    wire_reload(parts, reload, settings)
    wire_stepping(parts, parts.stepping, backend, PLACE)
    predicted = bound(tell, parts.reuse, backend)
    reading = [parts.conversation, parts.form.fields["system_prompt"]]
    parts.reuse.button.click(predicted, reading, parts.reuse.words, **MODEL)
    return parts


def take(parts: ChatParts, backend: Backend, conversation: Conversation, box: str, address: str) -> Updates:
    """Send the text of the composer."""
    return show(parts, turns.take(backend, conversation, box, at_server=ChatSettings(url=address).at_server))


def act(parts: ChatParts, backend: Backend, action: str, conversation: Conversation, box: str, address: str) -> Updates:
    """Do what a button in the conversation asks."""
    at_server = ChatSettings(url=address).at_server
    return show(parts, turns.act(backend, action, conversation, box, at_server=at_server))


def answer(
    parts: ChatParts, backend: Backend, kept_words: str, request: gr.Request, conversation: Conversation, *form: Any
) -> Iterator[Updates]:
    """Answer the last question; a visitor has one answer at a time.

    kept_words   how long a kept cache is kept
    """
    owner, mine = owner_of(request, PLACE), object()
    if parts.answering.setdefault(owner, mine) is not mine:
        # A question that was refused because of the answer that is being written follows it here all the same.
        yield updates({})
        return
    try:
        views = turns.answer(backend, conversation, ChatSettings(*form), owner, kept_words=kept_words)
        for view in unhurried(views):
            yield show(parts, view)
    finally:
        del parts.answering[owner]


def settled(parts: ChatParts, conversation: Conversation) -> Updates:
    """After an answer that ended by a fault of ours."""
    return show(parts, turns.settled(conversation))


def cleared(parts: ChatParts, backend: Backend, request: gr.Request) -> Updates:
    """Begin again, with nothing kept."""
    return show(parts, turns.cleared(backend, owner_of(request, PLACE)))
