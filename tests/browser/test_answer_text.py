"""What a person sees of an answer is what the model wrote; what Copy gives is the answer; an opened fold stays open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = pytest.mark.browser

CODE = "def f(x):\n    if x:\n\treturn __init__\n\n# a comment\n\na  *b* c_d_e &lt; \\n ** 2"
MARKDOWN = (
    "Some **bold** text:\n\n1. One\n   - inner, which is long enough to need a second line on any screen that there is, "
    "so that it hangs below its own beginning\n2. Two\n\n```py\nif x:\n    y\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n## End"
)
THINKS = "<think>" + "hm " * 10 + "</think>\n\nyes  <b>"
LEFT_EDGE = """(element, words) => {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const at = node.textContent.indexOf(words);
    if (at < 0) continue;
    const range = document.createRange();
    range.setStart(node, at); range.setEnd(node, at + words.length);
    return range.getBoundingClientRect().left;
  }
  return null;
}"""


def test_code_outside_a_fence_keeps_its_indentation_and_its_marks(page: Served, screen: Screen) -> None:
    page.puppet.answer = CODE.encode()
    screen.ask("Write it.")
    shown = screen.answers.last.locator(".kv-markdown")
    assert shown.inner_text() == CODE
    assert shown.locator("h1, h2, h3, h4, h5, h6, strong, em, code, li").count() == 0
    edges = [shown.evaluate(LEFT_EDGE, words) for words in ("def f", "if x", "return")]
    assert edges[0] < edges[1]
    assert edges[1] == pytest.approx(edges[2])  # four spaces, and a tab that is four wide


def test_lists_tables_and_fences_are_drawn_as_such(page: Served, screen: Screen) -> None:
    page.puppet.answer = MARKDOWN.encode()
    screen.ask("Write it.")
    shown = screen.answers.last.locator(".kv-markdown")
    assert shown.locator("ol > li").count() == 2
    inner = shown.locator("ol > li > ul > li")
    expect(inner).to_be_visible()
    # The next line of an item hangs below its text, right of its mark.
    assert inner.evaluate(LEFT_EDGE, "inner") > inner.evaluate(LEFT_EDGE, "- ")
    assert inner.bounding_box()["height"] > 1.5 * shown.locator("ol > li").last.bounding_box()["height"]  # type: ignore[index]
    assert shown.locator("pre").inner_text() == "if x:\n    y\n"
    assert shown.locator("table tr").count() == 2
    assert shown.locator("h4").inner_text() == "## End"
    assert "Some **bold** text:" in shown.inner_text()
    assert shown.locator("strong").inner_text() == "bold"


def test_copy_gives_the_answer_and_says_what_it_left_out(page: Served, opened: Callable[..., Screen]) -> None:
    screen = opened(page, permissions=["clipboard-read", "clipboard-write"])
    for at, (answer, copied, said) in enumerate(
        (
            ("  two\n\tlines **b** ", "  two\n\tlines **b** ", "Copied"),
            (THINKS, "yes  <b>", "Copied without the reasoning"),
            ("<think>hm", "<think>hm", "Copied the reasoning: it has no end, so there is no answer"),
        )
    ):
        page.puppet.answer = answer.encode()
        screen.ask("Well?")
        screen.action("copy", at).click()
        expect(screen.action("copy", at)).to_have_text(said)
        assert screen.tab.evaluate("navigator.clipboard.readText()") == copied


def test_a_fold_that_was_opened_stays_open_while_the_answer_grows_and_when_it_stands(
    page: Served, screen: Screen
) -> None:
    page.puppet.answer = THINKS.encode()
    with page.puppet.held(after=20):
        screen.send("Well?")
        page.puppet.wait_until_held()
        fold = screen.live.locator("details")
        fold.locator("summary").click()
        expect(fold.locator(".kv-text")).to_be_visible()
        before = fold.locator(".kv-text").inner_text()
        page.puppet.allow(9)
        page.puppet.wait_until_held()
        expect(fold.locator(".kv-text")).not_to_have_text(before)
        expect(fold.locator(".kv-text")).to_be_visible()
    screen.wait_for_answer(1)
    expect(screen.answers.last.locator("details .kv-text")).to_be_visible()
    screen.answers.last.locator("summary").click()
    screen.ask("Again?")  # draws what stands above it again
    assert [fold.is_visible() for fold in screen.answers.locator("details .kv-text").all()] == [False, False]
    screen.answers.last.locator("summary").click()
    screen.ask("And again?")
    shown = [fold.is_visible() for fold in screen.answers.locator("details .kv-text").all()]
    assert shown == [False, True, False]
    screen.part("#chat-clear").click()
    expect(screen.answers).to_have_count(0)
    for _ in range(2):
        screen.ask("Anew?")
    assert [fold.is_visible() for fold in screen.answers.locator("details .kv-text").all()] == [False, False]
