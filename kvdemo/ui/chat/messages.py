"""The conversation as fragments: turns with what may be done to them, the answer being written, the empty state.

Buttons carry classes that assets/page.js reads; the server checks again what they ask for.
"""

from __future__ import annotations

from markupsafe import Markup

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
    turns = Markup("").join((_turn(conversation, index, turn) for index, turn in enumerate(conversation.turns)))
    return Markup('<div class="kv-turns">{}</div>').format(turns)


def live_answer(view: RunView) -> str:
    """The answer that is being written, with the place where the next token will appear."""
    if not view.text:
        words = view.state_words
        return Markup('<div class="kv-answer kv-live"><p class="kv-state">{}</p></div>').format(text(words))
    return Markup('<div class="kv-answer kv-live">{}</div>').format(answer_html(view.text, cursor=True))


def _turn(conversation: Conversation, index: int, turn: Turn) -> str:
    last = index == len(conversation.turns) - 1
    being_answered = last and conversation.running
    edit = "" if conversation.running else _button("edit", index, "Edit")
    edited = " kv-edited" if conversation.editing is not None and index >= conversation.editing else ""
    question = Markup(
        '<div class="kv-question{}"><div class="kv-text">{}</div></div><div class="kv-tools kv-tools-right">{}</div>'
    ).format(edited, text(turn.question), edit)
    return question if being_answered else question + _answer(conversation, index, turn, last, edited)


def _answer(conversation: Conversation, index: int, turn: Turn, last: bool, edited: str) -> str:
    body = answer_html(turn.answer) if turn.answer else ""
    note = (
        Markup('<p class="{}">{}</p>').format("kv-failed" if turn.failed else "kv-note", text(turn.note))
        if turn.note
        else ""
    )
    tools = _button("copy", index, "Copy") if turn.answer else ""
    if turn.drop and last and not conversation.running:
        turns = "the oldest turn" if turn.drop == 1 else f"the {turn.drop} oldest turns"
        tools += _button("shorten", turn.drop, f"Drop {turns} and ask again")
    if not conversation.running:
        tools += _button("retry", index, "Retry") + (_button("undo", index, "Undo") if last else "")
    figures = Markup('<span class="kv-turn-figures">{}</span>').format(text(turn.figures)) if turn.figures else ""
    return Markup('<div class="kv-answer{}">{}{}</div><div class="kv-tools">{}{}</div>').format(
        edited, body, note, tools, figures
    )


def _button(action: str, index: int, words: str) -> str:
    return Markup('<button type="button" class="kv-act kv-act-{} kv-at-{}">{}</button>').format(action, index, words)


def _empty_state() -> str:
    buttons = Markup("").join(
        (
            Markup('<button type="button" class="kv-act kv-act-example kv-at-{}">{}</button>').format(
                index, text(example)
            )
            for index, example in enumerate(EXAMPLES)
        )
    )
    return Markup(
        '<div class="kv-empty"><p class="kv-empty-title">Ask something.</p><p>'
        "Then ask again and see how much of the first turn is reused.</p>"
        '<div class="kv-examples">{}</div></div>'
    ).format(buttons)
