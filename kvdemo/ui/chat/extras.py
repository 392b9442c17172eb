"""What stands around the chat, wired: kept settings, times of the conversation, saving and opening it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.exports import Exports, saved
from kvdemo.components.wiring import LIGHT, MODEL, Updates, bound, owner_of, stopping, unhurried, updates
from kvdemo.errors import KvdemoError
from kvdemo.settings import Settings
from kvdemo.ui.chat import times as chat_times
from kvdemo.ui.chat import turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.conversation_file import as_json, as_markdown, opened
from kvdemo.ui.chat.form import ChatFiles, ChatForm, ChatTimes
from kvdemo.ui.chat.layout import ChatParts, show
from kvdemo.ui.chat.settings import REMEMBERED, ChatSettings, remembered, restored

__all__ = ["TIMES_PLACE", "wire_files", "wire_settings", "wire_times"]

TIMES_PLACE = "chat/times"


def wire_settings(form: ChatForm, settings: Settings, backend: Backend) -> None:
    """The browser remembers them, and gives them back when the page opens."""
    kept = [form.fields[name] for name in REMEMBERED]
    fields = [*form.fields.values()]
    gr.on([field.change for field in kept], remember, fields, form.kept, trigger_mode="always_last", **LIGHT)
    form.restored.change(bound(restore, form, backend, settings.limits.new_tokens), form.restored, kept, **LIGHT)


def wire_times(parts: ChatParts, backend: Backend, *, after: list[Callable[..., Any]]) -> None:
    """Drawn while somebody looks. after: the events after which the conversation is another, each to be listened to."""
    times, fields = parts.times, parts.form.fields
    opening = [parts.conversation, times.without_reuse]
    times.place.expand(bound(open_times, times), opening, [*times.drawn, times.is_open], **LIGHT)
    times.place.collapse(bound(close_times, times), None, times.is_open, **LIGHT)
    for listen in after:
        again = [*times.drawn, times.without_reuse]
        listen(bound(draw_again, times), [times.is_open, parts.conversation], again, **LIGHT)
    measured = times.measure.click(
        bound(measure, times, backend),
        [parts.conversation, *(fields[name] for name in ("system_prompt", "strategy", "max_new_tokens"))],
        [*times.drawn, times.without_reuse, times.stop],
        **MODEL,
    )
    measured.failure(bound(not_measuring, times), None, [times.measure, times.stop], **LIGHT)
    times.stop.click(stopping(backend, TIMES_PLACE), **LIGHT)


def wire_files(parts: ChatParts, backend: Backend, settings: Settings, exports: Exports) -> None:
    """Save the conversation, open a saved one."""
    files, system_prompt = parts.files, parts.form.fields["system_prompt"]
    for kind, button in (("md", files.markdown), ("json", files.json)):
        saving = bound(save, files, exports, backend, kind)
        button.click(saving, [parts.conversation, system_prompt], [files.download, files.saved], **LIGHT)
    opening = bound(open_file, parts, settings.limits.upload_bytes)
    files.open.upload(opening, [files.open, parts.conversation], [*parts.outputs, system_prompt], **LIGHT)


def remember(*form: Any) -> str:
    """The settings for the browser to keep."""
    return remembered(ChatSettings(*form))


def restore(form: ChatForm, backend: Backend, limit: int, kept: str) -> Updates:
    """The settings that the browser has kept, as far as they can be used here."""
    usable = tuple(row.key for row in backend.strategies() if row.unavailable_reason is None)
    return updates({form.fields[name]: value for name, value in restored(kept, usable, limit).items()})


def open_times(times: ChatTimes, conversation: Conversation, without_reuse: tuple[float | None, ...]) -> Updates:
    return {**_drawn(times, conversation, without_reuse), times.is_open: True}


def close_times(times: ChatTimes) -> Updates:
    return {times.is_open: False}


def draw_again(times: ChatTimes, is_open: bool, conversation: Conversation) -> Updates:
    """After an answer: draw again what somebody is looking at; times without reuse belonged to the turns before."""
    return {**(_drawn(times, conversation, ()) if is_open else {}), times.without_reuse: ()}


def measure(
    times: ChatTimes,
    backend: Backend,
    request: gr.Request,
    conversation: Conversation,
    system_prompt: str,
    strategy: str,
    longest: float,
) -> Iterator[Updates]:
    """The same turns once more, each with an empty cache; what was measured is drawn at the end."""
    so_far: tuple[str, tuple[float | None, ...]] = ("", ())
    settings = ChatSettings(system_prompt, strategy, max_new_tokens=longest)
    measured = chat_times.measured_without_reuse(backend, conversation, settings, owner_of(request, TIMES_PLACE))
    for so_far in unhurried(measured):
        yield {times.words: so_far[0], times.measure: gr.update(visible=False), times.stop: gr.update(visible=True)}
    words, without_reuse = so_far
    drawn = {**_drawn(times, conversation, without_reuse), times.words: words}
    yield {**drawn, times.without_reuse: without_reuse, times.stop: gr.update(visible=False)}


def not_measuring(times: ChatTimes) -> Updates:
    """After a fault of ours."""
    return {times.measure: gr.update(visible=True), times.stop: gr.update(visible=False)}


def save(
    files: ChatFiles, exports: Exports, backend: Backend, kind: str, conversation: Conversation, system_prompt: str
) -> Updates:
    """The conversation as a file."""
    try:
        model = backend.describe()
    except KvdemoError:
        model = None
    written = as_json if kind == "json" else as_markdown
    return saved(
        exports,
        "kvdemo-conversation",
        kind,
        lambda: written(conversation, model, system_prompt),
        download=files.download,
        words=files.saved,
    )


def open_file(parts: ChatParts, limit_bytes: int, path: str, conversation: Conversation) -> Updates:
    """A saved conversation in the place of this one; not while an answer is being written."""
    if conversation.running:
        return updates({})
    try:
        found, system_prompt = opened(path, limit_bytes)
    except KvdemoError as error:
        return show(parts, {"notice": turns.notice(str(error))})
    return {**show(parts, turns.opened(found)), parts.form.fields["system_prompt"]: system_prompt}


def _drawn(times: ChatTimes, conversation: Conversation, without_reuse: tuple[float | None, ...]) -> Updates:
    steps, by_turn, words = chat_times.drawn(conversation, without_reuse)
    here = all(record.reported is None for record in conversation.records)  # a server's turns cannot be run again here
    return {
        times.words: words,
        times.steps: gr.update(visible=steps is not None, value=steps),
        times.turns: gr.update(visible=by_turn is not None, value=by_turn),
        times.measure: gr.update(visible=by_turn is not None and here),
    }
