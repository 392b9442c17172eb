"""The conversation as fragments: turns with what may be done to them, the answer being written, the empty state.

Buttons carry classes that assets/page.js reads; the server checks again what they ask for.
"""

from __future__ import annotations

from kvdemo.components.markup import text
from kvdemo.components.run_view import RunView
from kvdemo.ui.chat.answer_text import answer_html
from kvdemo.ui.chat.conversation import Conversation, Turn

__all__ = ["EXAMPLES", "live_answer", "past_turns"]

EXAMPLES = (
    "Name three planets.",
    "Explain a cache to a ten-year-old.",
    "Write a haiku about memory.",
    "Give me five words that rhyme with light.",
)


def past_turns(conversation: Conversation) -> str:
    """All that is written: every turn, or the empty state with four examples."""
    if not conversation.turns:
        return _empty_state()
    turns = "".join(_turn(conversation, index, turn) for index, turn in enumerate(conversation.turns))
    return f'<div class="kv-turns">{turns}</div>'


def live_answer(view: RunView) -> str:
    """The answer that is being written, with the place where the next token will appear."""
    if not view.text:
        words = view.state_words
        return f'<div class="kv-answer kv-live"><p class="kv-state">{text(words)}</p></div>'
    return f'<div class="kv-answer kv-live">{answer_html(view.text, cursor=True)}</div>'


def _turn(conversation: Conversation, index: int, turn: Turn) -> str:
    last = index == len(conversation.turns) - 1
    being_answered = last and conversation.running
    edit = "" if conversation.running else _button("edit", index, "Edit")
    edited = " kv-edited" if conversation.editing is not None and index >= conversation.editing else ""
    question = (
        f'<div class="kv-question{edited}"><div class="kv-text">{text(turn.question)}</div></div>'
        f'<div class="kv-tools kv-tools-right">{edit}</div>'
    )
    return question if being_answered else question + _answer(conversation, index, turn, last, edited)


def _answer(conversation: Conversation, index: int, turn: Turn, last: bool, edited: str) -> str:
    body = answer_html(turn.answer) if turn.answer else ""
    note = f'<p class="{"kv-failed" if turn.failed else "kv-note"}">{text(turn.note)}</p>' if turn.note else ""
    tools = _button("copy", index, "Copy") if turn.answer else ""
    if turn.drop and last and not conversation.running:
        turns = "the oldest turn" if turn.drop == 1 else f"the {turn.drop} oldest turns"
        tools += _button("shorten", turn.drop, f"Drop {turns} and ask again")
    if not conversation.running:
        tools += _button("retry", index, "Retry") + (_button("undo", index, "Undo") if last else "")
    figures = f'<span class="kv-turn-figures">{text(turn.figures)}</span>' if turn.figures else ""
    return f'<div class="kv-answer{edited}">{body}{note}</div><div class="kv-tools">{tools}{figures}</div>'


def _button(action: str, index: int, words: str) -> str:
    return f'<button type="button" class="kv-act kv-act-{action} kv-at-{index}">{words}</button>'


def _empty_state() -> str:
    buttons = "".join(
        f'<button type="button" class="kv-act kv-act-example kv-at-{index}">{text(example)}</button>'
        for index, example in enumerate(EXAMPLES)
    )
    return (
        '<div class="kv-empty"><p class="kv-empty-title">Ask something.</p>'
        "<p>Then ask again and see how much of the first turn is reused.</p>"
        f'<div class="kv-examples">{buttons}</div></div>'
    )
