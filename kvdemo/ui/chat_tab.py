"""The tab Chat: talk to the model and watch its cache fill. Lays out and wires; what happens is in chat_turns.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import gradio as gr

from kvdemo.errors import KvdemoError
from kvdemo.facts.units import format_seconds
from kvdemo.settings import Settings
from kvdemo.ui import chat_times, chat_turns
from kvdemo.ui.chat_form import ChatFiles, ChatForm, ChatTimes, chat_files, chat_form
from kvdemo.ui.chat_form import chat_times as times_layout
from kvdemo.ui.chat_messages import past_turns
from kvdemo.ui.chat_panel import empty_panel
from kvdemo.ui.chat_settings import ChatSettings, remembered, restored
from kvdemo.ui.chat_turns import ChatView
from kvdemo.ui.conversation import Conversation
from kvdemo.ui.conversation_file import as_json, as_markdown, opened
from kvdemo.ui.exports import Exports
from kvdemo.ui.markup import fragment
from kvdemo.ui.wiring import LIGHT, MODEL, owner_of

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
    answers = [
        start.success(_answer(backend, settings), [conversation, *form.fields], outputs, **MODEL) for start in starts
    ]
    for answered in answers:
        answered.failure(_settled, conversation, outputs, **LIGHT)
    stop.click(_stop(backend, PLACE), **LIGHT)
    clear.click(_cleared(backend), None, outputs, **LIGHT)
    _wire_settings(form, settings, backend)
    _wire_times(times, backend, conversation, form, [*answers, clear.click])
    _wire_files(files, backend, settings, exports, conversation, form, outputs)
    return ChatTab(form.strategy, form.notes)


def _wire_settings(form: ChatForm, settings: Settings, backend: Any) -> None:
    gr.on(
        [item.change for item in form.fields[1:]],
        _remember,
        form.fields,
        form.kept,
        trigger_mode="always_last",
        **LIGHT,
    )
    form.restored.change(_restore(backend, settings.limits.new_tokens), form.restored, form.fields[1:], **LIGHT)


def _wire_times(times: ChatTimes, backend: Any, conversation: gr.State, form: ChatForm, after: list[Any]) -> None:
    is_open, without_reuse = gr.State(False), gr.State(())
    drawn = [times.words, times.steps, times.turns, times.measure]
    times.place.expand(_draw_times, [conversation, without_reuse], [*drawn, is_open], **LIGHT)
    times.place.collapse(lambda: False, None, is_open, **LIGHT)
    for event in after:
        then = event.success if hasattr(event, "success") else event
        then(_draw_times_if_open, [is_open, conversation], [*drawn, without_reuse], **LIGHT)
    measured = times.measure.click(
        _measure(backend),
        [conversation, form.system_prompt, form.strategy],
        [*drawn, without_reuse, times.stop],
        **MODEL,
    )
    measured.failure(
        lambda: [gr.update(visible=True), gr.update(visible=False)], None, [times.measure, times.stop], **LIGHT
    )
    times.stop.click(_stop(backend, f"{PLACE}/times"), **LIGHT)


def _wire_files(
    files: ChatFiles,
    backend: Any,
    settings: Settings,
    exports: Exports,
    conversation: gr.State,
    form: ChatForm,
    outputs: list[Any],
) -> None:
    saving = [conversation, form.system_prompt]
    files.markdown.click(_saved(exports, backend, "md"), saving, [files.download, files.saved], **LIGHT)
    files.json.click(_saved(exports, backend, "json"), saving, [files.download, files.saved], **LIGHT)
    limit_bytes = settings.limits.upload_bytes
    files.open.upload(_opened(limit_bytes), [files.open, conversation], [*outputs, form.system_prompt], **LIGHT)


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


def _stop(backend: Any, place: str) -> Callable[..., None]:
    def stop(request: gr.Request) -> None:
        backend.stop(owner_of(request, place))

    return stop


def _cleared(backend: Any) -> Callable[..., list[Any]]:
    def cleared(request: gr.Request) -> list[Any]:
        return _updates(chat_turns.cleared(backend, owner_of(request, PLACE)))

    return cleared


def _remember(*form: Any) -> str:
    return remembered(ChatSettings(*form))


def _restore(backend: Any, limit: int) -> Callable[..., list[Any]]:
    def restore(kept: str) -> list[Any]:
        usable = tuple(row.key for row in backend.strategies() if row.unavailable_reason is None)
        return restored(kept, usable, limit)

    return restore


def _draw_times(conversation: Conversation, without_reuse: tuple[float | None, ...]) -> list[Any]:
    return [*_times(conversation, without_reuse), True]


def _draw_times_if_open(is_open: bool, conversation: Conversation) -> list[Any]:
    """After an answer: draw again what somebody is looking at; times without reuse belonged to the turns before."""
    if not is_open:
        return [gr.skip(), gr.skip(), gr.skip(), gr.skip(), ()]
    return [*_times(conversation, ()), ()]


def _times(conversation: Conversation, without_reuse: tuple[float | None, ...]) -> list[Any]:
    steps, turns, words = chat_times.drawn(conversation, without_reuse)
    return [
        words,
        gr.update(visible=steps is not None, value=steps),
        gr.update(visible=turns is not None, value=turns),
        gr.update(visible=turns is not None),
    ]


def _measure(backend: Any) -> Callable[..., Iterator[list[Any]]]:
    def measure(
        request: gr.Request, conversation: Conversation, system_prompt: str, strategy: str
    ) -> Iterator[list[Any]]:
        owner = owner_of(request, f"{PLACE}/times")
        told: tuple[str, tuple[float | None, ...]] = ("", ())
        for told in chat_times.measured_without_reuse(backend, conversation, system_prompt, strategy, owner):
            yield [told[0], gr.skip(), gr.skip(), gr.update(visible=False), gr.skip(), gr.update(visible=True)]
        words, times = told
        _, steps, turns, again = _times(conversation, times)
        yield [words, steps, turns, again, times, gr.update(visible=False)]

    return measure


def _saved(exports: Exports, backend: Any, kind: str) -> Callable[..., list[Any]]:
    def saved(conversation: Conversation, system_prompt: str) -> list[Any]:
        """The file, and its name: as soon as the browser shows the name it saves the file."""
        try:
            model = backend.describe()
        except KvdemoError:
            model = None
        written = (as_json if kind == "json" else as_markdown)(conversation, model, system_prompt)
        path = exports.write("kvdemo-conversation", kind, written)
        return [str(path), f'<div class="kv-saved" title="{path.parent.name}">Saved as {path.name}</div>']

    return saved


def _opened(limit_bytes: int) -> Callable[..., list[Any]]:
    def opened_file(path: str, conversation: Conversation) -> list[Any]:
        if conversation.running:
            return [*_updates(ChatView()), gr.skip()]
        try:
            found, system_prompt = opened(path, limit_bytes)
        except KvdemoError as error:
            return [*_updates(ChatView(notice=chat_turns.notice(str(error)))), gr.skip()]
        view = ChatView(found, gr.skip(), past_turns(found), "", "", empty_panel(), "")
        return [*_updates(view), system_prompt]

    return opened_file
