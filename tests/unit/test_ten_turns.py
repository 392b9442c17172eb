"""Ten turns on the real model with edits, undos, retries, a stopped answer and another system prompt.

A kept cache changes nothing but time, and reuses what was predicted from the ids alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kvdemo.backend import Backend
from kvdemo.facts.events import Finished, PromptEncoded, TokenEmitted
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message
from kvdemo.facts.templates import TemplateMessage, TemplateRequest
from kvdemo.questions.conversations.spec import Asked, ConversationsResult, ConversationsSpec, Talk
from kvdemo.settings import Settings
from tests.known import known

pytestmark = pytest.mark.real

Turns = list[tuple[str, str]]
SYSTEM = "You answer in a few words."


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    made = Backend(Settings.from_environment(os.environ))
    made.start()
    made.wait_until_settled()
    made.describe()
    yield made
    made.close()


@dataclass(frozen=True)
class Played:
    """A turn, with the cache of the turns before it and without; stopped: only with it, before its end."""

    messages: tuple[Message, ...]
    kept: RunRecord
    fresh: RunRecord
    stopped: bool


def messages(turns: Turns, question: str, system: str) -> tuple[Message, ...]:
    told = [Message("system", system)]
    for asked, answered in turns:
        told += [Message("user", asked), Message("assistant", answered)]
    return (*told, Message("user", question))


def ask(
    backend: Backend,
    told: tuple[Message, ...],
    strategy: str,
    new_tokens: int,
    *,
    keep: bool,
    stop_after: int | None = None,
) -> RunRecord:
    tokens = 0
    events = backend.chat(
        told, max_new_tokens=new_tokens, strategy=strategy, owner="me" if keep else "other", keep=keep
    )
    for event in events:
        if isinstance(event, PromptEncoded) and keep and len(told) > 2:
            assert event.reuse is not None
            assert event.reuse.how in ("continued", "cropped")
        tokens += isinstance(event, TokenEmitted)
        if tokens == stop_after:
            backend.stop("me")
    assert isinstance(event, Finished)
    return event.record


def ten_turns(backend: Backend, strategy: str, new_tokens: int) -> list[Played]:
    turns: Turns = []
    played: list[Played] = []

    def turn(question: str, system: str = SYSTEM, stop_after: int | None = None) -> None:
        told = messages(turns, question, system)
        kept = ask(backend, told, strategy, new_tokens, keep=True, stop_after=stop_after)
        fresh = ask(backend, told, strategy, new_tokens, keep=False)
        played.append(Played(told, kept, fresh, stop_after is not None))
        turns.append((question, kept.text))

    turn("Name three planets.")
    turn("Tell me one thing about the second.")
    turn("And the third?")
    turns.pop()  # retry the last answer
    turn("And the third?")
    turns[1:] = []  # edit the second question
    turn("Tell me one thing about Mars.", stop_after=2)
    turn("How far away is it?", f"{SYSTEM} It is 12:01.")
    turn("Go on.", f"{SYSTEM} It is 12:02.")
    turns.pop()  # undo
    turn("Is there 水 on it? 😀", f"{SYSTEM} It is 12:02.")
    turn("  Answer   in\tone word.", f"{SYSTEM} It is 12:02.")
    turn("Thank you.", f"{SYSTEM} It is 12:02.")
    backend.release("me")
    return played


def asked(turn: Played) -> Asked:
    """What was rendered and answered, for the question that predicts how much of it is reused."""
    request = TemplateRequest(tuple(TemplateMessage(one.role, one.content) for one in turn.messages))
    return Asked(request, TemplateMessage("assistant", turn.kept.text), turn.kept.token_ids)


@pytest.mark.parametrize(
    ("strategy", "new_tokens"),
    [
        ("dynamic", 5),
        pytest.param("dynamic", 12, marks=pytest.mark.slow),
        pytest.param("static", 12, marks=pytest.mark.slow),
    ],
)
def test_ten_turns_with_a_kept_cache_equal_fresh_runs_token_by_token_and_reuse_what_was_predicted(
    backend: Backend, strategy: str, new_tokens: int
) -> None:
    played = ten_turns(backend, strategy, new_tokens)
    assert len(played) == 10
    for turn in played:
        kept, fresh = known(turn.kept.token_ids), known(turn.fresh.token_ids)
        assert kept == (fresh[: len(kept)] if turn.stopped else fresh)
    reused = [known(turn.kept.reused_tokens) for turn in played]
    assert reused[0] == 0
    assert all(count > 0 for count in reused[1:])
    *_, result = backend.ask(ConversationsSpec((Talk("chat", tuple(map(asked, played))),)))
    assert isinstance(result, ConversationsResult)
    assert [turn.reused_tokens["1"] for turn in result.conversations[0].turns] == reused
