"""The tiny model, loaded once for all unit tests that only run it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvdemo.models.loaded import LoadedModel
from tests.tiny import tiny_loaded


@pytest.fixture(scope="session")
def tiny() -> Iterator[LoadedModel]:
    loaded = tiny_loaded()
    yield loaded
    loaded.thread.close()
