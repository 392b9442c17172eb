"""The page as a whole: how it opens, on a phone, in light and dark, by keyboard, for people who hear it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from kvdemo.ui.foot import EXPERIMENTS
from tests.browser.screen import Screen
from tests.puppet import Puppet
from tests.served import Served, served
from tests.tiny_backend import tiny_backend

pytestmark = pytest.mark.browser

TABS = ("Chat", "Compare", "Memory")
every_tab = pytest.mark.parametrize("tab", TABS)
PHONE = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}
UNLABELLED = """() => [...document.querySelectorAll(
  "input:not([type=hidden]):not([type=file]), textarea, select, button, [role=tab], [role=slider], [role=listbox]"
)].filter(e => e.checkVisibility({visibilityProperty: true}) && !(
  e.ariaLabel || e.title || e.innerText?.trim() || e.labels?.length ||
  [...(e.getAttribute("aria-labelledby") ?? "").split(" ")].some(id => id && document.getElementById(id)?.innerText.trim())
)).map(e => e.outerHTML.slice(0, 200))"""
WIDER_THAN_THE_WINDOW = """() => [...document.querySelectorAll("body *:not(#js-plotly-tester)")].filter(e => {
  const box = e.getBoundingClientRect();
  if (!box.width || !box.height || !e.checkVisibility({visibilityProperty: true})) return false;
  for (let up = e.parentElement; up; up = up.parentElement)
    if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(up).overflowX) && up !== document.body) return false;
  return box.right > window.innerWidth + 1 || box.left < -1;
}).map(e => e.tagName + "#" + e.id + "." + e.className).slice(0, 5)"""


def filled(screen: Screen, tab: str) -> None:
    """The tab with something in it: an answered conversation, a comparison, a plan."""
    screen.served.puppet.answer = b"Mercury, **Venus** and `Earth`.\n\n1. one\n2. two"
    if tab == "Chat":
        screen.ask("Name three planets. " * 20)
        screen.unfold("#chat-settings")
    if tab == "Compare":
        screen.open_tab("Compare")
        screen.start_comparison(new_tokens=12)
        screen.wait_for_comparison()
        screen.expect_drawn("#compare-faster-work")
    if tab == "Memory":
        screen.open_tab("Memory")
        expect(screen.memory_headline).to_contain_text("cache takes")
        screen.expect_drawn("#memory-sharing")


# In make test the other tests open the page without a query, and test_memory.py opens links to Memory.
@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param((("?tab=compare", "Compare"), ("?tab=<script>", "Chat")), id="one and none"),
        pytest.param(
            (("", "Chat"), ("?tab=chat", "Chat"), ("?tab=memory", "Memory"), ("?tab=../../etc/passwd", "Chat")),
            id="others",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_address_opens_its_tab_and_follows_it(
    page: Served, opened: Callable[..., Screen], addresses: tuple[tuple[str, str], ...]
) -> None:
    screen = opened(page)
    for query, tab in addresses:
        screen.tab.goto(f"{page.url}/{query}")
        shown = screen.part("#kv-tabs").get_by_role("tab", name=tab, exact=True)
        expect(shown).to_have_attribute("aria-selected", "true")
    for tab in ("Memory", "Compare", "Chat"):
        screen.open_tab(tab)
        expect(screen.part(f"#tab-{tab.lower()}")).to_be_visible()
        expect(screen.tab).to_have_url(re.compile(f"tab={tab.lower()}"))


@every_tab
def test_on_a_phone_nothing_scrolls_sideways(page: Served, opened: Callable[..., Screen], tab: str) -> None:
    screen = opened(page, **PHONE)
    filled(screen, tab)
    width = screen.tab.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth]")
    assert max(width) == 375, screen.tab.evaluate(WIDER_THAN_THE_WINDOW)
    assert screen.tab.evaluate(WIDER_THAN_THE_WINDOW) == []


@every_tab
def test_on_a_phone_headline_and_picture_come_before_the_form(
    page: Served, opened: Callable[..., Screen], tab: str
) -> None:
    screen = opened(page, f"/?tab={tab.lower()}", **PHONE)
    parts = {
        "Chat": ("#conversation", "#composer", "#chat-panel"),
        "Compare": (
            "#compare-faster-headline .kv-headline-text",
            "#compare-faster-arrival svg.main-svg",
            "#compare-faster-form",
        ),
        "Memory": ("#memory-headline .kv-headline-text", "#memory-growth svg.main-svg", "#memory-form"),
    }[tab]
    for part in parts:
        expect(screen.part(part).first).to_be_visible()
    header, *tops = (top(screen, part) for part in ("#kv-tabs", *parts))
    assert tops == sorted(tops)
    assert header < 110, "the header takes two lines"
    rest = {"Chat": [], "Compare": ["#compare-faster-replay", "#compare-faster-ready", "#compare-faster-tables"]}
    for part in rest.get(tab, ["#memory-arithmetic", "#memory-narrow"]):
        assert top(screen, part) > tops[-1], part


def test_on_a_phone_the_question_that_a_link_names_is_in_sight(page: Served, opened: Callable[..., Screen]) -> None:
    screen = opened(page, "/?tab=compare&result=conversations", **PHONE)
    chosen = screen.part("#compare-question label.selected")
    expect(chosen).to_have_text("Will my conversations reuse it?")
    expect(chosen).to_be_in_viewport(ratio=1)


def top(screen: Screen, part: str) -> float:
    box = screen.part(part).first.bounding_box()
    assert box is not None
    return box["y"]


def test_the_lesson_stands_at_the_foot_and_its_links_open_in_a_page_that_has_just_begun(
    page: Served, opened: Callable[..., Screen]
) -> None:
    screen = opened(page)
    expect(screen.part("#kv-foot li a")).to_have_text([one.title for one in EXPERIMENTS])
    screen.part("#kv-foot summary").click()
    link = screen.part("#kv-foot li a").last
    expect(link).to_be_visible()
    address = link.evaluate("link => link.href")
    assert address == f"{page.url}/{EXPERIMENTS[-1].query}"
    screen.tab.goto(address)
    screen.wait_until_ready()
    expect(screen.memory_headline).to_contain_text("Mistral-7B-v0.1, 1 request of 32,768 tokens")
    expect(screen.part("#memory-growth")).to_contain_text("Llama-3.1-8B")


@pytest.mark.parametrize(
    ("path", "line"),
    [("/?tab=compare&result=compare", "#compare-faster-headline"), ("/?tab=memory&model=Phi-4", "#memory-link")],
    ids=["compare", "memory"],
)
def test_copy_link_copies_the_address_of_this_view_and_says_so(
    page: Served, opened: Callable[..., Screen], path: str, line: str
) -> None:
    screen = opened(page, path, permissions=["clipboard-read", "clipboard-write"])
    button = screen.part(f"{line} .kv-link").get_by_role("button", name="Copy link")
    button.click()
    expect(screen.part(f"{line} .kv-link [role=status]")).to_have_text("Copied")
    copied = screen.tab.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"{page.url}{path}")
    screen.tab.goto(copied)
    screen.wait_until_ready()
    expect(screen.part(f"{line} .kv-link")).to_be_visible()


def test_on_a_phone_one_line_stands_for_the_panel(page: Served, opened: Callable[..., Screen]) -> None:
    screen = opened(page, **PHONE)
    page.puppet.answer = b"Mercury, Venus and Earth."
    screen.ask("hi")
    line = screen.part("#chat-line")
    expect(line).to_be_visible()
    expect(line).to_contain_text("tokens ·")
    expect(line).to_contain_text("KiB")


# In make test every tab stands in one of the themes, and Compare, whose charts have most colours, in both.
@pytest.mark.parametrize(
    ("tab", "theme"),
    [
        pytest.param("Chat", "light", marks=pytest.mark.slow),
        ("Chat", "dark"),
        ("Compare", "light"),
        ("Compare", "dark"),
        ("Memory", "light"),
        pytest.param("Memory", "dark", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing_serious_and_the_theme_is_followed(
    page: Served, opened: Callable[..., Screen], tab: str, theme: str
) -> None:
    screen = opened(page, color_scheme=theme, reduced_motion="reduce")
    assert screen.tab.evaluate("document.body.classList.contains('dark')") is (theme == "dark")
    filled(screen, tab)
    expect(screen.part("h1")).to_have_count(1)
    expect(screen.part("h1")).to_have_text("kvdemo")
    assert screen.tab.evaluate(UNLABELLED) == []
    found = Axe().run(screen.tab).response["violations"]
    serious = {
        one["id"]: [node["html"][:200] for node in one["nodes"][:4]]
        for one in found
        if one["impact"] in ("serious", "critical")
    }
    assert serious == {}
    paper = light(screen.part("body").evaluate("element => getComputedStyle(element).backgroundColor"))
    assert (paper > 0.8) if theme == "light" else (paper < 0.2)
    written = screen.part("h1, .gtitle, .xtick text").evaluate_all(
        "all => all.filter(e => e.checkVisibility()).map(e => getComputedStyle(e)[e.tagName === 'H1' ? 'color' : 'fill'])"
    )
    assert len(written) > (1 if tab != "Chat" else 0)
    assert [colour for colour in written if abs(light(colour) - paper) < 0.3] == []


def light(colour: str) -> float:
    """Lightness of "rgb(1, 2, 3)" from 0 to 1."""
    red, green, blue = (int(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3])
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


@pytest.fixture(scope="module")
def loading_page() -> Iterator[Served]:
    """A page whose model has not begun to load."""
    puppet = Puppet()
    with closing(tiny_backend(model=puppet.model)) as backend, served(backend, puppet=puppet) as page:
        yield page


def test_the_page_is_there_while_the_model_loads_and_then_shows_it(loading_page: Served, chromium: object) -> None:
    tab = chromium.new_page()  # type: ignore[attr-defined]
    tab.goto(loading_page.url + "/?tab=memory")
    chip = tab.locator("#kv-header .kv-chip")
    expect(chip).to_contain_text("Loading")
    screen = Screen(tab, loading_page)
    screen.choose("#memory-model", "Llama-3.1-8B")
    expect(screen.memory_headline).to_contain_text("Llama-3.1-8B")
    screen.open_tab("Chat")
    screen.send("hi")
    expect(screen.part("#chat-notice")).to_contain_text("still loading")
    expect(screen.box).to_have_value("hi")
    loading_page.backend.start()
    expect(chip).to_contain_text("parameters")
    loading_page.puppet.answer = b"Here I am."
    screen.ask("hi")
    expect(screen.answers.last).to_contain_text("Here I am.")
    tab.close()


def test_a_model_that_cannot_be_loaded_leaves_the_page_up(chromium: object) -> None:
    from kvdemo.facts.model import Failed
    from tests.fake_backend import FakeBackend

    backend = FakeBackend(model=Failed("lost/model", "The folder holds no config.json: name another with --model."))
    with served(backend) as page:
        tab = chromium.new_page()  # type: ignore[attr-defined]
        tab.goto(page.url)
        expect(tab.locator("#kv-header")).to_contain_text("lost/model could not be loaded")
        expect(tab.locator("#kv-header")).to_contain_text("name another with --model")
        tab.close()
