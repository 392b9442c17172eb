"""Runs over HTTP: stopped, dropped, cancelled, waiting, side by side. The model moves only as far as a test lets it."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.alive import live_cache_bytes, own_threads
from tests.served import Served, wait_until
from tests.visitor import Visitor, api_events, event_id_of

LONG = b"All work and no play makes a long answer. " * 40
LONGEST = {"chat_longest": 1500, "chat_keep": False}


@contextmanager
def asked(visitor: Visitor, question: str, **elements: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """Send a question on the page and watch its answer; leaving the block drops the connection."""
    visitor.light("take", chat_box=question)
    visitor.join("answer", **{**LONGEST, **elements})
    with visitor.listening() as messages:
        yield visitor.views("answer", messages)


def until_it_stands(page: Served, views: Iterator[dict[str, Any]]) -> None:
    page.puppet.wait_until_held()
    next(views)


def last_past(views: Iterator[dict[str, Any]]) -> str:
    """The conversation as it stands when the run is over."""
    return str(list(views)[-1]["chat-past"])


def test_stop_ends_the_work_before_the_next_token_and_keeps_what_was_written(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=6), asked(visitor, "Tell me everything.") as views:
        until_it_stands(page, views)
        before = page.puppet.forwards
        visitor.light("stop@chat-stop")
        page.puppet.let_go()
        past = last_past(views)
    page.puppet.wait_until_idle()
    # The one that stood still is let through to the stop flag and computes nothing.
    assert page.puppet.forwards <= before + 1
    assert "All wo" in past
    assert "Stopped." in past


def test_a_second_stop_changes_nothing_and_the_next_run_works(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as views:
        until_it_stands(page, views)
        visitor.light("stop@chat-stop")
        visitor.light("stop@chat-stop")
        page.puppet.let_go()
        last_past(views)
    page.puppet.answer = b"Here I am."
    assert "Here I am." in visitor.ask("And now?")["chat-past"]


def test_stop_in_one_tab_leaves_the_other_visitors_run_alone(page: Served, visitor: Visitor, other: Visitor) -> None:
    page.puppet.answer = b"All of it."
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as views:
        until_it_stands(page, views)
        other.light("stop@chat-stop")
        other.light("stop@compare-faster-stop")
        visitor.light("stop@compare-faster-stop")
        page.puppet.let_go()
        assert "All of it." in last_past(views)


def test_a_second_visitor_sees_his_place_and_can_stop_while_he_waits(
    page: Served, visitor: Visitor, other: Visitor
) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as first:
        until_it_stands(page, first)
        with asked(other, "And me?") as second:
            waiting = next(view["chat-live"] for view in second if view["chat-live"])
            assert "You are next." in waiting
            before = page.puppet.forwards
            other.light("stop@chat-stop")
            assert "Stopped." in last_past(second)
            assert page.puppet.forwards == before
        visitor.light("stop@chat-stop")
        page.puppet.let_go()
        last_past(first)


def test_a_run_that_is_cancelled_in_its_prefill_is_over_before_the_next_one_begins(
    page: Served, visitor: Visitor, http: httpx.Client
) -> None:
    page.puppet.answer = b"Done."
    page.puppet.most_at_once = 0
    with page.puppet.held():
        visitor.light("take", chat_box="Tell me everything.")
        number = visitor.join("answer", **LONGEST)
        page.puppet.wait_until_held()
        cancelled = {"session_hash": visitor.session, "fn_index": 0, "event_id": number}
        # It does not wait for a forward that goes on and on, and neither does anybody else.
        visitor.http.post("/gradio_api/cancel", json=cancelled).raise_for_status()
        told = []
        for _, data in api_events(http, "chat", message="And now?", max_new_tokens=20):
            told.append(data[0]["event"])
            page.puppet.let_go()
    assert (told[0], told[-1]) == ("waiting", "finished")
    assert page.puppet.most_at_once == 1


@pytest.mark.parametrize("endpoint", ["chat", "compare"])
def test_who_leaves_in_the_middle_of_a_long_forward_stops_nobody_else(
    page: Served, visitor: Visitor, http: httpx.Client, endpoint: str
) -> None:
    asked = {"chat": {"message": "hi"}, "compare": {"prompt": "hi"}}[endpoint]
    with page.puppet.held():
        number = event_id_of(http, endpoint, **asked)
        with http.stream("GET", f"/gradio_api/call/v2/{endpoint}/{number}") as stream:
            page.puppet.wait_until_held()
            next(line for line in stream.iter_lines() if line.startswith("data:"))
        queue = page.demo._queue
        wait_until(lambda: number not in queue.event_ids_to_events, "the server has let the one who left go")
        assert (
            "tokens" in visitor.light("count_tokens", compare_faster_prompt="The red cat was")["compare-faster-count"]
        )
    page.puppet.wait_until_idle()


def test_light_parts_answer_while_a_run_is_going(page: Served, visitor: Visitor, other: Visitor) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as views:
        until_it_stands(page, views)
        before = page.puppet.forwards
        with httpx.Client(base_url=page.url, timeout=60) as http:
            event, plan = list(api_events(http, "memory", seq_len=1024, batch_size=2))[-1]
        assert (event, plan[0]["request"]["seq_len"]) == ("complete", 1024)
        assert (
            "15 tokens" in other.light("count_tokens", compare_faster_prompt="The red cat was")["compare-faster-count"]
        )
        assert "tiny" in other.light("status")["kv-header"]
        planned = other.light("seen@tab-memory", memory_length=2048)
        assert "2,048" in planned["memory-headline"]
        # All of this while the run stood where it stood.
        assert page.puppet.forwards == before
        visitor.light("stop@chat-stop")
        page.puppet.let_go()
        last_past(views)


@pytest.mark.parametrize("drops", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_dropped_connections_end_their_runs_and_leave_nothing_behind(page: Served, drops: int) -> None:
    page.puppet.answer = LONG * 4

    def drop() -> None:
        with Visitor(page) as passing, passing.open_page():
            settings = {"chat_keep": True, "chat_longest": 4000}
            with page.puppet.held(after=4), asked(passing, "Tell me everything.", **settings) as views:
                until_it_stands(page, views)
            page.puppet.wait_until_idle()

    drop()
    forwards, threads, held = page.puppet.forwards, own_threads(), live_cache_bytes()
    for _ in range(drops):
        drop()
    wait_until(lambda: len(own_threads()) <= len(threads), "no thread is left over")
    wait_until(lambda: live_cache_bytes() <= held, "no cache is left over")
    assert page.backend._engine.turnstile.length == 0
    # Far fewer than the 4,000 tokens that each was to have.
    assert page.puppet.forwards - forwards < drops * 1000


def test_closing_the_page_stops_its_run_and_keeps_no_cache_of_it(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = LONG * 4
    with page.puppet.held(after=4):
        with visitor.open_page():
            visitor.light("take", chat_box="Tell me everything.")
            visitor.join("answer", chat_keep=True, chat_longest=4000)
            page.puppet.wait_until_held()
            before = page.puppet.forwards
        [flag] = page.backend._engine._stops[visitor.owner("chat")]
        assert flag.wait(60), "the closed page's run was never told to stop"
    page.puppet.wait_until_idle()
    assert page.puppet.forwards <= before + 1
    assert page.backend.kept_bytes(visitor.owner("chat")) == 0


def test_a_dropped_api_call_ends_its_run(page: Served, http: httpx.Client) -> None:
    page.puppet.answer = LONG * 4
    with page.puppet.held(after=4):
        number = event_id_of(http, "chat", message="Tell me everything.", max_new_tokens=4000)
        with http.stream("GET", f"/gradio_api/call/v2/chat/{number}") as stream:
            page.puppet.wait_until_held()
            next(line for line in stream.iter_lines() if line.startswith("data:"))
    page.puppet.wait_until_idle()
    wait_until(lambda: page.backend._engine.turnstile.length == 0, "the turnstile is free")


def test_three_prompts_at_once_get_exactly_their_own_answers(page: Served, http: httpx.Client) -> None:
    prompts = ["The quick brown fox", "A slow green turtle", "Name three planets."]

    def answer(prompt: str) -> Any:
        with httpx.Client(base_url=page.url, timeout=60) as own:
            told = [data[0] for event, data in api_events(own, "chat", message=prompt, max_new_tokens=40)]
        return [event["token_id"] for event in told if event["event"] == "token"], told[-1]["text"]

    serial = [answer(prompt) for prompt in prompts]
    page.puppet.most_at_once = 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        parallel = list(pool.map(answer, prompts))
    assert parallel == serial
    assert len({text for _, text in serial}) == 3
    assert page.puppet.most_at_once == 1


@pytest.mark.parametrize("strategy", ["none", "static"])
def test_stop_is_seen_with_every_kind_of_cache(page: Served, visitor: Visitor, strategy: str) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.", chat_strategy=strategy) as views:
        until_it_stands(page, views)
        visitor.light("stop@chat-stop")
        page.puppet.let_go()
        assert "Stopped." in last_past(views)


def test_a_second_submit_while_an_answer_is_written_is_a_refusal_and_starts_nothing(
    page: Served, visitor: Visitor
) -> None:
    page.puppet.answer = b"Here I am."
    visitor.light("take", chat_box="hi")
    with page.puppet.held():
        first = visitor.join("answer")
        page.puppet.wait_until_held()
        for event, values in (("take", {"chat_box": "And now?"}), ("act", {"chat_action": "retry 0"})):
            shown = visitor.light(event, **values)
            assert "An answer is being written." in shown["chat-notice"]
        second = visitor.join("answer")  # what a browser sends after a question that was taken
        with visitor.listening() as messages:
            ended = (message for message in messages if message["msg"] == "process_completed")
            assert [(one["event_id"], one["success"]) for one in [next(ended)]] == [(second, True)]
            assert page.backend._engine.turnstile.length == 1
            page.puppet.let_go()
            assert [(one["event_id"], one["success"]) for one in [next(ended)]] == [(first, True)]
    assert visitor.ask("And now?")["chat-past"].count("Here I am.") >= 2
