"""Your workload, and "Ready to decide?": what is said once starts every form, stays, and a row's button leads on."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = pytest.mark.browser


@pytest.fixture
def compare(screen: Screen) -> Screen:
    screen.open_tab("Compare")
    return screen


def say(screen: Screen, **numbers: str) -> None:
    """Type these numbers under Your workload."""
    screen.unfold("#workload")
    for name, number in numbers.items():
        screen.part(f"#workload-{name} input").fill(number)


def test_what_is_said_once_starts_the_forms_and_is_still_there_when_the_page_is_loaded_again(compare: Screen) -> None:
    say(compare, longest_prompt_tokens="2,000", longest_answer_tokens="48", at_once="3")
    expect(compare.part("#workload > button")).to_contain_text("2,000 tokens of prompt, 48 tokens of answer, 3 at once")
    expect(compare.part("#compare-faster-new-tokens input")).to_have_value("48")
    compare.open_tab("Memory")
    expect(compare.part("#memory-length input")).to_have_value("2048")
    compare.tab.reload()
    compare.wait_until_ready()
    compare.open_tab("Compare")
    expect(compare.part("#workload > button")).to_contain_text("3 at once")
    expect(compare.part("#compare-faster-new-tokens input")).to_have_value("48")
    compare.open_tab("Memory")
    expect(compare.part("#memory-length input")).to_have_value("2048")


@pytest.mark.slow  # in make test the first test shows that what is typed arrives, test_ui_workload.py what is refused
def test_a_number_that_is_none_is_told_by_its_name_and_nothing_is_lost(compare: Screen) -> None:
    say(compare, longest_answer_tokens="48")
    expect(compare.part("#compare-faster-new-tokens input")).to_have_value("48")
    say(compare, longest_answer_tokens="many")
    expect(compare.part("#workload-notice")).to_contain_text("Longest answer: 'many' is not a whole number")
    expect(compare.part("#compare-faster-new-tokens input")).to_have_value("48")


def test_a_row_that_is_not_answered_leads_to_the_question_that_answers_it(page: Served, compare: Screen) -> None:
    card = compare.part("#compare-faster-ready")
    expect(card).to_contain_text("Not enough evidence yet: 1 of 10 answered.")
    compare.start_comparison(prompt="hi", new_tokens=8)
    compare.wait_for_comparison()
    expect(card).to_contain_text("Not enough evidence yet: 3 of 10 answered.")
    card.get_by_role("button", name="How does it grow?").click()
    expect(compare.part("#compare-grow-form")).to_be_visible()
    expect(compare.part("#compare-grow-ready")).to_contain_text("3 of 10 answered.")
