"""Ten turns on the real model with edits, an undo, retries and a stopped answer: the kept cache changes nothing but time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kvdemo.backend import Backend
from kvdemo.facts.events import Finished, PromptEncoded, TokenEmitted
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message
from kvdemo.settings import Settings
from tests.known import known

pytestmark = pytest.mark.real

Turns = list[tuple[str, str]]
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    made = Backend(Settings.from_environment(os.environ))
    made.start()
    made.wait_until_settled()
    made.describe()
    yield made
    made.close()


def messages(turns: Turns, question: str) -> tuple[Message, ...]:
    told = [Message("system", "You answer in a few words.")]
    for asked, answered in turns:
        told += [Message("user", asked), Message("assistant", answered)]
    return (*told, Message("user", question))


def ask(
    backend: Backend, turns: Turns, question: str, strategy: str, *, keep: bool, stop_after: int | None = None
) -> RunRecord:
    tokens = 0
    events = backend.chat(
        messages(turns, question),
        max_new_tokens=NEW_TOKENS,
        strategy=strategy,
        owner="me" if keep else "other",
        keep=keep,
    )
    for event in events:
        if isinstance(event, PromptEncoded) and keep and turns:
            assert event.reuse is not None
            assert event.reuse.how in ("continued", "cropped")
        tokens += isinstance(event, TokenEmitted)
        if tokens == stop_after:
            backend.stop("me")
    assert isinstance(event, Finished)
    return event.record


@pytest.mark.parametrize("strategy", ["dynamic", pytest.param("static", marks=pytest.mark.slow)])
def test_ten_turns_with_a_kept_cache_equal_fresh_runs_token_by_token(backend: Backend, strategy: str) -> None:
    turns: Turns = []
    reused = []

    def turn(question: str, stop_after: int | None = None) -> None:
        kept = ask(backend, turns, question, strategy, keep=True, stop_after=stop_after)
        fresh = ask(backend, turns, question, strategy, keep=False)
        length, ids = len(known(kept.token_ids)), known(fresh.token_ids)
        assert kept.token_ids == ids[:length]
        assert stop_after is not None or length == len(ids)
        reused.append(kept.reused_tokens)
        turns.append((question, kept.text))

    turn("Name three planets.")
    turn("Tell me one thing about the second.")
    turn("And the third?")
    turns.pop()  # retry the last answer
    turn("And the third?")
    turns[1:] = []  # edit the second question
    turn("Tell me one thing about Mars.")
    turn("How far away is it?", stop_after=3)
    turn("Go on.")
    turns.pop()  # undo
    turn("Is there 水 on it? 😀")
    turn("  Answer   in\tone word.")
    turn("Thank you.")
    assert reused[0] == 0
    assert all(known(count) > 0 for count in reused[1:])
    backend.release("me")
