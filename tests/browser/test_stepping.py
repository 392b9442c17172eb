"""Step by step on the page: a press makes one token on the kept cache, and the next message goes on from there."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = pytest.mark.browser


def test_each_press_makes_one_token_and_says_what_was_computed_read_and_held(page: Served, screen: Screen) -> None:
    page.puppet.answer = b"Mercury <b>"  # said from its beginning in every run, and each step is one
    screen.unfold("#chat-stepping")
    told = screen.part("#chat-step-told")
    screen.box.fill("Name a planet.")
    screen.part("#chat-step").click()
    expect(told).to_contain_text("Step 1: computed")
    expect(screen.box).to_have_value("")
    expect(screen.answers.last).to_contain_text("M")
    for number in (2, 3):
        screen.part("#chat-step").click()
        expect(told).to_have_text(
            re.compile(rf"Step {number}: computed 1, read [\d,]+, appended 1\. Layer 0 keys .* It wrote \"M\"\.")
        )
    expect(screen.answers.last).to_contain_text("MMM")
    expect(screen.part(".kv-turn-figures").last).to_contain_text("3 tokens, one at a time")
    expect(screen.part("#chat-step-look .kv-map-row")).not_to_have_count(0)
    keys = screen.part("#chat-step-look .kv-norms")
    expect(keys).to_have_count(2)
    screen.part("#chat-step-layer input").fill("1")
    expect(screen.part("#chat-step-look")).to_contain_text("Layer 1, KV head 0")
    screen.part("#chat-step-layer input").fill("99")
    expect(told).to_contain_text("layer")


def test_a_press_without_a_message_says_what_to_do(page: Served, screen: Screen) -> None:
    screen.unfold("#chat-stepping")
    screen.part("#chat-step").click()
    expect(screen.part("#chat-step-told")).to_contain_text("write one, then press Next token")
    expect(screen.questions).to_have_count(0)


def test_the_next_message_reuses_what_the_steps_have_kept(page: Served, screen: Screen) -> None:
    page.puppet.answer = b"Mars."
    screen.unfold("#chat-stepping")
    screen.box.fill("Name a planet.")
    for number in (1, 2, 3):
        screen.part("#chat-step").click()
        expect(screen.part("#chat-step-told")).to_contain_text(f"Step {number}:")
    screen.ask("And another?")
    expect(screen.part("#chat-panel")).to_contain_text("Reused")


@pytest.mark.slow
def test_after_any_answer_the_kept_cache_can_be_looked_into_and_where_nothing_is_kept_that_is_said(
    page: Served, screen: Screen
) -> None:
    page.puppet.answer = b"Mars."
    screen.unfold("#chat-stepping")
    screen.part("#chat-step-see").click()
    expect(screen.part("#chat-step-told")).to_contain_text("Nothing is kept now")
    screen.ask("Name a planet.")
    screen.part("#chat-step-see").click()
    expect(screen.part("#chat-step-look")).to_contain_text("Layer 0, KV head 0")
