"""The tab Chat, used as a person uses it. The model stands still where a test wants to look."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served, wait_until

pytestmark = pytest.mark.browser

PLANETS = b"Mercury, Venus and Earth."
LONG = b"All work and no play makes a long answer. " * 60


def test_enter_sends_and_the_answer_grows_before_it_is_complete(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    with page.puppet.held(after=8):
        screen.send("Name three planets.")
        expect(screen.questions).to_have_text(["Name three planets."])
        expect(screen.live).to_contain_text("Mercury,")
        expect(screen.live).not_to_contain_text("Venus and Earth.")
        expect(screen.box).to_have_value("")
        page.puppet.allow(6)
        expect(screen.live).to_contain_text("Mercury, Venus")
        expect(screen.answers.locator(".kv-raw, .kv-text")).to_have_count(0)
    screen.wait_for_answer(1)
    expect(screen.answers.last).to_contain_text("Mercury, Venus and Earth.")
    expect(screen.part(".kv-turn-figures").last).to_contain_text("26 tokens")


def test_shift_enter_breaks_the_line_and_sends_nothing(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.box.fill("one")
    screen.box.press("Shift+Enter")
    screen.box.press_sequentially("two")
    expect(screen.box).to_have_value("one\ntwo")
    expect(screen.questions).to_have_count(0)
    screen.box.press("Enter")
    screen.wait_for_answer(1)
    assert screen.questions.text_content() == "one\ntwo"


def test_send_sends_too_and_an_empty_message_is_refused_in_words(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.part("#chat-send").click()
    expect(screen.part("#chat-notice")).to_contain_text("empty")
    expect(screen.questions).to_have_count(0)
    screen.box.fill("Name three planets.")
    screen.part("#chat-send").click()
    screen.wait_for_answer(1)
    expect(screen.part("#chat-notice")).to_have_text("")


def test_what_is_typed_while_an_answer_streams_stays(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    with page.puppet.held(after=4):
        screen.send("Name three planets.")
        expect(screen.live).to_contain_text("Merc")
        screen.box.press_sequentially("My next ")
        page.puppet.allow(4)
        expect(screen.live).to_contain_text("Mercury,")
        screen.box.press_sequentially("question")
        # Enter does not lose it, and says why it is not sent.
        screen.box.press("Enter")
        expect(screen.part("#composer")).to_have_class(re.compile("kv-busy"))
        expect(screen.box).to_have_value("My next question")
    screen.wait_for_answer(1)
    expect(screen.box).to_have_value("My next question")
    screen.box.press("Enter")
    screen.wait_for_answer(2)
    expect(screen.questions).to_have_text(["Name three planets.", "My next question"])


def started_by_enter(screen: Screen) -> None:
    screen.send("Tell me everything.")


def started_by_button(screen: Screen) -> None:
    screen.box.fill("Tell me everything.")
    screen.part("#chat-send").click()


def started_by_example(screen: Screen) -> None:
    screen.action("example", 2).click()


def started_by_retry(screen: Screen) -> None:
    screen.action("retry").click()


# In make test other tests press Send and an example: both start the run that Enter starts.
@pytest.mark.parametrize(
    "start",
    [
        started_by_enter,
        pytest.param(started_by_button, marks=pytest.mark.slow),
        pytest.param(started_by_example, marks=pytest.mark.slow),
        started_by_retry,
    ],
)
def test_stop_is_there_and_works_however_the_run_was_started(
    page: Served, screen: Screen, start: Callable[[Screen], None]
) -> None:
    if start is started_by_retry:
        page.puppet.answer = PLANETS
        screen.ask("Tell me everything.")
    page.puppet.answer = LONG
    with page.puppet.held(after=10):
        start(screen)
        expect(screen.live).to_contain_text("All work")
        expect(screen.stop).to_be_visible()
        expect(screen.part("#chat-send")).to_be_hidden()
        page.puppet.wait_until_held()
        before = page.puppet.forwards
        screen.stop.click()
        page.puppet.let_go()
        screen.wait_for_answer(1)
    expect(screen.answers.last).to_contain_text("All work")
    expect(screen.answers.last).to_contain_text("Stopped.")
    expect(screen.stop).to_be_hidden()
    # A click takes its way to the server; the run ends long before its 2,000 tokens, with what it had.
    assert page.puppet.forwards - before < 2000
    page.puppet.answer = PLANETS
    screen.ask("And now?")
    expect(screen.answers.last).to_contain_text("Venus and Earth.")


def test_stop_can_be_reached_and_pressed_by_keyboard_alone(page: Served, screen: Screen) -> None:
    page.puppet.answer = LONG
    with page.puppet.held(after=10):
        screen.send("Tell me everything.")
        expect(screen.stop).to_be_visible()
        page.puppet.wait_until_held()
        for _ in range(4):
            screen.tab.keyboard.press("Tab")
            if screen.tab.evaluate("document.activeElement.closest('#chat-stop') !== null"):
                break
        expect(screen.stop).to_be_focused()
        screen.tab.keyboard.press("Enter")
        page.puppet.let_go()
    screen.wait_for_answer(1)
    expect(screen.answers.last).to_contain_text("Stopped.")


def test_an_example_is_asked_and_leaves_a_draft_alone(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    expect(screen.part(".kv-act-example")).to_have_count(4)
    screen.box.fill("my draft")
    screen.action("example", 0).click()
    screen.wait_for_answer(1)
    expect(screen.questions).to_have_text(["Name three planets."])
    expect(screen.box).to_have_value("my draft")


def test_retry_answers_the_same_question_again(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.ask("Name three planets.")
    page.puppet.answer = b"Mars, Jupiter and Saturn."
    screen.action("retry").click()
    expect(screen.answers.last).to_contain_text("Mars, Jupiter and Saturn.")
    expect(screen.questions).to_have_text(["Name three planets."])
    expect(screen.answers).to_have_count(1)


def test_undo_takes_the_last_turn_back_into_the_box(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.ask("First.")
    screen.ask("Second.")
    expect(screen.part(".kv-act-undo")).to_have_count(1)
    screen.action("undo", 1).click()
    expect(screen.questions).to_have_text(["First."])
    expect(screen.box).to_have_value("Second.")


def test_edit_replaces_a_message_and_all_after_it(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.ask("First.")
    screen.ask("Second.")
    screen.action("edit", 0).click()
    expect(screen.box).to_have_value("First.")
    expect(screen.part("#chat-notice")).to_contain_text("Sending replaces it")
    screen.send("Something else.")
    expect(screen.questions).to_have_text(["Something else."])
    screen.wait_for_answer(1)


def test_clear_empties_the_conversation_and_frees_what_was_kept(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.ask("Name three planets.")
    assert kept(page) > 0
    screen.part("#chat-clear").click()
    expect(screen.part(".kv-empty-title")).to_have_text("Ask something.")
    expect(screen.questions).to_have_count(0)
    wait_until(lambda: kept(page) == 0, "the kept cache is freed")


def test_the_system_prompt_is_read_by_the_model(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.unfold("#chat-settings")
    screen.part("#chat-system-prompt textarea").fill("Be brief.")
    screen.ask("hi")
    whole = "<system>Be brief.\n<user>hi\n<assistant>"
    expect(screen.part("#chat-panel")).to_contain_text(f"{len(whole)} prefilled")


def test_the_panel_follows_the_cache_live_and_says_what_was_reused(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    panel = screen.part("#chat-panel")
    expect(panel.locator("h2")).to_have_text("What the cache is doing")
    prompt = len("<user>hi\n<assistant>")
    with page.puppet.held(after=5):
        screen.send("hi")
        page.puppet.wait_until_held()
        # Five tokens are made, and the newest one is not in the cache yet.
        expect(panel).to_contain_text(f"{prompt} prefilled")
        expect(panel).to_contain_text("5 generated")
        expect(panel.locator(".kv-figure", has_text="tokens in the cache")).to_contain_text(str(prompt + 4))
        # 1 KiB a token: 4 layers, keys and values, 2 heads of 16, 4 bytes each.
        expect(panel.locator(".kv-figure", has_text="held now")).to_contain_text(f"{prompt + 4}.0 KiB")
        expect(panel.locator(".kv-part-newest").first).to_be_attached()
        page.puppet.allow(3)
        expect(panel).to_contain_text("8 generated")
    screen.wait_for_answer(1)
    expect(panel).to_contain_text(f"{prompt + 26} of 8,192 tokens")
    screen.ask("again")
    # All of the first turn but its end token, which the template does not render.
    first, both = "<user>hi\n<assistant>" + PLANETS.decode(), "\n<user>again\n<assistant>"
    expect(panel).to_contain_text(f"Reused {len(first)} of {len(first + both)} prompt tokens")
    expect(panel).to_contain_text(f"{len(first)} reused")


@pytest.mark.parametrize(
    ("strategy", "held"), [("No cache", "0 B"), pytest.param("Static cache", "KiB", marks=pytest.mark.slow)]
)
def test_a_strategy_is_chosen_under_more_settings(page: Served, screen: Screen, strategy: str, held: str) -> None:
    page.puppet.answer = PLANETS
    screen.unfold("#chat-settings")
    screen.part("#chat-strategy input").click()
    screen.tab.get_by_role("option", name=strategy, exact=True).click()
    screen.ask("hi")
    expect(screen.part("#chat-panel .kv-figure").first).to_contain_text(held)


def test_what_was_refused_names_the_limit_and_keeps_the_text(page: Served, screen: Screen) -> None:
    before = page.puppet.forwards
    question = "x" * 9000
    screen.box.fill(question)
    screen.box.press("Enter")
    expect(screen.part("#chat-main")).to_contain_text("8,192")
    expect(screen.part("#chat-send")).to_be_visible()
    assert page.puppet.forwards == before


@pytest.mark.parametrize("how", ["close", pytest.param("reload", marks=pytest.mark.slow)])
def test_leaving_the_page_stops_its_run_and_frees_its_cache(
    page: Served, opened: Callable[..., Screen], how: str
) -> None:
    screen = opened(page)
    page.puppet.answer = PLANETS
    screen.ask("hi")
    assert kept(page) > 0
    page.puppet.answer = LONG
    with page.puppet.held(after=8):
        screen.send("Tell me everything.")
        expect(screen.live).to_contain_text("All w")
        page.puppet.wait_until_held()
        if how == "close":
            screen.tab.close()
        else:
            screen.tab.reload()
            screen.wait_until_ready()
            expect(screen.questions).to_have_count(0)
    page.puppet.wait_until_idle()
    wait_until(lambda: kept(page) == 0, "the kept cache is freed")
    wait_until(lambda: page.backend._engine.turnstile.length == 0, "nobody stands in line")


@pytest.mark.slow
def test_a_second_window_waits_its_turn_and_says_so(page: Served, opened: Callable[..., Screen]) -> None:
    first, second = opened(page), opened(page)
    page.puppet.answer = PLANETS
    with page.puppet.held(after=4):
        first.send("hi")
        expect(first.live).to_contain_text("Merc")
        second.send("And me?")
        expect(second.live).to_contain_text("You are next.")
        expect(second.stop).to_be_visible()
    for screen in (first, second):
        screen.wait_for_answer(1)
        expect(screen.answers.last).to_contain_text("Venus and Earth.")


def kept(page: Served) -> int:
    return int(page.backend._engine.kept.storage_bytes())
