"""The one thread that owns the model.

A fresh thread per request brings its own OpenMP team and costs 5 to 15 % of the decode speed on two cores; a lasting one
costs nothing. Jobs run one after the other, in the order they were given.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["ModelThread"]

T = TypeVar("T")


class ModelThread:
    """A long-lived daemon thread that runs the jobs it is given."""

    def __init__(self, name: str = "kvdemo-model") -> None:
        self._closed = False
        self._order = threading.Lock()  # a job is put in before the end, or never
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` in the model's thread; its result or exception is in the future. Cancelled once it is closed."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = job()
            except BaseException as error:  # everything belongs to whoever asked
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._order:
            if not self._closed:
                self._jobs.put(run)
                return future
        future.cancel()
        future.set_running_or_notify_cancel()
        return future

    def close(self) -> None:
        """End the thread after the jobs it already has."""
        with self._order:
            self._closed = True
            self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # a finished job must not keep its tensors alive until the next one
