"""The parts of the tab Chat and where they stand: the conversation on the left, what the cache does on the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import Updates, updates
from kvdemo.settings import Settings
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.form import (
    ChatFiles,
    ChatForm,
    ChatStepping,
    ChatTimes,
    chat_files,
    chat_form,
    chat_stepping,
    chat_times,
)
from kvdemo.ui.chat.messages import past_turns
from kvdemo.ui.chat.panel import empty_panel
from kvdemo.ui.chat.reuse import ChatReuse, chat_reuse
from kvdemo.ui.chat.turns import ChatView

__all__ = ["ChatParts", "build", "show"]


@dataclass(frozen=True, slots=True)
class ChatParts:
    """The components; those that a ChatView names bear its names.

    answering   whose answers are being written: owner -> the call that writes it
    """

    conversation: gr.State
    box: gr.Textbox
    past: gr.Markdown
    live: gr.Markdown
    notice: gr.Markdown
    panel: gr.Markdown
    line: gr.Markdown
    send: gr.Button
    stop: gr.Button
    clear: gr.Button
    action: gr.Textbox
    form: ChatForm
    stepping: ChatStepping
    times: ChatTimes
    files: ChatFiles
    reuse: ChatReuse
    answering: dict[str, object]

    @property
    def outputs(self) -> list[Any]:
        """Everything that a view may change."""
        shown = [self.conversation, self.box, self.past, self.live, self.notice, self.panel, self.line]
        return [*shown, self.send, self.stop, self.clear]


def show(parts: ChatParts, view: ChatView) -> Updates:
    """The view as values of the components, with Send, Stop and Clear, which follow from the conversation."""
    shown: Updates = {getattr(parts, name): value for name, value in view.items()}
    if "conversation" in view:
        running = view["conversation"].running
        shown |= {
            parts.send: gr.update(visible=not running),
            parts.stop: gr.update(visible=running),
            parts.clear: gr.update(interactive=bool(view["conversation"].turns) and not running),
        }
    return updates(shown)


def build(backend: Backend, settings: Settings) -> ChatParts:
    """Lay out the tab inside the current Blocks."""
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
            panel = fragment(empty_panel(), elem_id="chat-panel")
            form, stepping = chat_form(backend, settings), chat_stepping()
            times, files = chat_times(), chat_files()
            reuse = chat_reuse()
    return ChatParts(
        conversation=gr.State(Conversation()),
        box=box,
        past=past,
        live=live,
        notice=notice,
        panel=panel,
        line=line,
        send=send,
        stop=stop,
        clear=clear,
        action=action,
        form=form,
        stepping=stepping,
        times=times,
        files=files,
        reuse=reuse,
        answering={},
    )
