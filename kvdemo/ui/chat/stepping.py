"""Step by step: one token for each press, each a run of its own on the visitor's kept cache, and a look into that cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.components.wiring import CHATTING, MODEL, Updates, bound, owner_of, unhurried, updates
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.step_words import step_words
from kvdemo.facts.requests import checked_int
from kvdemo.facts.steps import CacheLook, Stepped
from kvdemo.facts.units import format_count
from kvdemo.ui.chat import turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.form import ChatStepping, Stepping
from kvdemo.ui.chat.layout import ChatParts, show
from kvdemo.ui.chat.look_card import look_card
from kvdemo.ui.chat.messages import past_turns
from kvdemo.ui.chat.settings import ChatSettings

__all__ = ["wire_stepping"]

NOTHING_KEPT = (
    "Nothing is kept now, so there is nothing to look into: send a message, or press Next token, with a cache."
)


def wire_stepping(parts: ChatParts, stepping: ChatStepping, backend: Backend, place: str) -> None:
    """A press makes a token; another layer or head is another look, and so is a press on the button for it."""
    chosen = [stepping.layer, stepping.head]
    drawn = [stepping.words, stepping.looked, stepping.state]
    given = [parts.conversation, stepping.state, parts.box, *chosen, *parts.form.fields.values()]
    stepping.button.click(bound(step, parts, stepping, backend, place), given, [*parts.outputs, *drawn], **MODEL)
    gr.on(
        [stepping.look.click, stepping.layer.change, stepping.head.change],
        bound(look, stepping, backend, place),
        chosen,
        [stepping.words, stepping.looked],
        trigger_mode="always_last",
        **MODEL,
    )


def step(
    parts: ChatParts,
    stepping: ChatStepping,
    backend: Backend,
    place: str,
    request: gr.Request,
    conversation: Conversation,
    before: Stepping,
    box: Any,
    layer: Any,
    head: Any,
    *form: Any,
) -> Iterator[Updates]:
    """One token more; the first press takes the message from the composer."""
    owner, mine = owner_of(request, place), object()
    if parts.answering.setdefault(owner, mine) is not mine:
        yield {stepping.words: str(said(turns.BUSY))}
        return
    try:
        settings = ChatSettings(*form)
        now = going_on(before, conversation) or begun(backend, conversation, box, settings)
        steps = backend.step(
            now.messages,
            now.made,
            strategy=settings.strategy,
            layer=chosen("layer", layer),
            head=chosen("head", head),
            owner=owner,
            reader=CHATTING,
        )
        for event in unhurried(steps):
            if isinstance(event, Stepped):
                yield drawn(parts, stepping, now, event)
            else:
                yield updates({})
    except KvdemoError as error:
        yield {stepping.words: str(said(str(error)))}
    finally:
        del parts.answering[owner]


def going_on(before: Stepping, conversation: Conversation) -> Stepping | None:
    """The same answer, if it has not ended and nothing else happened to the conversation."""
    return before if not before.ended and before.conversation == conversation else None


def begun(backend: Backend, conversation: Conversation, box: Any, settings: ChatSettings) -> Stepping:
    """A new answer, to the message in the composer; InvalidRequest where there is none."""
    backend.describe()
    if not isinstance(box, str) or not box.strip():
        raise InvalidRequest("message", "is empty: write one, then press Next token")
    asked = conversation.asked(box)
    system_prompt = settings.system_prompt if isinstance(settings.system_prompt, str) else ""
    return Stepping(asked, asked.messages(system_prompt), ended=False)


def chosen(name: str, value: Any) -> int:
    return checked_int(name, value, 0, 100_000)


def drawn(parts: ChatParts, stepping: ChatStepping, before: Stepping, event: Stepped) -> Updates:
    """The answer with one token more, what the step did, and what the cache holds now."""
    number = len(event.made)
    word = "token" if number == 1 else "tokens"
    answered = before.conversation.answered(
        event.text,
        figures=f"{format_count(number)} {word}, one at a time",
        note="" if event.ended else "Not ended yet.",
    )
    after = Stepping(answered, before.messages, event.made, event.record.cache_bytes or 0, event.ended)
    view: turns.ChatView = {"conversation": answered, "past": past_turns(answered), "live": "", "notice": ""}
    if number == 1:
        view["box"] = ""
    return {
        **show(parts, view),
        stepping.words: str(said(words_of(event, before.held_bytes, before.conversation.turns[-1].answer))),
        stepping.looked: "" if event.look is None else str(look_card(event.look)),
        stepping.state: after,
    }


def words_of(event: Stepped, held_before: int, text_before: str) -> str:
    """What this step did, in words."""
    record = event.record
    computed, read = sum(record.positions_computed or ()), record.reused_tokens or 0
    layers = event.look.layers if event.look is not None else ()
    more = None if event.look is None else (record.cache_bytes or 0) - (held_before if read else 0)
    did = step_words(
        f"Step {format_count(len(event.made))}",
        computed,
        read,
        more_bytes=more,
        layers=layers,
        again=event.look is None and len(event.made) > 1,
    )
    piece = event.text.removeprefix(text_before)
    shown = f' It wrote "{piece}".' if piece else " Nothing of it can be read yet."
    return f"{did}{' The answer ended.' if event.ended else shown}"


def look(
    stepping: ChatStepping, backend: Backend, place: str, request: gr.Request, layer: Any, head: Any
) -> Iterator[Updates]:
    """Into what is kept now, after a step or after any answer."""
    try:
        looks = backend.look(
            layer=chosen("layer", layer), head=chosen("head", head), owner=owner_of(request, place), reader=CHATTING
        )
        for found in unhurried(looks):
            if isinstance(found, CacheLook):
                yield {stepping.looked: str(look_card(found))}
            elif found is None:
                yield {stepping.words: str(said(NOTHING_KEPT)), stepping.looked: ""}
            else:
                yield updates({})
    except KvdemoError as error:
        yield {stepping.words: str(said(str(error)))}


def said(words: str) -> Markup:
    return Markup('<p class="kv-said" role="status">{}</p>').format(Markup(text(words)))
