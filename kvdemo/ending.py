"""The end of the program on Ctrl-C and SIGTERM: at once, whatever it is doing.

A library that loads weights, unpacks or compiles cannot be stopped from outside, and Python waits at its end for the threads
that libraries started. So nothing is unwound here: what is to be cleaned up says so with `atexit`, and the process leaves.
Where a command has something to keep, it takes the first signal itself and hands back the next one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import TextIO

__all__ = ["ENDING_SIGNALS", "end_on_signals"]

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
CLEAN_UP_S = 1.0


def end_on_signals(status: int, words: str, out: TextIO | None) -> None:
    """From now on Ctrl-C and SIGTERM end the process with this status; `words` are said on `out` (None: it is closed).

    A signal that this process was started to ignore, as a shell does with what it runs in the background, stays ignored.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for ending in ENDING_SIGNALS:
            signal.signal(ending, signal.SIG_IGN)
        # In a thread of its own, and for a limited time: the main thread may hold any lock just now, and whoever reads
        # the output may not read any more.
        cleaner = threading.Thread(target=_clean_up, args=(words, out), name="kvdemo-end", daemon=True)
        with contextlib.suppress(RuntimeError):  # Python itself is ending already
            cleaner.start()
            cleaner.join(CLEAN_UP_S)
        os._exit(status)

    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def _clean_up(words: str, out: TextIO | None) -> None:
    atexit._run_exitfuncs()
    with contextlib.suppress(Exception):
        print(words, file=out or sys.stdout, flush=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
