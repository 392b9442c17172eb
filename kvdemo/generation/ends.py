"""On MPS transformers looks whether an answer has ended one step late, and hands tokens over as late: not here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ends_seen_at_once"]


@contextmanager
def ends_seen_at_once() -> Iterator[None]:
    """Inside the block generate looks after every step, on every device, and a token is told when it is there.

    Its deferred check (DeferredStopCheck in transformers/generation/utils.py) saves a wait for the device at each step, at the
    price of one forward too many and of every token told a step late: the first token's time would hold two forwards, and
    positions and cache would count the one that is undone. The wait that comes back is one that our clocks ask for anyway.
    The name is private: where it is gone, nothing is done. One block at a time, in the thread that owns the model.
    """
    from transformers.generation import utils

    deferred: Any = getattr(utils, "DeferredStopCheck", None)
    if deferred is None:
        yield
        return
    as_it_was = deferred.__dict__["is_supported"]
    deferred.is_supported = staticmethod(_never)
    try:
        yield
    finally:
        deferred.is_supported = as_it_was


def _never(*_: object, **__: object) -> bool:
    return False
