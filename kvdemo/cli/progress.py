"""What a person sees on stderr while something goes on: loading, and where an experiment is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvdemo.facts.model import Loading
from kvdemo.facts.results import Progress
from kvdemo.facts.units import format_seconds

if TYPE_CHECKING:
    from kvdemo.backend.protocol import Backend

__all__ = ["loading", "progress"]

LOOK_S = 0.2


@contextmanager
def loading(backend: Backend) -> Iterator[None]:
    """Tell each step of the loading on stderr, where a person is looking."""
    settled = threading.Event()

    def watch() -> None:
        shown = ""
        while not settled.wait(LOOK_S):
            status = backend.status()
            line = f"Loading {status.name}: {status.step}" if isinstance(status, Loading) else ""
            if line and line != shown:
                shown = line
                print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield
        return
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        settled.set()
        watcher.join()


@contextmanager
def progress() -> Iterator[Callable[[object], None]]:
    """A function that shows each Progress on stderr: in place on a terminal, elsewhere one line for each new phase."""
    last = ""
    live = sys.stderr.isatty()

    def show(step: object) -> None:
        nonlocal last
        if not isinstance(step, Progress):
            return
        of = f" of {step.of}" if step.of is not None else ""
        left = f", about {format_seconds(step.left_s)} left" if step.left_s is not None else ""
        line = f"{step.phase} ({step.done}{of} done{left})"
        if live:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif step.phase != last:
            print(line, file=sys.stderr, flush=True)
        last = step.phase

    try:
        yield show
    finally:
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
