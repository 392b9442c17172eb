"""What happens in a chat: a question is taken, answered event by event, stopped, retried, edited, undone, cleared.

Plain values in, one backend call, a ChatView out; layout.py maps it to components.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TypedDict

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
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

__all__ = ["BUSY", "ChatView", "act", "answer", "cleared", "notice", "opened", "settled", "take"]

BUSY = "An answer is being written. Your text stays here: send it when the answer is done, or stop it first."
DRAWN_CHARS = 2000
ENDINGS = {
    "cancelled": "Stopped.",
    "length": "Ended at the longest answer you allow.",
    "timed_out": "Ended at the time limit of one run.",
}


class ChatView(TypedDict, total=False):
    """What the chat shows next; a part that is not named stays as it is."""

    conversation: Conversation
    box: str
    past: str
    live: str
    notice: str
    panel: str
    line: str


def take(backend: Backend, conversation: Conversation, box: object, *, at_server: bool = False) -> ChatView:
    """Take the question in the composer; a refusal says why and leaves the text where it is.

    at_server   a server is to answer it: no model needs to be loaded here
    """
    if conversation.running:
        return {"notice": notice(BUSY)}
    return _asked(backend, conversation, box, conversation.kept_draft, at_server)


def act(
    backend: Backend, action: object, conversation: Conversation, box: object, *, at_server: bool = False
) -> ChatView:
    """Do what a button in the conversation asks: "retry 2", "edit 0", "undo 3", "example 1", "shorten 2"."""
    name, _, rest = action.partition(" ") if isinstance(action, str) else ("", "", "")
    number = rest.split(" ")[0]
    index = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else -1
    draft = box if isinstance(box, str) else ""
    if conversation.running:
        return {"notice": notice(BUSY)}
    if name == "example" and 0 <= index < len(EXAMPLES):
        return _asked(backend, conversation, EXAMPLES[index], draft, at_server)
    if name == "shorten" and conversation.turns and index == conversation.turns[-1].drop > 0:
        return _started(conversation.without_oldest(index), draft)
    if not 0 <= index < len(conversation.turns):
        return {}
    question = conversation.turns[index].question
    if name == "retry":
        return _asked(backend, conversation.up_to(index), question, draft, at_server)
    if name == "edit":
        edited = conversation.editing_turn(index, draft)
        words = "You are editing an earlier message. Sending replaces it and everything after it."
        return {
            "conversation": edited,
            "box": question,
            "past": past_turns(edited),
            "notice": notice(words, kind="hint"),
        }
    if name == "undo":
        shorter = conversation.up_to(index)
        view: ChatView = {
            "conversation": shorter,
            "box": draft or question,
            "past": past_turns(shorter),
            "live": "",
            "notice": "",
        }
        return view if shorter.turns else {**view, "panel": empty_panel()}
    return {}


def answer(
    backend: Backend,
    conversation: Conversation,
    settings: ChatSettings,
    owner: str,
    *,
    kept_words: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Generator[ChatView, None, None]:
    """Answer the last question: one view each time the run has told what is new, the last one complete."""
    if not conversation.running:
        # Gradio empties every output of a generator that yields nothing.
        yield {}
        return
    served = settings.at_server
    strategy_key = "" if served else str(settings.strategy)
    view = RunView(strategy=strategy_key, kept=settings.keep is True and not served, served=served)
    facts, strategy = (None, None) if served else _model(backend, view.strategy)
    speed = prefill_tokens_per_s(conversation)
    shown_at = -math.inf

    def drawn(kept: str = kept_words) -> ChatView:
        """The run to scale and in one line."""
        shown: ChatView = {"line": phone_line(view)}
        if view.prompt_tokens or view.served:
            saved = "" if view.served else saved_words(view.reused_tokens, speed)
            shown["panel"] = panel(view, facts, strategy, kept, saved)
        return shown

    def ended(done: Conversation, kept: str = kept_words) -> ChatView:
        return {"conversation": done, "past": past_turns(done), "live": "", "notice": "", **drawn(kept)}

    def failed(words: str, written: str, drop: int = 0) -> ChatView:
        return ended(conversation.answered(written, note=words, failed=True, drop=drop))

    try:
        events = backend.chat(
            conversation.messages(settings.system_prompt if isinstance(settings.system_prompt, str) else ""),
            max_new_tokens=settings.longest(),
            strategy=settings.strategy,
            sampling=settings.sampling(),
            owner=owner,
            keep=view.kept,
            reader=CHATTING,
            endpoint=settings.server(),
        )
        try:
            for event in events:
                view = view.after(event)
                # A long answer takes longer to draw: it is drawn less often.
                pace_s = CHATTING.every_s * (len(view.text) // DRAWN_CHARS)
                if not isinstance(event, Waiting | Working) or clock() - shown_at < pace_s:
                    continue
                shown_at = clock()
                yield {"live": live_answer(view), **drawn()}
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
    kept_bytes = backend.kept_bytes(owner) if view.kept else 0
    kept = f"Kept for the next turn: {format_bytes(kept_bytes)}. {kept_words}" if kept_bytes else kept_words
    yield ended(done, kept)


def settled(conversation: Conversation) -> ChatView:
    """The conversation after an answer that ended by a fault of ours: nothing runs any more."""
    if not conversation.running:
        return {}
    words = "Something went wrong on our side; the log of this program says what. Retry, or edit your message."
    done = conversation.answered("", note=words, failed=True)
    return {"conversation": done, "past": past_turns(done), "live": ""}


def cleared(backend: Backend, owner: str) -> ChatView:
    """An empty conversation; what was kept for it is freed."""
    backend.forget(owner)
    return opened(Conversation())


def opened(conversation: Conversation) -> ChatView:
    """A conversation that comes from elsewhere, or an empty one; no run of it is known."""
    return {
        "conversation": conversation,
        "past": past_turns(conversation),
        "live": "",
        "notice": "",
        "panel": empty_panel(),
        "line": "",
    }


def _asked(backend: Backend, conversation: Conversation, question: object, box_after: str, at_server: bool) -> ChatView:
    try:
        Message("user", question)  # type: ignore[arg-type]
        if not at_server:
            backend.describe()
    except KvdemoError as error:
        return {"notice": notice(str(error))}
    return _started(conversation.asked(str(question)), box_after)


def _started(asked: Conversation, box_after: str) -> ChatView:
    return {
        "conversation": asked,
        "box": box_after,
        "past": past_turns(asked),
        "live": live_answer(RunView()),
        "notice": "",
    }


def _model(backend: Backend, key: str) -> tuple[ModelFacts | None, StrategyRow | None]:
    try:
        facts = backend.describe()
    except KvdemoError:
        return None, None
    return facts, next((row for row in backend.strategies() if row.key == key), None)


def notice(words: str, kind: str = "problem") -> str:
    """Words for above the composer: a problem, or a hint."""
    role = "alert" if kind == "problem" else "status"
    return Markup('<div class="kv-notice kv-notice-{}" role="{}">{}</div>').format(kind, role, text(words))
