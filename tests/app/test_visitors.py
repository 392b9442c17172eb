"""Two visitors on one server, and one visitor's conversation over its turns: what is kept, for whom, and what it changes."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.alive import live_cache_bytes, own_threads
from tests.served import Served, served_puppet, wait_until
from tests.tiny import tiny_tokenizer
from tests.visitor import Visitor, api_result

ALPHA, BETA = "ALPHA-7-SECRET", "BETA-9-SECRET"
KEEPING = {"chat_keep": True, "chat_longest": 12}


def reused(shown: dict[str, Any]) -> tuple[int, int]:
    """(reused, prompt tokens) as the panel says them; (0, 0) where it speaks of no reuse."""
    found = re.search(r"Reused ([\d,]+) of ([\d,]+) prompt tokens", shown["chat-panel"])
    return (int(found[1].replace(",", "")), int(found[2].replace(",", ""))) if found else (0, 0)


def saved(visitor: Visitor, kind: str) -> str:
    """The conversation as a file that the page offers."""
    return visitor.http.get(visitor.light(f"save@chat-save-{kind}")["chat-download"]["url"]).text


def everything_of(visitor: Visitor) -> str:
    """All that the page can be made to show or save for this visitor."""
    told = [visitor.light(name) for name in ("status", "count_tokens", "plan", "seen")]
    return json.dumps([*told, saved(visitor, "json"), saved(visitor, "markdown")])


@pytest.mark.parametrize("turns", [6, pytest.param(25, marks=pytest.mark.slow)])
def test_two_visitors_never_see_each_others_secrets(
    page: Served,
    turns: int,
    visitor: Visitor,
    other: Visitor,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    told: dict[str, list[str]] = {ALPHA: [], BETA: []}
    for turn in range(turns):
        for one, secret in ((visitor, ALPHA), (other, BETA)):
            shown = one.ask(f"{secret} {turn}", chat_system_prompt=f"Keep {secret}", chat_keep=True, chat_longest=4)
            told[secret].append(json.dumps(shown))
    told[ALPHA].append(everything_of(visitor))
    told[BETA].append(everything_of(other))
    assert all(ALPHA in view for view in told[ALPHA][:turns])
    assert all(BETA in view for view in told[BETA][:turns])
    assert ALPHA in told[ALPHA][-1]
    assert [view for view in told[ALPHA] if BETA in view] == []
    assert [view for view in told[BETA] if ALPHA in view] == []
    logged = caplog.text + "".join(capfd.readouterr())
    assert ALPHA not in logged
    assert BETA not in logged


def test_a_new_visitor_finds_the_defaults_and_reuses_nothing(page: Served, visitor: Visitor, other: Visitor) -> None:
    config_before = other.http.get("/config").text
    for _ in range(2):
        shown = visitor.ask("The very same question.", chat_system_prompt=ALPHA, **KEEPING)
    assert reused(shown)[0] > 0
    assert other.http.get("/config").text == config_before
    assert ALPHA not in config_before
    assert reused(other.ask("The very same question.", chat_system_prompt=ALPHA, **KEEPING))[0] == 0
    assert page.backend.kept_bytes(visitor.owner("chat")) > 0
    assert page.backend.kept_bytes(other.owner("chat")) > 0


def test_the_api_keeps_nothing_and_reuses_nothing(page: Served, visitor: Visitor, http: httpx.Client) -> None:
    held = page.backend._engine.kept.storage_bytes()
    visitor.ask("The very same question.", **KEEPING)
    for _ in range(2):
        _, [finished] = api_result(http, "chat", message="The very same question.", max_new_tokens=5)
        assert finished["reused_tokens"] == 0 if "reused_tokens" in finished else True
        assert sum(finished["positions_computed"]) == finished["prompt_tokens"] + finished["new_tokens"] - 1
    assert page.backend._engine.kept.storage_bytes() - held == page.backend.kept_bytes(visitor.owner("chat"))


@pytest.mark.parametrize("how", ["clear", "close", "reload"])
def test_what_is_kept_is_freed_on(page: Served, visitor: Visitor, how: str) -> None:
    owner = visitor.owner("chat")
    with visitor.open_page():
        visitor.ask("Keep this.", **KEEPING)
        assert page.backend.kept_bytes(owner) > 0
        if how == "clear":
            visitor.light("cleared")
            assert page.backend.kept_bytes(owner) == 0
    # A reloaded page is a new session: the old one ends as if it were closed.
    wait_until(lambda: page.backend.kept_bytes(owner) == 0, "the closed page's cache is freed")


def test_the_second_turn_reads_plain_text_and_continues_the_first(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = b"yo"
    visitor.ask("hi", **KEEPING)
    shown = visitor.ask("again", **KEEPING)
    first, whole = "<user>hi\n<assistant>yo", "<user>hi\n<assistant>yo\n<user>again\n<assistant>"
    # The prompt is what a history of plain strings would be; all that the first turn left in the cache is reused.
    assert reused(shown) == (len(first), len(whole))


def test_a_cache_of_another_prompt_is_used_only_as_far_as_both_are_the_same(page: Served, visitor: Visitor) -> None:
    page.puppet.answer = b"yo"
    visitor.ask("hi", chat_system_prompt="Be kind.", **KEEPING)
    shown = visitor.ask("again", chat_system_prompt="Be rude.", **KEEPING)
    assert reused(shown)[0] == len("<system>Be ")
    assert f"token {len('<system>Be ') + 1}" in shown["chat-panel"]


SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("ask", {"chat_box": "The quick brown fox"}),
    ("ask", {"chat_box": "jumps over"}),
    ("act", {"chat_action": "retry 1 1"}),
    ("ask", {"chat_box": "the lazy dog"}),
    ("act", {"chat_action": "undo 2 2"}),
    ("ask", {"chat_box": "another dog"}),
    ("act", {"chat_action": "edit 1 3"}),
    ("ask", {"chat_box": "jumps under"}),
]


@pytest.mark.parametrize("strategy", ["dynamic", "static"])
def test_a_kept_cache_changes_no_token_over_edits_retries_and_undos(page: Served, strategy: str) -> None:
    def conversation(**settings: Any) -> list[Any]:
        """The token ids of the last turn after every step that was answered."""
        told = []
        with Visitor(page) as one:
            for step, elements in SCRIPT:
                if step == "act":
                    one.light("act", **elements)
                if step == "ask":
                    one.light("take", **elements)
                if step == "ask" or "retry" in elements["chat_action"]:
                    one.run("answer", chat_longest=20, **settings)
                    told.append(json.loads(saved(one, "json"))["turns"][-1]["run"]["token_ids"])
        return told

    kept = conversation(chat_keep=True, chat_strategy=strategy)
    fresh = conversation(chat_keep=False, chat_strategy="none")
    assert kept == fresh
    assert len({tuple(ids) for ids in fresh}) > 3


@pytest.fixture(scope="module")
def thinking_page() -> Iterator[Served]:
    """A template that puts an empty thought before an answer and leaves it out of the history."""
    template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}{{ 'U:' + m['content'] + '\n' }}"
        "{% else %}{{ 'A:' + m['content'] + '\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'A:<think></think>' }}{% endif %}"
    )
    with served_puppet(tokenizer=lambda: tiny_tokenizer(template)) as page:
        yield page


def test_reuse_ends_where_the_template_renders_the_history_otherwise(thinking_page: Served) -> None:
    thinking_page.puppet.answer = b"yo"
    with Visitor(thinking_page) as visitor:
        visitor.ask("hi", **KEEPING)
        shown = visitor.ask("again", **KEEPING)
    assert reused(shown) == (len("U:hi\nA:"), len("U:hi\nA:yo\nU:again\nA:<think></think>"))


@pytest.mark.slow
def test_opening_and_closing_two_hundred_times_leaves_nothing_behind(page: Served) -> None:
    page.puppet.answer = b"yo"

    def come_and_go() -> None:
        with Visitor(page) as passing, passing.open_page():
            passing.ask("hi", **KEEPING)

    come_and_go()
    threads, kept, alive = own_threads(), page.backend._engine.kept.storage_bytes(), live_cache_bytes()
    for _ in range(200):
        come_and_go()
    wait_until(lambda: page.backend._engine.kept.storage_bytes() <= kept, "nothing is kept for those who left")
    wait_until(lambda: len(own_threads()) <= len(threads), "no thread is left over")
    wait_until(lambda: live_cache_bytes() <= alive, "no cache is left over")


def test_files_that_are_saved_lie_in_a_private_folder_under_our_names(page: Served, visitor: Visitor) -> None:
    visitor.ask("../../etc/passwd", **KEEPING)
    path = Path(visitor.light("save@chat-save-json")["chat-download"]["path"])
    assert re.fullmatch(r"kvdemo-[a-z]+-[\d-]+\.json", path.name)


def test_a_file_of_this_machine_is_neither_opened_nor_deleted(page: Served, visitor: Visitor, tmp_path: Path) -> None:
    kept = tmp_path / "conversation.json"
    visitor.ask("Name three planets.", **KEEPING)
    kept.write_text(saved(visitor, "json"), encoding="utf-8")
    answer = visitor.post_light(
        "open_file", chat_open={"path": str(kept), "orig_name": kept.name, "meta": {"_type": "gradio.FileData"}}
    )
    assert not answer.is_success
    assert "Name three" not in answer.text
    assert kept.exists()
