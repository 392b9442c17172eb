"""The settings of the chat, what can be done with a conversation, and its times: the parts of the panel below the bars."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.choices import strategy_choices, strategy_notes
from kvdemo.components.markup import fragment
from kvdemo.components.server_fields import ServerFields, server_fields
from kvdemo.facts.requests import Message
from kvdemo.settings import Settings
from kvdemo.ui.chat.conversation import Conversation

__all__ = [
    "ChatFiles",
    "ChatForm",
    "ChatStepping",
    "ChatTimes",
    "Stepping",
    "chat_files",
    "chat_form",
    "chat_stepping",
    "chat_times",
]

LONGEST = 256
STEPPING = (
    "Write a message, then press Next token: the answer comes one token at a time, always the likeliest one. After any answer "
    "you can look into the cache that is kept."
)


@dataclass(frozen=True, slots=True)
class ChatForm:
    """`fields` by the names of ChatSettings, in their order; kept, restored: the two ends of what the browser remembers.

    server   address, model and key of a server; the browser remembers none of them
    """

    notes: gr.Markdown
    fields: dict[str, Any]
    kept: gr.Markdown
    restored: gr.Textbox
    server: ServerFields


@dataclass(frozen=True, slots=True)
class ChatTimes:
    """is_open: somebody is looking; without_reuse: first-token times of the same turns, each from an empty cache, s."""

    place: gr.Accordion
    words: gr.Markdown
    steps: gr.Plot
    turns: gr.Plot
    measure: gr.Button
    stop: gr.Button
    is_open: gr.State
    without_reuse: gr.State

    @property
    def drawn(self) -> list[Any]:
        """Everything that drawing changes."""
        return [self.words, self.steps, self.turns, self.measure]


@dataclass(frozen=True, slots=True)
class Stepping:
    """An answer that is being made step by step: the conversation as it stands, what the model reads, the ids made so far."""

    conversation: Conversation = field(default_factory=Conversation)
    messages: tuple[Message, ...] = ()
    made: tuple[int, ...] = ()
    held_bytes: int = 0
    ended: bool = True


@dataclass(frozen=True, slots=True)
class ChatStepping:
    """look, layer, head: a look into the cache, and where to look closely; words: what the step did; looked: what is held."""

    button: gr.Button
    look: gr.Button
    layer: gr.Number
    head: gr.Number
    words: gr.Markdown
    looked: gr.Markdown
    state: gr.State


@dataclass(frozen=True, slots=True)
class ChatFiles:
    markdown: gr.Button
    json: gr.Button
    open: gr.UploadButton
    download: gr.DownloadButton
    saved: gr.Markdown


def chat_form(backend: Backend, settings: Settings) -> ChatForm:
    """The settings, each with its default."""
    limit = settings.limits.new_tokens
    rows = backend.strategies()
    with gr.Accordion("More settings", open=False, elem_id="chat-settings", elem_classes="kv-more"):
        strategy = gr.Dropdown(
            strategy_choices(rows), value="dynamic", label="Cache strategy", filterable=False, elem_id="chat-strategy"
        )
        notes = fragment(strategy_notes(rows), elem_id="chat-strategy-notes")
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
            settings.system_prompt,
            label="System prompt",
            info="Set by the operator, processed once for everybody" if settings.system_prompt else None,
            lines=3,
            max_lines=10,
            placeholder="None",
            elem_id="chat-system-prompt",
        )
    # Outside of the block: what is folded away is not in the page.
    kept = fragment(elem_id="chat-remember")
    restored = gr.Textbox(label="Kept settings", visible="hidden", elem_id="chat-restore")
    fields = {
        "system_prompt": system_prompt,
        "strategy": strategy,
        "keep": keep,
        "max_new_tokens": longest,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
    }
    return ChatForm(notes, fields, kept, restored, server_fields(backend, settings, "chat"))


def chat_times() -> ChatTimes:
    """The times of the conversation, drawn when somebody looks."""
    with gr.Accordion("Times of this conversation", open=False, elem_id="chat-times", elem_classes="kv-more") as place:
        words = fragment(elem_id="chat-times-words")
        steps = gr.Plot(show_label=False, container=False, visible=False, elem_id="chat-steps")
        turns = gr.Plot(show_label=False, container=False, visible=False, elem_id="chat-turns")
        with gr.Row():
            measure = gr.Button(
                "Measure the same turns without reuse", size="sm", visible=False, elem_id="chat-measure"
            )
            stop = gr.Button("Stop", size="sm", visible=False, elem_id="chat-measure-stop")
    return ChatTimes(place, words, steps, turns, measure, stop, gr.State(False), gr.State(()))


def chat_stepping() -> ChatStepping:
    """One token for each press, and a look into the cache."""
    with gr.Accordion("Step by step", open=False, elem_id="chat-stepping", elem_classes="kv-more"):
        with gr.Row():
            button = gr.Button("Next token", size="sm", min_width=120, elem_id="chat-step")
            look = gr.Button("Look into the cache", size="sm", min_width=150, elem_id="chat-step-see")
        words = fragment(Markup('<p class="kv-said">{}</p>').format(STEPPING), elem_id="chat-step-told")
        with gr.Row():
            layer = gr.Number(0, label="Layer", precision=0, min_width=90, elem_id="chat-step-layer")
            head = gr.Number(0, label="KV head", precision=0, min_width=90, elem_id="chat-step-head")
        looked = fragment(elem_id="chat-step-look")
    return ChatStepping(button, look, layer, head, words, looked, gr.State(Stepping()))


def chat_files() -> ChatFiles:
    """Save the conversation, or open a saved one."""
    with gr.Accordion("Save or open this conversation", open=False, elem_id="chat-files", elem_classes="kv-more"):
        markdown = gr.Button("Save as Markdown", size="sm", elem_id="chat-save-markdown")
        as_json = gr.Button("Save as JSON, with every turn's figures", size="sm", elem_id="chat-save-json")
        opener = gr.UploadButton(
            "Open a saved JSON file", size="sm", file_types=[".json"], type="filepath", elem_id="chat-open"
        )
        download = gr.DownloadButton("Download", elem_id="chat-download", elem_classes="kv-download")
        saved = fragment(elem_id="chat-saved")
    return ChatFiles(markdown, as_json, opener, download, saved)
