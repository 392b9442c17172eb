"""What a test knows of a value that may be something else: where it is mistaken it fails here, and mypy follows it."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar, cast

from kvdemo.facts.events import Finished

__all__ = ["ended", "known", "returned", "sure"]

T = TypeVar("T")


def known(value: T | None) -> T:
    """A figure that this run must have."""
    assert value is not None
    return value


def sure(kind: type[T], value: object) -> T:
    """A value that must be of this type."""
    assert isinstance(value, kind), value
    return value


def returned(steps: Generator[object, None, T]) -> T:
    """What a generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def ended(events: Iterable[object]) -> Finished:
    """How a run ended: the last of its events."""
    *_, last = events
    return sure(Finished, last)
