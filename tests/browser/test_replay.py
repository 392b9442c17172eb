"""The replay in a real browser: the chosen step, both clocks at their recorded ends, nothing loaded, no script needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.facts.units import format_seconds
from kvdemo.questions.recorded import recorded_result
from kvdemo.questions.table import question_of
from kvdemo.report.replay import Replay, replay_html, replay_of, replay_within
from kvdemo.report.report import report_html
from tests.browser.screen import Screen
from tests.made_up import result_of
from tests.served import Served

pytestmark = pytest.mark.browser

RESULT: ComparisonResult = result_of(rounds=1, new_tokens=24)


def made() -> Replay:
    replay = replay_of(RESULT)
    assert replay is not None
    return replay


@pytest.fixture
def offline(chromium: Browser) -> Iterator[Page]:
    """A window without a network in which any console error, page error or request fails the test."""
    context = chromium.new_context(offline=True, viewport={"width": 375, "height": 800})
    tab = context.new_page()
    faults: list[str] = []
    tab.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("request", lambda asked: None if asked.url.startswith("file:") else faults.append(asked.url))
    yield tab
    context.close()
    assert faults == []


@pytest.fixture(params=["file", "report"])
def sheet(request: pytest.FixtureRequest, offline: Page, tmp_path: Path) -> Page:
    text = replay_html(RESULT, headline="Faster", scope="made up") if request.param == "file" else report_html(RESULT)
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    offline.goto(path.as_uri())
    return offline


def test_the_slider_at_a_step_shows_that_steps_numbers(sheet: Page) -> None:
    replay, slider = made(), sheet.get_by_label("Step", exact=True).and_(sheet.locator("input"))
    for step in (1, 7, 24):
        slider.fill(str(step - 1))
        expect(sheet.locator(".kv-replay-step")).to_have_text(replay.step(step))
        counts = sheet.locator(".kv-replay-clock span").all_text_contents()
        assert counts == [f"{step} of 24 tokens"] * 2
    totals = [format_seconds(side.run.generation_s) for side in replay.sides]
    assert sheet.locator(".kv-replay-clock strong").all_text_contents() == totals


def test_play_asks_for_a_guess_first_and_ends_at_the_recorded_totals(sheet: Page) -> None:
    replay = made()
    sheet.get_by_role("button", name="Play").click()
    sheet.get_by_label("How many times faster?").fill("10")
    sheet.locator(".kv-replay-speed").select_option("5")
    sheet.locator(".kv-replay-guess").get_by_role("button", name="Play").click()
    expect(sheet.locator(".kv-replay-told")).to_contain_text("You guessed 10 times faster: it was")
    totals = [format_seconds(side.run.generation_s) for side in replay.sides]
    assert sheet.locator(".kv-replay-clock strong").all_text_contents() == totals
    expect(sheet.locator(".kv-replay-step")).to_have_text(replay.step(24))


def test_one_click_skips_the_guess_and_it_is_not_asked_again(sheet: Page) -> None:
    sheet.get_by_role("button", name="Play").click()
    sheet.get_by_role("button", name="Skip").click()
    expect(sheet.locator(".kv-replay-guess")).to_have_count(0)
    sheet.get_by_role("button", name="Pause").click()
    sheet.get_by_role("button", name="Play").click()
    expect(sheet.locator(".kv-replay-guess")).to_have_count(0)


def test_step_goes_on_by_one_from_the_keyboard(sheet: Page) -> None:
    sheet.get_by_role("button", name="Step").focus()
    sheet.keyboard.press("Enter")
    expect(sheet.locator(".kv-replay-step")).to_contain_text("Step 1.")
    sheet.keyboard.press("Enter")
    expect(sheet.locator(".kv-replay-step")).to_contain_text("Step 2.")
    assert sheet.locator(".kv-replay-step").get_attribute("aria-live") == "polite"


def test_nothing_scrolls_sideways_on_a_phone(sheet: Page) -> None:
    assert sheet.evaluate("document.documentElement.scrollWidth") <= 375


def test_without_scripts_the_finished_pictures_and_sums_stand(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(replay_html(RESULT, headline="Faster", scope="made up"), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False, offline=True)
    tab = context.new_page()
    tab.goto(path.as_uri())
    assert tab.locator(".kv-replay-grid svg").count() == 2
    expect(tab.locator(".kv-replay-sums")).to_contain_text("times less work")
    expect(tab.locator(".kv-replay-bar")).to_be_hidden()
    expect(tab.locator(".kv-replay-data")).to_be_hidden()
    context.close()


def test_on_the_page_the_recorded_example_can_be_replayed_step_by_step(
    page: Served, opened: Callable[..., Screen]
) -> None:
    recorded = recorded_result("compare")
    replay = replay_within(question_of(recorded), recorded)
    assert replay is not None
    tab = opened(page, "/?tab=compare&result=compare").tab
    area = tab.locator("#compare-faster-replay .kv-replay")
    area.locator("input[type=range]").fill("6")
    expect(area.locator(".kv-replay-step")).to_have_text(replay.step(7))
    area.locator("input[type=range]").fill(str(len(replay.frames) - 1))
    totals = [format_seconds(side.run.generation_s) for side in replay.sides]
    assert area.locator(".kv-replay-clock strong").all_text_contents() == totals
