"""What stands around the chat, wired: kept settings, times of the conversation, saving and opening it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from kvdemo.components.exports import Exports, saved
from kvdemo.components.wiring import LIGHT, MODEL, owner_of, stopping, unhurried
from kvdemo.errors import KvdemoError
from kvdemo.settings import Settings
from kvdemo.ui.chat import times as chat_times
from kvdemo.ui.chat import turns as chat_turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.conversation_file import as_json, as_markdown, opened
from kvdemo.ui.chat.form import ChatFiles, ChatForm, ChatTimes
from kvdemo.ui.chat.messages import past_turns
from kvdemo.ui.chat.panel import empty_panel
from kvdemo.ui.chat.settings import ChatSettings, remembered, restored
from kvdemo.ui.chat.turns import ChatView, updates

__all__ = ["TIMES_PLACE", "wire_files", "wire_settings", "wire_times"]

TIMES_PLACE = "chat/times"


def wire_settings(form: ChatForm, settings: Settings, backend: Any) -> None:
    gr.on(
        [item.change for item in form.fields[1:]],
        _remember,
        form.fields,
        form.kept,
        trigger_mode="always_last",
        **LIGHT,
    )
    form.restored.change(_restore(backend, settings.limits.new_tokens), form.restored, form.fields[1:], **LIGHT)


def wire_times(times: ChatTimes, backend: Any, conversation: gr.State, form: ChatForm, after: list[Any]) -> None:
    is_open, without_reuse = gr.State(False), gr.State(())
    drawn = [times.words, times.steps, times.turns, times.measure]
    times.place.expand(_draw_times, [conversation, without_reuse], [*drawn, is_open], **LIGHT)
    times.place.collapse(lambda: False, None, is_open, **LIGHT)
    for event in after:
        then = event.success if hasattr(event, "success") else event
        then(_draw_times_if_open, [is_open, conversation], [*drawn, without_reuse], **LIGHT)
    measured = times.measure.click(
        _measure(backend),
        [conversation, form.system_prompt, form.strategy, form.longest],
        [*drawn, without_reuse, times.stop],
        **MODEL,
    )
    measured.failure(
        lambda: [gr.update(visible=True), gr.update(visible=False)], None, [times.measure, times.stop], **LIGHT
    )
    times.stop.click(stopping(backend, TIMES_PLACE), **LIGHT)


def wire_files(
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
        request: gr.Request, conversation: Conversation, system_prompt: str, strategy: str, longest: float
    ) -> Iterator[list[Any]]:
        owner = owner_of(request, TIMES_PLACE)
        told: tuple[str, tuple[float | None, ...]] = ("", ())
        settings = ChatSettings(system_prompt, strategy, max_new_tokens=longest)
        views = chat_times.measured_without_reuse(backend, conversation, settings, owner)
        for told in unhurried(views):
            yield [told[0], gr.skip(), gr.skip(), gr.update(visible=False), gr.skip(), gr.update(visible=True)]
        words, times = told
        _, steps, turns, again = _times(conversation, times)
        yield [words, steps, turns, again, times, gr.update(visible=False)]

    return measure


def _saved(exports: Exports, backend: Any, kind: str) -> Callable[..., list[Any]]:
    def save(conversation: Conversation, system_prompt: str) -> list[Any]:
        try:
            model = backend.describe()
        except KvdemoError:
            model = None
        written = as_json if kind == "json" else as_markdown
        return saved(exports, "kvdemo-conversation", kind, lambda: written(conversation, model, system_prompt))

    return save


def _opened(limit_bytes: int) -> Callable[..., list[Any]]:
    def opened_file(path: str, conversation: Conversation) -> list[Any]:
        if conversation.running:
            return [*updates(ChatView()), gr.skip()]
        try:
            found, system_prompt = opened(path, limit_bytes)
        except KvdemoError as error:
            return [*updates(ChatView(notice=chat_turns.notice(str(error)))), gr.skip()]
        view = ChatView(found, gr.skip(), past_turns(found), "", "", empty_panel(), "")
        return [*updates(view), system_prompt]

    return opened_file
