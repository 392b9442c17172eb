"""How long does torch.compile take while a run goes on? Told by dynamo itself, at the beginning and end of each compiling.

It compiles nothing and knows neither models nor caches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["CompileClock", "timing_compiles"]


@dataclass
class CompileClock:
    """Seconds that were spent compiling so far; None while nothing was compiled."""

    spent_s: float | None = None
    _began_s: float = 0.0

    def begin(self, _: object = None) -> None:
        self._began_s = time.perf_counter()

    def end(self, _: object = None) -> None:
        self.spent_s = (self.spent_s or 0.0) + time.perf_counter() - self._began_s


@contextlib.contextmanager
def timing_compiles() -> Iterator[CompileClock]:
    """A clock that runs whenever something is compiled inside the block, recording of CUDA graphs included.

    Dynamo's callbacks belong to the whole process: one block at a time, which the model's one thread sees to.
    """
    from torch._dynamo import callback_handler

    clock = CompileClock()
    callback_handler.register_start_callback(clock.begin)
    callback_handler.register_end_callback(clock.end)
    try:
        yield clock
    finally:
        callback_handler.remove_start_callback(clock.begin)
        callback_handler.remove_end_callback(clock.end)
