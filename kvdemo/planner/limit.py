"""An end for code that runs on values somebody else typed, such as a loop a billion times long in a config.

It stops Python code at its next instruction; it cannot stop one long call into a library.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["TookTooLong", "time_limit"]


class TookTooLong(BaseException):
    """Raised inside the code that ran over its time; no Exception, so that the code itself does not catch it."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise TookTooLong in this thread when the block is not done after limit_s seconds."""
    thread, lock, done = threading.get_ident(), threading.Lock(), False

    def stop() -> None:
        with lock:
            if not done:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TookTooLong))

    timer = threading.Timer(limit_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            done = True
        timer.cancel()
