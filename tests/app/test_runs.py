"""Runs over HTTP: stopped, dropped, cancelled, waiting, side by side. The model moves only as far as a test lets it."""

from __future__ import annotations

import concurrent.futures
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.served import Served, wait_until
from tests.visitor import Visitor, api_events, event_id_of

LONG = b"All work and no play makes a long answer. " * 40
DROPS = 50
SETTINGS = ("", "dynamic", False, 1500, 0, 1, 0, 0)


def ask(visitor: Visitor, question: str, *settings: Any) -> str:
    """Send a question on the page; the id of the run that answers it."""
    visitor.light("take", None, question)
    return visitor.join("answer", None, *(settings or SETTINGS))


@contextmanager
def asked(visitor: Visitor, question: str, *settings: Any) -> Iterator[Iterator[dict[str, Any]]]:
    """Send a question on the page and listen to its answer; leaving the block drops the connection."""
    ask(visitor, question, *settings)
    with visitor.listening() as messages:
        yield messages


def last_view(messages: Any) -> list[Any]:
    """What the page shows when the run is over."""
    shown = None
    for message in messages:
        if message["msg"] == "process_generating":
            shown = message["output"]["data"]
        if message["msg"] == "process_completed":
            assert message["success"], message
            break
    assert shown is not None
    return shown


def until_it_stands(page: Served, messages: Any) -> None:
    page.puppet.wait_until_held()
    next(message for message in messages if message["msg"] == "process_generating")


def live_cache_bytes() -> int:
    """Bytes of all KV caches that are alive in this process."""
    from transformers import Cache

    from kvdemo.caches.footprint import weigh

    gc.collect()
    return sum(weigh(thing).storage_bytes for thing in gc.get_objects() if issubclass(type(thing), Cache))


def own_threads() -> list[str]:
    """Threads, but for those of the web server's pool, which come and go."""
    return sorted(thread.name for thread in threading.enumerate() if "AnyIO" not in thread.name)


def test_stop_ends_the_work_before_the_next_token_and_keeps_what_was_written(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=6), asked(visitor, "Tell me everything.") as messages:
        until_it_stands(page, messages)
        before = page.puppet.forwards
        visitor.light("stop")
        page.puppet.let_go()
        shown = last_view(messages)
    page.puppet.wait_until_idle()
    # The one that stood still is let through to the stop flag and computes nothing.
    assert page.puppet.forwards <= before + 1
    assert "All wo" in shown[2]
    assert "Stopped." in shown[2]


def test_a_second_stop_changes_nothing_and_the_next_run_works(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as messages:
        until_it_stands(page, messages)
        visitor.light("stop")
        visitor.light("stop")
        page.puppet.let_go()
        last_view(messages)
    page.puppet.answer = b"Here I am."
    visitor.light("take", None, "And now?")
    assert "Here I am." in visitor.run("answer", None, *SETTINGS)[-1][2]


def test_stop_in_one_tab_leaves_the_other_visitors_run_alone(page: Served, visitor: Visitor, other: Visitor) -> None:
    page.puppet.answer = b"All of it."
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as messages:
        until_it_stands(page, messages)
        other.light("stop")
        other.light("stop", nth=1)
        visitor.light("stop", nth=1)
        page.puppet.let_go()
        assert "All of it." in last_view(messages)[2]


def test_a_second_visitor_sees_his_place_and_can_stop_while_he_waits(
    page: Served, visitor: Visitor, other: Visitor
) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as first:
        until_it_stands(page, first)
        with asked(other, "And me?") as second:
            waiting = next(
                message["output"]["data"][3]
                for message in second
                if message["msg"] == "process_generating" and message["output"]["data"][3]
            )
            assert "You are next." in waiting
            before = page.puppet.forwards
            other.light("stop")
            assert "Stopped." in last_view(second)[2]
            assert page.puppet.forwards == before
        visitor.light("stop")
        page.puppet.let_go()
        last_view(first)


def test_a_run_that_is_cancelled_in_its_prefill_is_over_before_the_next_one_begins(
    page: Served, visitor: Visitor, http: httpx.Client
) -> None:
    page.puppet.answer = b"Done."
    page.puppet.most_at_once = 0
    with page.puppet.held():
        number = ask(visitor, "Tell me everything.")
        page.puppet.wait_until_held()
        cancelled = {"session_hash": visitor.session, "fn_index": 0, "event_id": number}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(visitor.http.post, "/gradio_api/cancel", json=cancelled)
            told = []
            for _, data in api_events(http, "chat", message="And now?", max_new_tokens=20):
                told.append(data[0]["event"])
                page.puppet.let_go()
            answer.result().raise_for_status()
    assert (told[0], told[-1]) == ("waiting", "finished")
    assert page.puppet.most_at_once == 1


def test_light_parts_answer_while_a_run_is_going(page: Served, visitor: Visitor, other: Visitor) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.") as messages:
        until_it_stands(page, messages)
        before = page.puppet.forwards
        with httpx.Client(base_url=page.url, timeout=60) as http:
            event, plan = list(api_events(http, "memory", seq_len=1024, batch_size=2))[-1]
        assert (event, plan[0]["request"]["seq_len"]) == ("complete", 1024)
        assert "tokens" in other.light("count", "The red cat was", "As text", "")[0]
        assert "weights" in str(other.light("status", "The red cat was", "As text", ""))
        # All of this while the run stood where it stood.
        assert page.puppet.forwards == before
        visitor.light("stop")
        page.puppet.let_go()
        last_view(messages)


def test_dropped_connections_end_their_runs_and_leave_nothing_behind(page: Served) -> None:
    page.puppet.answer = LONG * 4

    def drop() -> None:
        with Visitor(page) as passing, passing.open_page():
            settings = ("", "dynamic", True, 4000, 0, 1, 0, 0)
            with page.puppet.held(after=4), asked(passing, "Tell me everything.", *settings) as messages:
                until_it_stands(page, messages)
            page.puppet.wait_until_idle()

    drop()
    forwards, threads, held = page.puppet.forwards, own_threads(), live_cache_bytes()
    for _ in range(DROPS):
        drop()
    wait_until(lambda: own_threads() == threads, "no thread is left over")
    wait_until(lambda: live_cache_bytes() <= held, "no cache is left over")
    assert page.backend._engine.turnstile.length == 0
    # Far fewer than the 4,000 tokens that each was to have.
    assert page.puppet.forwards - forwards < DROPS * 1000


def test_closing_the_page_stops_its_run_and_keeps_no_cache_of_it(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = LONG * 4
    with page.puppet.held(after=4):
        with visitor.open_page():
            ask(visitor, "Tell me everything.", "", "dynamic", True, 4000, 0, 1, 0, 0)
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
    settings = ("", strategy, False, 200, 0, 1, 0, 0)
    with page.puppet.held(after=3), asked(visitor, "Tell me everything.", *settings) as messages:
        until_it_stands(page, messages)
        visitor.light("stop")
        page.puppet.let_go()
        assert "Stopped." in last_view(messages)[2]
