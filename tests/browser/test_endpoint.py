"""Is my endpoint caching, on the page: a server is asked, its key kept nowhere, and a forbidden address refused."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.loopback_engine import MODEL_ID, WorkEngine, serving

pytestmark = pytest.mark.browser

KEY = "sk-a-secret-of-mine"


@pytest.fixture
def form(screen: Screen) -> Screen:
    screen.open_tab("Compare")
    screen.part("#compare-question").get_by_text("Is my endpoint caching?").click()
    expect(screen.part("#compare-endpoint-url")).to_be_visible()
    return screen


def test_a_server_is_asked_and_its_key_stands_nowhere(form: Screen) -> None:
    key = form.part("#compare-endpoint-key input")
    expect(key).to_have_attribute("type", "password")
    with serving(WorkEngine(each_s=0.00005, own_s=0.001).answer) as url:
        form.part("#compare-endpoint-url input, #compare-endpoint-url textarea").fill(url)
        key.fill(KEY)
        form.part("#compare-endpoint-settings > button").click()
        form.part("#compare-endpoint-requests input").fill("20")
        form.part("#compare-endpoint-run").click()
        headline = form.part("#compare-endpoint-headline")
        expect(headline).to_contain_text("Batching: cannot tell.")
    expect(headline).to_contain_text(MODEL_ID)
    expect(form.part("#compare-endpoint-live")).to_contain_text("Could you tell us:")
    expect(form.part("#compare-endpoint-live .kv-act-copy")).to_be_visible()
    assert KEY not in form.tab.content()
    stored = form.tab.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert KEY not in stored


def test_an_address_that_may_not_be_asked_is_refused_by_the_name_of_its_field(form: Screen) -> None:
    form.part("#compare-endpoint-url input, #compare-endpoint-url textarea").fill("http://example.org/v1")
    form.part("#compare-endpoint-run").click()
    expect(form.part("#compare-endpoint-notice")).to_contain_text("Address: ")


def test_a_server_answers_in_chat_its_models_are_listed_and_its_key_stands_nowhere(screen: Screen) -> None:
    screen.unfold("#chat-server")
    with serving(WorkEngine(each_s=0.00005, own_s=0.001).answer) as url:
        screen.part("#chat-key input").fill(KEY)
        address = screen.part("#chat-url input, #chat-url textarea")
        address.fill(url)
        address.blur()
        expect(screen.part("#chat-server-words")).to_contain_text(f"lists one model: {MODEL_ID}")
        screen.part("#chat-model input").click()
        screen.tab.get_by_role("option", name=MODEL_ID).click()
        screen.ask("What is a planet?")
    expect(screen.part("#chat-panel")).to_contain_text("not reported")
    assert KEY not in screen.tab.content()
    assert KEY not in screen.tab.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
