"""Chat's handlers, called as functions on a scripted backend."""

from __future__ import annotations

from typing import Any

import pytest

from kvdemo.errors import InvalidRequest, RunFailed
from kvdemo.facts.events import Waiting, Working
from kvdemo.facts.model import Failed, Loading
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message, SamplingParams
from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.chat.settings import ChatSettings
from kvdemo.ui.chat.turns import ChatView, act, answer, cleared, settled, take
from tests.fake_backend import ANSWER, FakeBackend, answer_events
from tests.known import sure


class Clock:
    """Every look at it lets `step_s` pass."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def asked(*turns: Turn, question: str = "Name three planets.") -> Conversation:
    return Conversation(turns).asked(question)


def views(
    backend: FakeBackend, conversation: Conversation, clock_step_s: float = 1.0, **settings: Any
) -> list[ChatView]:
    return list(answer(backend, conversation, ChatSettings(**settings), "me", clock=Clock(clock_step_s)))


def last_turn(view: ChatView) -> Turn:
    return view["conversation"].turns[-1]


def test_a_question_is_taken_and_the_composer_is_free_for_the_next() -> None:
    view = take(FakeBackend(), Conversation(), "hello")
    assert view["conversation"] == Conversation((Turn("hello"),), running=True)
    assert view["box"] == ""


@pytest.mark.parametrize("bad", ["", "   ", None, 7, [], "\ud800", "a\x00b", "x" * 200_001])
def test_what_is_no_message_is_refused_in_words_and_stays_in_the_composer(bad: Any) -> None:
    view = take(FakeBackend(), Conversation(), bad)
    assert "message" in view["notice"]
    assert "box" not in view
    assert "conversation" not in view


@pytest.mark.parametrize("status", [Loading("m", "weights, 2 of 3"), Failed("m", "no such model")])
def test_without_a_model_the_question_stays_in_the_composer(status: Any) -> None:
    view = take(FakeBackend(model=status), Conversation(), "hello")
    assert "kv-notice" in view["notice"]
    assert "box" not in view


def test_the_answer_streams_and_the_last_view_is_complete() -> None:
    backend = FakeBackend()
    shown = views(backend, asked())
    assert "Mars" in shown[-3]["live"]
    assert last_turn(shown[-1]).answer == ANSWER
    assert not shown[-1]["conversation"].running
    assert shown[-1]["live"] == ""
    assert backend.closed == ["me"]


def test_what_is_told_in_one_go_is_drawn_once_and_whole() -> None:
    waiting, encoded, half, whole, *tokens, end = answer_events(list("abcdefgh"))
    goes = [encoded, half, whole, *tokens[:3], Working(0.1), *tokens[3:7], Working(0.2), tokens[7], end]
    shown = views(FakeBackend(script=[waiting, *goes]), asked(), clock_step_s=0.001)
    assert len(shown) == 4
    assert [text in view["live"] for view, text in zip(shown[1:3], ("abc", "abcdefg"), strict=True)] == [True, True]
    assert "abcd" not in shown[1]["live"]
    assert last_turn(shown[-1]).answer == "abcdefgh"


def test_a_long_answer_is_drawn_less_often() -> None:
    def drawn(words: list[str]) -> int:
        return len(views(FakeBackend(script=answer_events(words)), asked(), clock_step_s=0.1))

    assert drawn(["x" * 200] * 100) < drawn(["x"] * 100) / 2


def test_waiting_and_long_steps_are_shown_so_that_a_reader_who_left_is_noticed() -> None:
    *start, token, end = answer_events(["x"])[1:]
    events = [Waiting(2), Waiting(2), Waiting(1), *start, Working(0.5), Working(1.0), token, Working(1.5), end]
    shown = views(FakeBackend(script=events), asked(), clock_step_s=0.5)
    assert sum("Waiting: 1 before you." in view.get("live", "") for view in shown) == 2
    assert len(shown) == 3 + 3 + 1


def test_what_is_typed_meanwhile_is_never_touched() -> None:
    assert all("box" not in view for view in views(FakeBackend(), asked()))


def test_settings_reach_the_run_checked() -> None:
    backend = FakeBackend()
    views(
        backend,
        asked(),
        system_prompt="be brief",
        strategy="static",
        max_new_tokens=7.0,
        temperature=0.5,
        seed=3.0,
        keep=False,
    )
    messages, keywords = backend.asked[0]
    assert messages[0] == Message("system", "be brief")
    assert (keywords["strategy"], keywords["max_new_tokens"], keywords["keep"]) == ("static", 7, False)
    assert isinstance(keywords["max_new_tokens"], int)
    assert sure(SamplingParams, keywords["sampling"]).seed == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0),
        ("top_k", 10**400),
        ("seed", -1),
        ("max_new_tokens", 0),
        ("max_new_tokens", "7"),
        ("max_new_tokens", None),
        ("max_new_tokens", 1e309),
    ],
)
def test_bad_settings_are_named_and_no_run_begins(field: str, value: Any) -> None:
    backend = FakeBackend()
    (view,) = views(backend, asked(), **{field: value})
    assert field in last_turn(view).note
    assert last_turn(view).failed
    assert backend.asked == []


def test_a_run_that_fails_keeps_what_was_written_and_says_why() -> None:
    record = RunRecord("dynamic", "failed", None, 4, text="half an ans")
    (view,) = views(FakeBackend(error=RunFailed("The model ran out of memory.", record)), asked())
    assert last_turn(view) == Turn("Name three planets.", "half an ans", "The model ran out of memory.", failed=True)
    assert not view["conversation"].running


def test_a_refused_run_says_why() -> None:
    (view,) = views(FakeBackend(error=InvalidRequest("messages", "8,410 of 8,192 tokens")), asked())
    assert "8,410 of 8,192 tokens" in last_turn(view).note


def test_a_stopped_answer_stays_marked() -> None:
    backend = FakeBackend()
    shown = []
    for view in answer(backend, asked(), ChatSettings(), "me", clock=Clock(1.0)):
        shown.append(view)
        if "Mars" in view.get("live", ""):
            backend.stop("me")
    assert last_turn(shown[-1]).note == "Stopped."
    assert last_turn(shown[-1]).answer == "Mars "


def test_leaving_closes_the_run() -> None:
    backend = FakeBackend()
    shown = answer(backend, asked(), ChatSettings(), "me")
    next(shown)
    shown.close()
    assert backend.closed == ["me"]


def test_nothing_runs_where_nothing_was_taken() -> None:
    backend = FakeBackend()
    (view,) = views(backend, Conversation())
    assert "past" not in view
    assert backend.asked == []


def test_retry_asks_the_same_question_again_from_any_turn() -> None:
    conversation = Conversation((Turn("a", "1"), Turn("b", "2")))
    view = act(FakeBackend(), "retry 0 17", conversation, "draft")
    assert view["conversation"] == Conversation((Turn("a"),), running=True)
    assert view["box"] == "draft"


def test_edit_puts_the_question_into_the_composer_and_gives_the_draft_back_afterwards() -> None:
    conversation = Conversation((Turn("a", "1"), Turn("b", "2")))
    editing = act(FakeBackend(), "edit 0 1", conversation, "draft")
    assert editing["box"] == "a"
    sent = take(FakeBackend(), editing["conversation"], "A")
    assert [turn.question for turn in sent["conversation"].turns] == ["A"]
    assert sent["box"] == "draft"


def test_undo_takes_the_turn_back_into_an_empty_composer() -> None:
    conversation = Conversation((Turn("a", "1"), Turn("b", "2")))
    assert act(FakeBackend(), "undo 1 1", conversation, "")["box"] == "b"
    assert act(FakeBackend(), "undo 1 1", conversation, "mine")["box"] == "mine"
    assert act(FakeBackend(), "undo 1 1", conversation, "")["conversation"].turns == (Turn("a", "1"),)


@pytest.mark.parametrize(
    "action", ["", "retry", "retry -1", "retry 9", "undo ٣", "edit 1e3", "drop 0", None, 7, "example 4"]
)
def test_an_action_that_is_none_does_nothing(action: Any) -> None:
    view = act(FakeBackend(), action, Conversation((Turn("a", "1"),)), "")
    assert "conversation" not in view


def test_no_action_while_an_answer_is_written() -> None:
    for view in (act(FakeBackend(), "retry 0", asked(), ""), take(FakeBackend(), asked(), "And another one.")):
        assert "An answer is being written. Your text stays here" in view["notice"]
        assert "conversation" not in view
        assert "box" not in view


def test_clear_frees_what_was_kept() -> None:
    backend = FakeBackend()
    assert cleared(backend, "me")["conversation"] == Conversation()
    assert backend.forgotten == ["me"]


def test_after_a_fault_of_ours_nothing_seems_to_run_any_more() -> None:
    view = settled(asked())
    assert not view["conversation"].running
    assert last_turn(view).failed
