"""A real Chromium on the real page. Every test fails on a console error, a page error, or a request to another host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.screen import Screen
from tests.served import Served, served_puppet

PATIENCE_MS = 30_000
# Gradio's own front end says so when a page is left, or loaded again, while it reads a stream.
LEFT_WHILE_STREAMING = ("AbortError: signal is aborted without reason", "Unexpected error Connection errored out.")


@pytest.fixture(scope="package")
def chromium(browser_path: str) -> Iterator[Browser]:
    """Of the package, not the session: while Playwright runs, this thread has an event loop that others trip over."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def tiny_page() -> Iterator[Served]:
    with served_puppet() as page:
        yield page


@pytest.fixture
def page(tiny_page: Served) -> Iterator[Served]:
    """The page around the tiny model, which moves freely again after each test."""
    yield tiny_page
    tiny_page.puppet.answer = None
    tiny_page.puppet.let_go()
    tiny_page.puppet.wait_until_idle()


@pytest.fixture(scope="package")
def profiles(chromium: Browser) -> dict[str, BrowserContext]:
    """The browser's profiles by their options: in one that was used before, half of the page's start is in the cache."""
    return {}


@pytest.fixture
def opened(chromium: Browser, profiles: dict[str, BrowserContext]) -> Iterator[Callable[..., Screen]]:
    """Opens a page in a window of its own, watched until the end of the test.

    Every window of a test has a profile of its own, without anything stored; the first one's scripts are in the cache.
    """
    contexts: list[BrowserContext] = []
    tabs: list[Page] = []
    faults: list[str] = []

    def new_context(options: dict[str, Any]) -> BrowserContext:
        return chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})

    def empty_tab(served: Served, options: dict[str, Any]) -> Page:
        if tabs:
            contexts.append(new_context(options))
            return contexts[-1].new_page()
        known = repr(sorted(options.items()))
        if known not in profiles:
            profiles[known] = new_context(options)
            profiles[known].new_page()  # which stays: a tab without it needs a window, whose own parts cost half a page
        context = profiles[known]
        context.clear_cookies()
        tab = context.new_page()
        tab.goto(f"{served.url}/robots.txt")  # any address of the page's origin, whose store is emptied
        tab.evaluate("localStorage.clear(); sessionStorage.clear()")
        return tab

    def open_page(served: Served, path: str = "/", **options: Any) -> Screen:
        tab = empty_tab(served, options)
        tabs.append(tab)
        tab.set_default_timeout(PATIENCE_MS)
        _watch(tab, urlsplit(served.url).netloc, faults)
        tab.goto(served.url + path)
        screen = Screen(tab, served)
        screen.wait_until_ready()
        return screen

    yield open_page
    for tab in tabs:
        tab.close()
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def screen(page: Served, opened: Callable[..., Screen]) -> Screen:
    """The page, 1280 pixels wide, as it opens."""
    return opened(page)


def _watch(tab: Page, host: str, faults: list[str]) -> None:
    def requested(request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.netloc != host:
            faults.append(f"request to another host: {request.url[:200]}")

    def said(message: Any) -> None:
        if message.type == "error" and not message.text.startswith(LEFT_WHILE_STREAMING):
            faults.append(f"console: {message.text[:500]} ({message.location.get('url')})")

    def asked(dialog: Any) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    tab.on("request", requested)
    tab.on("console", said)
    tab.on("pageerror", lambda error: faults.append(f"page error: {error}"))
    tab.on("dialog", asked)
