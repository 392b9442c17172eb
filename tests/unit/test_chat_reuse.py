"""Would this conversation be reused: Chat's button. Its prediction is held against a kept cache in test_ten_turns.py."""

from __future__ import annotations

from typing import Any, cast

import gradio as gr

from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.chat.reuse import ChatReuse, asked_in, tell
from tests.fake_backend import FakeBackend, record_of

NOBODY = cast(gr.Request, None)


def told_of(conversation: Conversation) -> str:
    with gr.Blocks():
        parts = ChatReuse(gr.Button(), gr.Markdown())
    backend: Any = FakeBackend()
    return str(tell(parts, backend, NOBODY, conversation, "Be brief.")[parts.words])


def turn(question: str, answer: str) -> Turn:
    return Turn(question, answer, record=record_of(list(answer), [0.1] * len(answer), 9, "dynamic", "stop"))


def test_every_answered_turn_is_compared_by_the_ids_that_were_written_and_the_next_question_counts_the_last() -> None:
    conversation = Conversation((turn("One?", "yes"), Turn("Two?", note="Stopped."), turn("Three?", "no")))
    first, second, after = asked_in(conversation, "Be brief.")
    assert first.answer_ids == (1000, 1001, 1002)
    assert [one.content for one in first.request.messages] == ["Be brief.", "One?"]
    assert [one.content for one in second.request.messages] == ["Be brief.", "One?", "yes", "Three?"]
    assert [one.content for one in after.request.messages][:5] == ["Be brief.", "One?", "yes", "Three?", "no"]
    assert after.answer is None


def test_the_button_says_how_much_or_that_there_is_nothing_yet() -> None:
    assert "would be reused" in told_of(Conversation((Turn("One?", "yes"),)))
    assert "no answer yet" in told_of(Conversation())
    assert "no answer yet" in told_of(Conversation((Turn("One?", note="Stopped."),)))
