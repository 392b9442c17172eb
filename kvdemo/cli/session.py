"""A backend for the time of one command: its model loaded, its experiment followed, Ctrl-C taken as "stop, and keep it"."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from kvdemo.cli.progress import loading, progress
from kvdemo.ending import ENDING_SIGNALS
from kvdemo.errors import InvalidRequest, ModelUnavailable
from kvdemo.experiments.question import Needs
from kvdemo.facts.endpoint import Endpoint
from kvdemo.facts.model import Failed
from kvdemo.facts.reader import Reader
from kvdemo.facts.requests import checked_choice
from kvdemo.questions.table import QUESTIONS, Table
from kvdemo.settings import Settings

if TYPE_CHECKING:
    from kvdemo.backend import Backend

__all__ = [
    "CHATTING",
    "MEASURING",
    "OWNER",
    "Interruption",
    "endpoint_from",
    "last",
    "loaded_backend",
    "settings_for",
    "stopping_on_ctrl_c",
]

OWNER = "cli"
CHATTING = Reader(every_s=0.1)
MEASURING = Reader(every_s=0.5)


def settings_for(model: str | None) -> Settings:
    return Settings.from_environment(os.environ, model=model)


def endpoint_from(model: str | None, url: str | None, key_env: str | None) -> Endpoint | None:
    """The server that the switches name; the key comes out of the environment, since others can read a command line."""
    if url is None:
        if key_env is not None:
            raise InvalidRequest("key_env", "goes with --url")
        return None
    key = None
    if key_env is not None and not (key := os.environ.get(key_env)):
        raise InvalidRequest("key_env", f"there is no {key_env[:80]} in the environment, or it is empty")
    return Endpoint(url, model, key)


@contextmanager
def loaded_backend(
    model: str | None, strategies: Sequence[str], table: Table = QUESTIONS, needs: Needs = "model"
) -> Iterator[Backend]:
    """A backend with its model loaded; a strategy that is not in the table is refused before, a missing model after.

    needs: what the question does; where it is not the model, that is not loaded
    """
    from kvdemo.backend import Backend

    backend = Backend(settings_for(model), questions=table)
    try:
        for key in strategies:
            checked_choice("strategies", key, [row.key for row in backend.strategies()])
        if needs != "model":
            yield backend
            return
        backend.start()
        with loading(backend):
            status = backend.wait_until_settled()
        if isinstance(status, Failed):
            raise ModelUnavailable(status.reason)
        yield backend
    finally:
        backend.close()


class Interruption:
    """Has somebody pressed Ctrl-C?"""

    def __init__(self) -> None:
        self.happened = False


@contextmanager
def stopping_on_ctrl_c(backend: Backend) -> Iterator[Interruption]:
    """The first Ctrl-C or SIGTERM stops what runs, so that it hands over what it has; the second ends the command at once.

    One that is ignored stays ignored.
    """
    interruption = Interruption()

    def stop(number: int, frame: FrameType | None) -> None:
        hand_back()
        interruption.happened = True
        print("\nStopping; what was done is kept. Ctrl-C again ends at once.", file=sys.stderr, flush=True)
        # In a thread of its own: the main thread may be holding the lock that stopping takes.
        threading.Thread(target=backend.stop, args=(OWNER,), name="kvdemo-stop").start()

    def hand_back() -> None:
        for ending, handler in before.items():
            signal.signal(ending, handler)

    before = {ending: signal.getsignal(ending) for ending in ENDING_SIGNALS}
    before = {ending: handler for ending, handler in before.items() if handler is not signal.SIG_IGN}
    for ending in before:
        signal.signal(ending, stop)
    try:
        yield interruption
    finally:
        hand_back()


def last(steps: Iterator[Any]) -> Any:
    """Follow an experiment to its result, with its progress on stderr."""
    step = None
    with progress() as show:
        for step in steps:
            show(step)
    return step
