"""A conversation survives a reload of its tab, and nothing of it reaches another tab or stays after Clear."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = pytest.mark.browser

PLANETS = b"Mercury, Venus and <b>Earth</b>."


def reloaded(screen: Screen) -> Screen:
    screen.tab.reload()
    screen.wait_until_ready()
    return screen


def test_turns_and_draft_are_there_again_and_can_be_continued(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.ask("Name three <i>planets</i>.")
    screen.box.press_sequentially("And a fourth")
    reloaded(screen)
    expect(screen.questions).to_have_text(["Name three <i>planets</i>."])
    expect(screen.answers.first).to_contain_text("Mercury, Venus and <b>Earth</b>.")
    expect(screen.part("#chat-notice")).to_contain_text("Its cache went with the old page")
    expect(screen.box).to_have_value("And a fourth")
    screen.box.press("Enter")
    screen.wait_for_answer(2)
    expect(screen.part("#chat-notice")).to_have_text("")
    reloaded(screen)
    expect(screen.questions).to_have_count(2)
    expect(screen.box).to_have_value("")


def test_a_question_whose_answer_was_lost_can_be_asked_again(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    with page.puppet.held(after=4):
        screen.send("Name three planets.")
        expect(screen.live).to_contain_text("Merc")
        screen.tab.reload()
        page.puppet.let_go()
    screen.wait_until_ready()
    expect(screen.answers.first).to_contain_text("The page was loaded again while this answer was written.")
    screen.action("retry").click()
    expect(screen.answers.first).to_contain_text("Mercury, Venus")


def test_clear_empties_what_the_tab_keeps(page: Served, screen: Screen) -> None:
    page.puppet.answer = PLANETS
    screen.ask("Name three planets.")
    screen.part("#chat-clear").click()
    expect(screen.questions).to_have_count(0)
    screen.tab.wait_for_function("!sessionStorage.getItem('kvdemo.conversation')")
    reloaded(screen)
    expect(screen.questions).to_have_count(0)


def test_another_tab_of_the_same_browser_sees_none_of_it(
    page: Served, opened: Callable[..., Screen], screen: Screen
) -> None:
    page.puppet.answer = PLANETS
    screen.ask("A secret of this tab.")
    screen.tab.wait_for_function("sessionStorage.getItem('kvdemo.conversation')")
    other = screen.tab.context.new_page()
    other.goto(page.url)
    expect(other.locator(".kv-empty")).to_be_visible()
    expect(other.locator("#kv-header .kv-chip")).to_contain_text("parameters")
    assert other.evaluate("sessionStorage.getItem('kvdemo.conversation')") is None
    assert other.evaluate("Object.keys(localStorage).filter(name => /conversation|draft/.test(name))") == []
    other.close()


# What is no JSON and what is no conversation go two ways; the reader's own tests know many more (test_ui_chat_extras.py).
@pytest.mark.parametrize(
    "texts",
    [
        ("{", '{"schema": 1, "kind": "conversation", "turns": 7}'),
        pytest.param(('{"schema": 1}', "[" * 50_000), marks=pytest.mark.slow),
    ],
    ids=["broken", "broken otherwise"],
)
def test_what_somebody_wrote_into_the_storage_is_checked_like_a_file(
    page: Served, screen: Screen, texts: tuple[str, ...]
) -> None:
    for broken in texts:
        screen.tab.evaluate("text => sessionStorage.setItem('kvdemo.conversation', text)", broken)
        # the page writes its own before it goes: what stands there when it comes back is the broken one
        screen.tab.evaluate(
            "text => { window.onpagehide = () => sessionStorage.setItem('kvdemo.conversation', text) }", broken
        )
        reloaded(screen)
        expect(screen.part(".kv-empty")).to_be_visible()
