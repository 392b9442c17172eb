"""The report as people get it: in a window, on a phone and on paper, judged by what the browser lays out and paints."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page

from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.palette import MEANINGS
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.prompts.run import compare_set
from kvdemo.questions.prompts.spec import PromptResult, PromptSetResult, PromptSetSpec
from kvdemo.report.report import report_html
from tests.made_up import growth_of, prefix_of, result_of
from tests.made_up_model import ENVIRONMENT, MODEL

pytestmark = pytest.mark.browser

PAPER_PX = 718  # the width of A4 between the browser's own margins
ALL_ARMS = ("none", "dynamic", "static", "static-compiled", "fp8")


def lossy_set() -> PromptSetResult:
    """Three prompts with an 8-bit cache, whose marker is an x; the longest request allowed crosses the chart."""
    rows = tuple(PromptRow("words", name) for name in ("first", "second", "x" * 120))
    prompts = tuple(
        PromptResult(row, result_of(("none", "fp8"), new_tokens=30 + 10 * at, prompt_tokens=20 + 150 * at, rounds=6))
        for at, row in enumerate(rows)
    )
    spec = PromptSetSpec(rows, ("none", "fp8"), rounds=6, longest_tokens=400)
    return PromptSetResult(spec, MODEL, ENVIRONMENT, prompts, compare_set(spec.strategies, prompts))


RESULTS: dict[str, Callable[[], AnyResult]] = {
    "two arms": lambda: result_of(rounds=2),
    "five arms": lambda: result_of(ALL_ARMS, rounds=2),
    "growth": growth_of,
    "set": lossy_set,
    "prefix": prefix_of,
}


@pytest.fixture
def window(chromium: Browser) -> Iterator[Page]:
    tab = chromium.new_page()
    yield tab
    tab.close()


def opened(window: Page, result: AnyResult, width: int) -> Page:
    resize(window, width)
    window.set_content(report_html(result))
    return window


def resize(window: Page, width: int, media: Any = "screen") -> None:
    window.set_viewport_size({"width": width, "height": 900})
    window.emulate_media(media=media)


@pytest.mark.parametrize("name", RESULTS)
def test_every_column_of_every_table_is_seen(window: Page, name: str) -> None:
    tab = opened(window, RESULTS[name](), 1280)
    for width, media in ((1280, "screen"), (1000, "screen"), (700, "screen"), (375, "screen"), (PAPER_PX, "print")):
        resize(tab, width, media)
        hidden = tab.evaluate(
            """() => [...document.querySelectorAll("td, th[scope=row], .scroll")].filter(part => {
              const card = part.closest(".card").getBoundingClientRect(), own = part.getBoundingClientRect()
              return own.right > card.right || own.left < card.left || part.scrollWidth > part.clientWidth + 1
            }).map(part => part.textContent.slice(0, 40))"""
        )
        assert hidden == [], width
        assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_a_row_that_became_a_block_names_each_of_its_cells(window: Page) -> None:
    tab = opened(window, result_of(rounds=2), 375)
    cell = tab.locator("table.numbers td", has_text="tok/s").first
    assert cell.evaluate("part => getComputedStyle(part, '::before').content") == '"Speed"'
    assert cell.evaluate("part => getComputedStyle(part.parentElement).display") == "grid"


# Five arms are named one by one in the sentence and in the picture: theirs is a little more than a screen of 812.
@pytest.mark.parametrize(("name", "height"), [(name, 900 if name == "five arms" else 812) for name in RESULTS])
def test_page_one_of_a_phone_has_sentence_picture_scope_and_verdict(window: Page, name: str, height: int) -> None:
    tab = opened(window, RESULTS[name](), 375)
    order = [".first h1", ".first .picture svg:visible", ".first p.faint", ".first p:has(strong)"]
    boxes = [tab.locator(part).first.bounding_box() for part in order]
    ends = [box["y"] + box["height"] for box in boxes if box]
    assert len(ends) == 4
    assert ends == sorted(ends)
    assert ends[-1] <= height


def test_text_in_charts_is_about_as_large_as_on_the_page(window: Page) -> None:
    tab = opened(window, result_of(ALL_ARMS, rounds=2), 1280)
    for width, media in ((1280, "screen"), (1000, "screen"), (375, "screen"), (PAPER_PX, "print")):
        resize(tab, width, media)
        sizes = tab.evaluate(
            """() => [...document.querySelectorAll(":is(.narrow, .wide) > svg")]
              .filter(chart => chart.getBoundingClientRect().width).map(
              chart => parseFloat(getComputedStyle(chart).fontSize) * chart.getScreenCTM().a)"""
        )
        assert len(sizes) == 5
        assert all(13 <= size <= 17 for size in sizes), width


@pytest.mark.parametrize("width", [1000, 375])
def test_markers_that_are_bare_strokes_are_painted(window: Page, width: int) -> None:
    tab = opened(window, lossy_set(), width)
    chart = seen(tab, "Which prompts gain least?")
    colour = MEANINGS["quantised"].fill
    crosses = chart.locator(f'path[stroke="{colour}"]:not([d*="L"])')
    assert crosses.count() == 1
    crosses.evaluate("path => path.closest('svg').querySelectorAll('path').forEach(p => p === path || p.remove())")
    # three crosses of 9 px: about 40 px each in the colour itself
    assert painted(chart, colour) > 60


def test_a_line_ends_where_its_plot_does(window: Page) -> None:
    tab = opened(window, lossy_set(), 1000)
    chart = seen(tab, "What is in this set?")
    limit = chart.locator(f'path[stroke="{MEANINGS["budget"].fill}"]').bounding_box()
    levels = [rule.bounding_box() for rule in chart.locator('path[stroke-opacity="0.2"]').all()]
    assert limit is not None
    rights = [level["x"] + level["width"] for level in levels if level]
    assert limit["x"] + limit["width"] <= max(rights) + 2
    whole = chart.bounding_box()
    assert whole is not None
    assert limit["y"] > whole["y"] + 50


def seen(tab: Page, question: str) -> Locator:
    """The picture of this chart that this window shows."""
    return tab.locator(".picture, .charts .card", has=tab.locator("h3", has_text=question)).locator("svg:visible")


def painted(chart: Locator, colour: str) -> int:
    """How many pixels of the chart have this colour."""
    image = Image.open(io.BytesIO(chart.screenshot())).convert("RGB")
    wanted = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    pixels = image.tobytes()
    return sum(all(abs(pixels[at + part] - wanted[part]) < 24 for part in range(3)) for at in range(0, len(pixels), 3))
