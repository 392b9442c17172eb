"""Which tests can run here, and which of them side by side.

Those marked "browser" need a Chromium or Chrome that is already on the machine.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.served import Served

# As app.py does; Gradio reads it when a test module first imports it.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

# Torch reads it when it is imported. A step of the tiny model is shorter than it takes two threads to meet: they need
# twice the processor time of one, and many times as long where two processes of tests share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell without job control starts what it runs in the background with Ctrl-C ignored, and every child inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)

# These share real_page, which takes long to start.
REAL_APP = ("tests/app/test_readme_curl.py::test_the_default_model", "tests/browser/test_real_model.py::")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_BROWSERS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
NO_BROWSER = (
    "BROWSER TESTS SKIPPED: no Chromium or Chrome found. Install one (Debian: sudo apt-get install chromium) "
    "or name one in KVDEMO_BROWSER."
)


def find_browser() -> str | None:
    """The Chromium or Chrome to test with: KVDEMO_BROWSER, else the first one that is installed."""
    named = os.environ.get("KVDEMO_BROWSER")
    if named:
        return shutil.which(named)
    found = [path for path in map(shutil.which, BROWSERS) if path]
    return next(iter(found + [path for path in MAC_BROWSERS if Path(path).exists()]), None)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The executable that the browser tests start."""
    path = find_browser()
    if path is None:
        pytest.skip(NO_BROWSER)
    return path


@pytest.fixture(scope="session")
def real_page() -> Iterator[Served]:
    """app.py with the default model, in a process of its own: started once, for bare HTTP and for the browser."""
    from tests.served import real_app

    with real_app() as page:
        yield page


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    waiting = [item for item in items if item.get_closest_marker("browser")]
    if not waiting or find_browser():
        return
    if os.environ.get("KVDEMO_REQUIRE_BROWSER"):
        raise pytest.UsageError("KVDEMO_REQUIRE_BROWSER is set and no Chromium or Chrome was found")
    config.stash[skipped_key] = len(waiting)
    for item in waiting:
        item.add_marker(pytest.mark.skip(reason="no Chromium or Chrome"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What has been imported by now stays to the end: nobody who collects garbage looks at it again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if skipped_key in config.stash:
        terminalreporter.write_line(NO_BROWSER, red=True, bold=True)


skipped_key = pytest.StashKey[int]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Where tests run in several processes, a file goes to any of them, and what shares a server to one.

    Files with a browser need a browser and a page in each process, which are kept from one such file to the next; so these
    come first, and unit tests fill up what is left.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if nodeid.startswith(REAL_APP):
                return "the app with the default model"
            return "the page over HTTP" if file.startswith("tests/app/") else file

    # In the order of their collection: what is served takes longest, and comes first.
    config.option.loadscopereorder = False
    return Scheduler(config, log)
