"""What ends or refuses a run though nobody stopped it: its own fault, want of memory, the operator's limits, a full line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import httpx
import pytest

from kvdemo.settings import Limits
from tests.served import Served, served_puppet, wait_until
from tests.visitor import Visitor, api_result, event_id_of

LONG = b"All work and no play makes a long answer. " * 40


def failing(page: Served, visitor: Visitor, fault: Exception) -> str:
    """What the page says of an answer that ends by a fault after four tokens."""
    page.puppet.answer = LONG
    visitor.light("take", chat_box="Tell me everything.")
    with page.puppet.held(after=4):
        visitor.join("answer")
        page.puppet.wait_until_held()
        page.puppet.fault = fault
    with visitor.listening() as messages:
        return str(list(visitor.views("answer", messages))[-1]["chat-past"])


def test_a_fault_is_told_with_a_number_that_the_log_has_and_the_next_run_works(
    page: Served, visitor: Visitor, other: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    past = failing(page, visitor, ValueError("in /home/somebody/model.py: ids of shape (1, 5)"))
    assert "All" in past
    assert "kv-failed" in past
    number = re.search(r"\(error ([0-9a-f]{8})\)", past)
    assert number is not None
    assert len([line for line in caplog.text.splitlines() if number[1] in line]) == 1
    assert not [hint for hint in ("Traceback", "/home/somebody", "ValueError") if hint in past]
    page.puppet.answer = b"Here I am."
    for one in (visitor, other):
        assert "Here I am." in one.ask("And now?")["chat-past"]


def test_want_of_memory_drops_the_cache_and_nobody_elses(page: Served, visitor: Visitor, other: Visitor) -> None:
    page.puppet.answer = b"Here I am."
    for one in (visitor, other):
        one.ask("hi")
    past = failing(page, visitor, MemoryError())
    assert "not enough memory" in past
    assert page.backend.kept_bytes(visitor.owner("chat")) == 0
    assert page.backend.kept_bytes(other.owner("chat")) > 0
    page.puppet.answer = b"Here I am."
    assert "Here I am." in visitor.ask("And now?")["chat-past"]


def test_the_api_tells_a_fault_in_the_same_words(page: Served, http: httpx.Client) -> None:
    page.puppet.fault = RuntimeError("it broke in /home/somebody/model.py")
    event, told = api_result(http, "chat", message="hi")
    assert event == "error"
    assert re.search(r"\(error [0-9a-f]{8}\)", told["error"])
    assert "/home/somebody" not in told["error"]


def in_line(page: Served, length: int) -> bool:
    """Are so many at the turnstile, the one who runs among them?"""
    return bool(page.backend._engine.turnstile.length == length)


def test_the_wall_clock_ends_a_run_that_nobody_listens_to() -> None:
    with served_puppet(limits=Limits(run_s=0.05)) as page, httpx.Client(base_url=page.url, timeout=60) as http:
        page.puppet.answer = LONG * 5
        with page.puppet.held(after=2):
            event_id_of(http, "chat", message="hi", max_new_tokens=4000)
            page.puppet.wait_until_held()
            before = page.puppet.forwards
        wait_until(partial(in_line, page, 0), "the run is over")
        assert page.puppet.forwards - before < 4000


def test_a_full_line_says_so_and_lets_the_next_one_in_when_there_is_room() -> None:
    with served_puppet(limits=Limits(waiting=1)) as page, httpx.Client(base_url=page.url, timeout=60) as http:
        page.puppet.answer = b"Here I am."
        with ExitStack() as leaving:
            first, second, third = (leaving.enter_context(Visitor(page)) for _ in range(3))
            with page.puppet.held():
                for one in (first, second):
                    one.light("take", chat_box="hi")
                    one.join("answer")
                    wait_until(partial(in_line, page, 1 if one is first else 2), "he is in line")
                shown = third.ask("hi")
                assert "1 requests wait already" in shown["chat-past"]
                event, told = api_result(http, "chat", message="hi")
                assert (event, "Try again" in told["error"]) == ("error", True)
            wait_until(partial(in_line, page, 0), "both are answered")
            assert "Here I am." in third.ask("again")["chat-past"]


@pytest.fixture(scope="module")
def limited_page() -> Iterator[Served]:
    with served_puppet(limits=Limits(new_tokens=10, prompt_chars=100)) as page:
        yield page


@pytest.mark.parametrize(("field", "value"), [("max_new_tokens", 11), ("message", "x" * 101)])
def test_the_operators_limits_are_named(
    limited_page: Served, caplog: pytest.LogCaptureFixture, field: str, value: object
) -> None:
    caplog.set_level(logging.INFO)
    with httpx.Client(base_url=limited_page.url, timeout=60) as http:
        event, told = api_result(http, "chat", **{"message": "hi", "max_new_tokens": 5, field: value})
        assert event == "error"
        assert re.search(r"limit here(,| is) (10|100)\b", told["error"])
        assert limited_page.puppet.forwards == 0
