"""What happens in a chat: a question is taken, answered event by event, stopped, retried, edited, undone, cleared.

Handlers take plain values, make one backend call and give back a ChatView; the tab maps it to components.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import gradio as gr

from kvdemo.components.markup import text
from kvdemo.components.run_view import RunView
from kvdemo.components.wiring import CHATTING
from kvdemo.errors import ContextFull, KvdemoError, RunFailed
from kvdemo.facts.events import Waiting, Working
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.requests import Message
from kvdemo.facts.units import format_bytes
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.messages import EXAMPLES, live_answer, past_turns
from kvdemo.ui.chat.panel import empty_panel, panel, phone_line
from kvdemo.ui.chat.settings import ChatSettings
from kvdemo.ui.chat.times import prefill_tokens_per_s, saved_words

__all__ = ["BUSY", "ChatView", "act", "answer", "cleared", "notice", "settled", "take", "updates"]

BUSY = "An answer is being written. Your text stays here: send it when the answer is done, or stop it first."
DRAWN_CHARS = 2000
ENDINGS = {
    "cancelled": "Stopped.",
    "length": "Ended at the longest answer you allow.",
    "timed_out": "Ended at the time limit of one run.",
}


@dataclass(frozen=True, slots=True)
class ChatView:
    """What the chat shows next, in the order of the tab's outputs.

    gr.skip() leaves a part as it is; Gradio writes into it, so each part gets one of its own.
    """

    conversation: Any = field(default_factory=gr.skip)
    box: Any = field(default_factory=gr.skip)
    past: Any = field(default_factory=gr.skip)
    live: Any = field(default_factory=gr.skip)
    notice: Any = field(default_factory=gr.skip)
    panel: Any = field(default_factory=gr.skip)
    line: Any = field(default_factory=gr.skip)


def updates(view: ChatView) -> list[Any]:
    """The view's parts, then Send, Stop and Clear, which follow from the conversation."""
    parts = [getattr(view, part.name) for part in fields(view)]
    if not isinstance(view.conversation, Conversation):
        return [*parts, gr.skip(), gr.skip(), gr.skip()]
    running = view.conversation.running
    something = bool(view.conversation.turns) and not running
    return [*parts, gr.update(visible=not running), gr.update(visible=running), gr.update(interactive=something)]


def take(backend: Any, conversation: Conversation, box: object) -> ChatView:
    """Take the question in the composer; a refusal says why and leaves the text where it is."""
    if conversation.running:
        return ChatView(notice=notice(BUSY))
    return _asked(backend, conversation, box, conversation.kept_draft)


def act(backend: Any, action: object, conversation: Conversation, box: object) -> ChatView:
    """Do what a button in the conversation asks: "retry 2", "edit 0", "undo 3", "example 1", "shorten 2"."""
    name, _, rest = action.partition(" ") if isinstance(action, str) else ("", "", "")
    number = rest.split(" ")[0]
    index = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else -1
    draft = box if isinstance(box, str) else ""
    if conversation.running:
        return ChatView(notice=notice(BUSY))
    if name == "example" and 0 <= index < len(EXAMPLES):
        return _asked(backend, conversation, EXAMPLES[index], draft)
    if name == "shorten" and conversation.turns and index == conversation.turns[-1].drop > 0:
        return _started(conversation.without_oldest(index), draft)
    if not 0 <= index < len(conversation.turns):
        return ChatView()
    question = conversation.turns[index].question
    if name == "retry":
        return _asked(backend, conversation.up_to(index), question, draft)
    if name == "edit":
        edited = conversation.editing_turn(index, draft)
        words = "You are editing an earlier message. Sending replaces it and everything after it."
        return ChatView(edited, question, past_turns(edited), notice=notice(words, kind="hint"))
    if name == "undo":
        shorter = conversation.up_to(index)
        return ChatView(shorter, draft or question, past_turns(shorter), "", "", _panel_after_undo(shorter))
    return ChatView()


def answer(
    backend: Any,
    conversation: Conversation,
    settings: ChatSettings,
    owner: str,
    *,
    kept_words: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ChatView]:
    """Answer the last question: one view each time the run has told what is new, the last one complete."""
    if not conversation.running:
        # Gradio empties every output of a generator that yields nothing.
        yield ChatView()
        return
    view = RunView(strategy=str(settings.strategy), kept=settings.keep is True)
    facts, strategy = _model(backend, view.strategy)
    speed = prefill_tokens_per_s(conversation)
    shown_at = -math.inf

    def drawn(kept: str = kept_words) -> Any:
        if not view.prompt_tokens:
            return gr.skip()
        return panel(view, facts, strategy, kept, saved_words(view.reused_tokens, speed))

    def failed(words: str, written: str, drop: int = 0) -> ChatView:
        done = conversation.answered(written, note=words, failed=True, drop=drop)
        return ChatView(done, gr.skip(), past_turns(done), "", "", drawn(), phone_line(view))

    try:
        events = backend.chat(
            conversation.messages(settings.system_prompt if isinstance(settings.system_prompt, str) else ""),
            max_new_tokens=settings.longest(),
            strategy=settings.strategy,
            sampling=settings.sampling(),
            owner=owner,
            keep=settings.keep is True,
            reader=CHATTING,
        )
        try:
            for event in events:
                view = view.after(event)
                # A long answer takes longer to draw: it is drawn less often.
                pace_s = CHATTING.every_s * (len(view.text) // DRAWN_CHARS)
                if not isinstance(event, Waiting | Working) or clock() - shown_at < pace_s:
                    continue
                shown_at = clock()
                yield ChatView(live=live_answer(view), panel=drawn(), line=phone_line(view))
        finally:
            events.close()
    except ContextFull as error:
        yield failed(error.message, "", error.drop_turns)
        return
    except RunFailed as error:
        yield failed(str(error), error.record.text)
        return
    except KvdemoError as error:
        yield failed(str(error), view.text)
        return
    reason = view.record.finish_reason if view.record else None
    record = replace(view.record, text="", cache_bytes_by_token=(), cache_layers=()) if view.record else None
    done = conversation.answered(view.text, note=ENDINGS.get(reason or "", ""), figures=view.figures, record=record)
    kept_bytes = backend.kept_bytes(owner) if settings.keep is True else 0
    kept = f"Kept for the next turn: {format_bytes(kept_bytes)}. {kept_words}" if kept_bytes else kept_words
    yield ChatView(done, gr.skip(), past_turns(done), "", "", drawn(kept), phone_line(view))


def settled(conversation: Conversation) -> ChatView:
    """The conversation after an answer that ended by a fault of ours: nothing runs any more."""
    if not conversation.running:
        return ChatView()
    words = "Something went wrong on our side; the log of this program says what. Retry, or edit your message."
    done = conversation.answered("", note=words, failed=True)
    return ChatView(done, past=past_turns(done), live="")


def cleared(backend: Any, owner: str) -> ChatView:
    """An empty conversation; what was kept for it is freed."""
    backend.forget(owner)
    return ChatView(Conversation(), gr.skip(), past_turns(Conversation()), "", "", empty_panel(), "")


def _asked(backend: Any, conversation: Conversation, question: object, box_after: str) -> ChatView:
    try:
        Message("user", question)  # type: ignore[arg-type]
        backend.describe()
    except KvdemoError as error:
        return ChatView(notice=notice(str(error)))
    return _started(conversation.asked(str(question)), box_after)


def _started(asked: Conversation, box_after: str) -> ChatView:
    return ChatView(asked, box_after, past_turns(asked), live_answer(RunView()), "")


def _model(backend: Any, key: str) -> tuple[ModelFacts | None, StrategyRow | None]:
    try:
        facts = backend.describe()
    except KvdemoError:
        return None, None
    return facts, next((row for row in backend.strategies() if row.key == key), None)


def _panel_after_undo(conversation: Conversation) -> Any:
    return gr.skip() if conversation.turns else empty_panel()


def notice(words: str, kind: str = "problem") -> str:
    """Words for above the composer: a problem, or a hint."""
    role = "alert" if kind == "problem" else "status"
    return f'<div class="kv-notice kv-notice-{kind}" role="{role}">{text(words)}</div>'
