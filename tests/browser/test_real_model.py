"""The default model in the real app, from the question to the chart. It asserts order and content, never pace."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.real]

PATIENCE_MS = 180_000
# Notes every text that the answer being written has shown.
WATCH = """() => {
  window.shown = [];
  new MutationObserver(() => {
    const text = document.querySelector("#chat-live .kv-raw, #chat-live .kv-text")?.textContent;
    if (text && text !== window.shown.at(-1)) window.shown.push(text);
  }).observe(document.getElementById("conversation"), {childList: true, subtree: true, characterData: true});
}"""


def test_a_person_talks_compares_and_looks_at_memory(real_page: Served, opened: Callable[..., Screen]) -> None:
    screen = opened(real_page)
    expect(screen.part("#kv-header")).to_contain_text("SmolLM2-135M-Instruct")
    screen.tab.evaluate(WATCH)

    screen.send("Name three planets.")
    expect(screen.part("#chat-live .kv-raw, #chat-live .kv-text").first).not_to_be_empty(timeout=PATIENCE_MS)
    expect(screen.answers).to_have_count(1, timeout=PATIENCE_MS)
    expect(screen.part("#chat-send")).to_be_visible()
    whole = screen.answers.last.locator(".kv-raw").text_content() or ""
    assert any(planet in whole for planet in ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn"))
    shown = screen.tab.evaluate("window.shown")
    assert len(shown) > 3
    assert all(len(before) < len(after) for before, after in pairwise(shown))
    assert len(shown[0]) < len(whole)
    expect(screen.part("#chat-panel")).to_contain_text("45.0 KiB each")

    screen.send("Write a very long story about the sea.")
    expect(screen.part("#chat-live .kv-raw, #chat-live .kv-text").first).not_to_be_empty(timeout=PATIENCE_MS)
    screen.stop.click()
    expect(screen.answers).to_have_count(2, timeout=PATIENCE_MS)
    expect(screen.answers.last).to_contain_text("Stopped.")
    expect(screen.part("#chat-panel")).to_contain_text("Reused")

    screen.open_tab("Compare")
    expect(screen.part("#compare-faster-count")).to_have_text("4 tokens")
    screen.start_comparison(new_tokens=24)
    screen.wait_for_comparison(PATIENCE_MS)
    # This run's own words: until they come, those of the recorded example may stand there.
    expect(screen.compare("headline")).to_contain_text("First look", timeout=PATIENCE_MS)
    expect(screen.compare("headline")).to_contain_text("Same 24 tokens")
    for name in ("No cache", "Dynamic cache"):
        expect(screen.arm(name)).to_contain_text("done in")
    texts = [screen.arm(name).locator(".kv-text").text_content() for name in ("No cache", "Dynamic cache")]
    assert texts[0] == texts[1] != ""
    for chart in ("arrival", "step-cost", "time-split", "work"):
        screen.expect_drawn(f"#compare-faster-{chart}")

    screen.open_tab("Memory")
    expect(screen.memory_headline).to_contain_text("SmolLM2-135M-Instruct", timeout=PATIENCE_MS)
    # 4,096 tokens of 45 KiB.
    expect(screen.memory_headline).to_contain_text("takes 180 MiB")
    screen.expect_drawn("#memory-growth")
