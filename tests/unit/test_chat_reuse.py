"""Would this conversation be reused: Chat's button, and its prediction beside what Chat's kept cache really reuses."""

from __future__ import annotations

import os
from typing import Any, cast

import gradio as gr
import pytest

from kvdemo.backend import Backend
from kvdemo.facts.events import Finished
from kvdemo.facts.requests import Message
from kvdemo.facts.templates import TemplateMessage, TemplateRequest
from kvdemo.questions.conversations.spec import Asked, ConversationsResult, ConversationsSpec, Talk
from kvdemo.settings import Settings
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


@pytest.mark.real
def test_predicted_reuse_is_what_the_kept_cache_really_reuses_over_ten_turns() -> None:
    """By real ids: edits, an undo, a retry, a stopped answer, and a system prompt that changes."""
    backend = Backend(Settings.from_environment(os.environ))
    backend.start()
    backend.wait_until_settled()
    really: list[int] = []
    asked: list[Asked] = []
    turns: list[tuple[str, str]] = []

    def turn(question: str, system: str = "You answer in a few words.") -> None:
        said = [Message("system", system)]
        for one, other in turns:
            said += [Message("user", one), Message("assistant", other)]
        messages = (*said, Message("user", question))
        *_, finished = backend.chat(messages, max_new_tokens=12, owner="me", keep=True)
        assert isinstance(finished, Finished)
        record = finished.record
        told = tuple(TemplateMessage(one.role, one.content) for one in messages)
        answer = TemplateMessage("assistant", record.text)
        asked.append(Asked(TemplateRequest(told), answer, record.token_ids))
        assert record.reused_tokens is not None
        really.append(record.reused_tokens)
        turns.append((question, record.text))

    try:
        turn("Name three planets.")
        turn("Tell me one thing about the second.")
        turn("And the third?")
        turns.pop()  # retry
        turn("And the third?")
        turns[1:] = []  # edit the second question
        turn("Tell me one thing about Mars.")
        turn("How far away is it?", system="You answer in a few words. It is 12:01.")
        turn("Go on.", system="You answer in a few words. It is 12:02.")
        turns.pop()  # undo
        turn("Is there 水 on it? 😀", system="You answer in a few words. It is 12:02.")
        turn("  Answer   in\tone word.", system="You answer in a few words. It is 12:02.")
        turn("Thank you.")
        *_, result = backend.ask(ConversationsSpec((Talk("chat", tuple(asked)),)))
    finally:
        backend.close()
    assert isinstance(result, ConversationsResult)
    predicted = [turn.reused_tokens["1"] for turn in result.conversations[0].turns]
    assert predicted == really
    assert len(predicted) == 10
    assert all(count > 0 for count in really[1:])
