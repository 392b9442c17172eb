"""The page over HTTP, around a tiny model on strings."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.served import Served, served_puppet
from tests.visitor import Visitor


@pytest.fixture(scope="package")
def tiny_page() -> Iterator[Served]:
    with served_puppet() as page:
        yield page


@pytest.fixture
def page(tiny_page: Served) -> Iterator[Served]:
    """The page around the tiny model, which speaks its own words and moves freely again after each test."""
    yield tiny_page
    tiny_page.puppet.answer = None
    tiny_page.puppet.let_go()
    tiny_page.puppet.wait_until_idle()


@pytest.fixture
def http(page: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=page.url, timeout=60) as client:
        yield client


@pytest.fixture
def visitor(page: Served) -> Iterator[Visitor]:
    with Visitor(page) as one:
        yield one


@pytest.fixture
def other(page: Served) -> Iterator[Visitor]:
    with Visitor(page) as one:
        yield one
