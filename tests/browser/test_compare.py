"""The tab Compare: a run from the form to headline, charts and files; stopped and started again."""

from __future__ import annotations

import csv
import io
import json

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.known import known
from tests.served import Served

pytestmark = pytest.mark.browser

CHARTS = ("arrival", "step-cost", "time-split", "work")


@pytest.fixture
def compare(screen: Screen) -> Screen:
    screen.open_tab("Compare")
    return screen


def test_both_arms_stream_in_their_columns_one_after_the_other(page: Served, compare: Screen) -> None:
    page.puppet.answer = b"abcdefghijklmnopqrstuvwxyz"
    # The warm-up of both, then the first one's timed run as far as five tokens.
    with page.puppet.held(after=0):
        compare.start_comparison(prompt="hi", new_tokens=20)
        expect(compare.compare("live").locator(".kv-arm")).to_have_count(2)
        page.puppet.wait_until_held()
        page.puppet.allow(200)
        compare.wait_for_comparison()
    for name in ("No cache", "Dynamic cache"):
        expect(compare.arm(name)).to_contain_text("abcdefghijklmnopqrst")
        expect(compare.arm(name)).to_contain_text("done in")


def test_one_round_gives_a_first_look_with_scope_charts_and_table(page: Served, compare: Screen) -> None:
    compare.start_comparison(prompt="The quick brown fox", new_tokens=24)
    compare.wait_for_comparison()
    headline = compare.compare("headline")
    expect(headline).to_contain_text("First look")
    expect(headline).to_contain_text("not enough to decide")
    expect(headline.locator(".kv-small").first).to_contain_text("19 prompt tokens")
    expect(headline.locator(".kv-small").first).to_contain_text("float32")
    for chart in CHARTS:
        compare.expect_drawn(f"#compare-faster-{chart}")
    expect(compare.compare("tables")).to_contain_text("Timed: from accepted to last token.")
    rows = compare.compare("tables").locator("table", has_text="Per token").first.locator("tbody tr")
    expect(rows).to_have_count(2)
    # N x P + N(N-1)/2 against P + N - 1.
    expect(compare.compare("work")).to_contain_text(f"{24 * 19 + 24 * 23 // 2}")
    expect(compare.compare("work")).to_contain_text(f"{19 + 23}")


def test_how_noisy_the_machine_is_is_asked_with_a_button_and_advises_nothing(page: Served, compare: Screen) -> None:
    compare.part("#compare-faster-settings > button").click()
    compare.part("#compare-faster-new-tokens input").fill("8")
    compare.part("#compare-faster-noise").click()
    compare.wait_for_comparison()
    expect(compare.compare("headline")).to_contain_text("identical runs here differ by")
    mark = compare.arm("Dynamic cache, again").locator(".kv-key")
    expect(mark).to_have_css("background-color", "rgb(0, 114, 178)")
    expect(compare.part("#compare-faster-noise")).to_be_enabled()
    for part in ("arm", "change"):
        expect(compare.compare(part)).to_be_hidden()
    made = json.loads(compare.download("#compare-faster-json"))
    assert (made["request"]["noise"], made["request"]["strategies"]) == (True, ["dynamic"])
    assert {run["arm"] for run in made["runs"]} == {None, "dynamic-again"}


def test_stop_is_there_and_ends_a_comparison_keeping_what_was_done(page: Served, compare: Screen) -> None:
    with page.puppet.held(after=0):
        compare.start_comparison(prompt="hi", new_tokens=2000, rounds=6)
        page.puppet.wait_until_held()
        page.puppet.allow(30)
        page.puppet.wait_until_held()
        stop = compare.part("#compare-faster-stop")
        expect(stop).to_be_visible()
        expect(compare.part("#compare-faster-run")).to_be_hidden()
        before = page.puppet.forwards
        stop.click()
        page.puppet.let_go()
        expect(compare.part("#compare-faster-run")).to_be_visible()
    page.puppet.wait_until_idle()
    # Of more than 20,000 tokens.
    assert page.puppet.forwards - before < 4000
    page.puppet.answer = b"abc" * 10
    compare.start_comparison(prompt="hi", new_tokens=8)
    compare.wait_for_comparison()


def test_the_prompts_length_follows_what_is_typed_and_how_it_is_read(page: Served, compare: Screen) -> None:
    count = compare.part("#compare-faster-count")
    compare.part("#compare-faster-prompt textarea").fill("The quick brown fox")
    expect(count).to_have_text("19 tokens")
    compare.part("#compare-faster-as").get_by_text("As a chat message").click()
    expect(count).to_have_text(f"{len('<user>The quick brown fox') + len(chr(10) + '<assistant>')} tokens")


def test_a_wrong_value_is_refused_by_the_name_on_the_form(page: Served, compare: Screen) -> None:
    before = page.puppet.forwards
    for element, value, field in (
        ("prompt textarea", "", "Prompt"),
        ("new-tokens input", "0", "New tokens"),
        ("rounds input", "1000", "Rounds"),
    ):
        box = compare.part(f"#compare-faster-{element}")
        good = box.input_value()
        box.fill(value)
        compare.part("#compare-faster-run").click()
        expect(compare.part("#compare-faster-notice")).to_contain_text(field)
        expect(compare.part("#compare-faster-run")).to_be_visible()
        box.fill(good)
    assert page.puppet.forwards == before


def test_files_hold_the_latest_run(page: Served, compare: Screen) -> None:
    for new_tokens in (6, 9):
        compare.start_comparison(prompt="hi", new_tokens=new_tokens)
        compare.wait_for_comparison()
        expect(compare.compare("tables")).to_contain_text(str(new_tokens))
        made = json.loads(compare.download("#compare-faster-json"))
        assert made["request"]["max_new_tokens"] == new_tokens
        assert {run["new_tokens"] for run in made["runs"] if not run["warmup"]} == {new_tokens}
        rows = list(csv.DictReader(io.StringIO(compare.download("#compare-faster-csv"))))
        assert [row["new_tokens"] for row in rows] == [str(run["new_tokens"]) for run in made["runs"]]


def test_the_shared_report_opens_on_its_own_and_loads_nothing(page: Served, compare: Screen) -> None:
    compare.start_comparison(prompt="<img src=http://evil.test/x.png>", new_tokens=6)
    compare.wait_for_comparison()
    report = compare.download("#compare-faster-report")
    alone = known(compare.tab.context.browser).new_context(offline=True).new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.set_content(report)
    expect(alone.locator("body")).to_contain_text("<img src=http://evil.test/x.png>")
    expect(alone.locator("svg:visible").first).to_be_visible()
    assert [url for url in asked if not url.startswith("data:")] == []
    alone.context.close()


def test_the_tab_says_which_cache_is_in_force_now(page: Served, compare: Screen) -> None:
    expect(compare.part("#compare-force")).to_contain_text("In force now: cache on")
