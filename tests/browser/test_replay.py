"""The replay in a real browser: the chosen step, both clocks at their recorded ends, nothing loaded, no script needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.facts.steps import CacheNorms
from kvdemo.facts.units import format_seconds
from kvdemo.questions.recorded import recorded_result
from kvdemo.questions.table import question_of
from kvdemo.report.replay import Replay, replay_html, replay_of, replay_within
from kvdemo.report.report import report_html
from tests.browser.screen import Screen
from tests.made_up import result_of
from tests.served import Served

pytestmark = pytest.mark.browser

DIFFERS_AT = 14


def lossy(result: ComparisonResult) -> ComparisonResult:
    """Its last arm goes another way from token 14 on."""
    arm = result.spec.arms[-1]
    other = tuple(range(900, 900 + result.spec.max_new_tokens - DIFFERS_AT + 1))
    text = " ".join(f"other{at}" for at in range(result.spec.max_new_tokens))
    runs = tuple(
        replace(run, token_ids=(*(run.token_ids or ())[: DIFFERS_AT - 1], *other), text=text)
        if run.arm_key == arm
        else run
        for run in result.runs
    )
    return replace(result, runs=runs)


RESULT: ComparisonResult = replace(
    result_of(rounds=1, new_tokens=24), norms=CacheNorms(3, 1, 0, (1.0, 2.5, 2.0) * 9, (0.5, 1.5, 1.0) * 9)
)
LOSSY = lossy(result_of(("none", "fp8"), rounds=1, new_tokens=24))


def made(result: ComparisonResult = RESULT) -> Replay:
    replay = replay_of(result)
    assert replay is not None
    return replay


def text_of(kind: str, result: ComparisonResult) -> str:
    return replay_html(result, headline="Faster", scope="made up") if kind == "file" else report_html(result)


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
    return from_disk(offline, tmp_path, text_of(request.param, RESULT))


def from_disk(tab: Page, folder: Path, text: str) -> Page:
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    tab.goto(path.as_uri())
    return tab


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


def test_the_clocks_at_a_chosen_step_show_when_each_side_made_that_token(sheet: Page) -> None:
    replay = made()
    slider = sheet.locator(".kv-replay-slider")
    for step in (1, 7, 23):
        slider.fill(str(step - 1))
        expected = [f"{side.run.token_times_s[step - 1]:.2f} s" for side in replay.sides]
        assert sheet.locator(".kv-replay-clock strong").all_text_contents() == expected
        assert slider.get_attribute("aria-valuetext") == f"step {step} of 24"


def test_every_control_is_reached_and_used_from_the_keyboard(sheet: Page) -> None:
    sheet.get_by_role("button", name="Play").focus()
    names = []
    for _ in range(3):
        sheet.keyboard.press("Tab")
        names.append(sheet.evaluate("document.activeElement.className.split(' ').pop()"))
    assert names == ["kv-replay-next", "kv-replay-slider", "kv-replay-speed"]
    sheet.keyboard.press("Shift+Tab")
    sheet.keyboard.press("Home")
    expect(sheet.locator(".kv-replay-step")).to_have_text(made().step(1))
    sheet.keyboard.press("ArrowRight")
    expect(sheet.locator(".kv-replay-step")).to_have_text(made().step(2))
    sheet.get_by_role("button", name="Play").focus()
    sheet.keyboard.press("Space")
    expect(sheet.get_by_label("How many times faster?")).to_be_focused()
    sheet.keyboard.type("3")
    sheet.keyboard.press("Enter")
    expect(sheet.get_by_role("button", name="Pause")).to_be_focused()


def test_the_recorded_norms_stand_below_with_what_they_are(sheet: Page) -> None:
    shown = sheet.locator(".kv-replay-norms")
    expect(shown).to_contain_text("Length (L2 norm) of each key and value vector, layer 3, head 1, by position")
    assert shown.locator("svg").count() == 2
    assert shown.locator("svg").first.evaluate("one => one.clientHeight") >= 40


@pytest.mark.parametrize("kind", ["file", "report"])
def test_nothing_plays_by_itself_whoever_asks_for_less_motion_or_not(
    chromium: Browser, tmp_path: Path, kind: str
) -> None:
    for motion in ("reduce", "no-preference"):
        context = chromium.new_context(offline=True, reduced_motion=motion)
        tab = from_disk(context.new_page(), tmp_path, text_of(kind, RESULT))
        tab.evaluate(
            "new Promise(done => { let left = 5; const go = () => left-- ? requestAnimationFrame(go) : done(); go(); })"
        )
        expect(tab.get_by_role("button", name="Play")).to_be_visible()
        expect(tab.locator(".kv-replay-step")).to_have_text(made().step(24))
        context.close()


@pytest.mark.parametrize("kind", ["file", "report"])
def test_without_scripts_the_finished_pictures_and_sums_stand(chromium: Browser, tmp_path: Path, kind: str) -> None:
    context = chromium.new_context(java_script_enabled=False, offline=True)
    tab = from_disk(context.new_page(), tmp_path, text_of(kind, RESULT))
    assert tab.locator(".kv-replay-grid svg").count() == 2
    expect(tab.locator(".kv-replay-sums")).to_contain_text("times less work")
    expect(tab.locator(".kv-replay-step")).to_have_text(made().step(24))
    expect(tab.locator(".kv-replay-norms svg")).to_have_count(2)
    totals = [format_seconds(side.run.generation_s) for side in made().sides]
    assert tab.locator(".kv-replay-clock strong").all_text_contents() == totals
    expect(tab.locator(".kv-replay-bar")).to_be_hidden()
    expect(tab.locator(".kv-replay-data")).to_be_hidden()
    context.close()


@pytest.mark.parametrize("kind", ["file", "report"])
def test_the_first_token_that_differs_is_one_press_away_with_both_texts_up_to_it(
    offline: Page, tmp_path: Path, kind: str
) -> None:
    tab, replay = from_disk(offline, tmp_path, text_of(kind, LOSSY)), made(LOSSY)
    tab.get_by_role("button", name="First token that differs").click()
    expect(tab.locator(".kv-replay-step")).to_have_text(replay.step(DIFFERS_AT))
    texts = tab.locator(".kv-replay-text").all_text_contents()
    assert texts == [side.text[: side.text_ends[DIFFERS_AT - 1]] for side in replay.sides]
    assert texts[0] != texts[1]


def test_where_all_tokens_are_the_same_there_is_nothing_to_jump_to(sheet: Page) -> None:
    expect(sheet.get_by_role("button", name="First token that differs")).to_have_count(0)


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


@pytest.mark.slow
def test_on_the_page_a_lossy_strategy_is_chosen_and_its_first_other_token_found(
    page: Served, opened: Callable[..., Screen]
) -> None:
    recorded = recorded_result("strategies")
    replay = replay_within(question_of(recorded), recorded, "fp8")
    assert replay is not None
    differs = replay.differs_at
    assert differs is not None
    tab = opened(page, "/?tab=compare&result=strategies").tab
    area = tab.locator("#compare-faster-replay .kv-replay")
    expect(area.locator(".kv-replay-name").last).to_have_text("Static cache, compiled")
    tab.locator("#compare-faster-watched").get_by_label("8-bit float cache").check()
    expect(area.locator(".kv-replay-name").last).to_have_text("8-bit float cache")
    area.get_by_role("button", name="First token that differs").click()
    expect(area.locator(".kv-replay-step")).to_have_text(replay.step(differs))
