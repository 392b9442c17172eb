"""What a benchmark says at its end: a line of JSON with the median of every figure, and between what it lies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kvdemo.experiments.statistics import median, order_statistic_interval

__all__ = ["between", "in_words", "print_figures"]


def print_figures(
    found: Mapping[str, Sequence[float]], worst: Mapping[str, Sequence[float]] | None = None, **others: Any
) -> None:
    """The last line: the median of each of `found`, the largest value of each of `worst`, `others` as they are, intervals.

    An interval is that of the median; below six values, and of `worst`, it is the range, of coverage null; of a single value
    there is none.
    """
    worst = worst or {}
    figures = {key: median(values) for key, values in found.items()} | {key: max(all_) for key, all_ in worst.items()}
    intervals = {key: between(values) for key, values in found.items()} | {
        key: _range(all_) for key, all_ in worst.items()
    }
    print(json.dumps({**figures, **others, "intervals": intervals}))


def between(values: Sequence[float]) -> dict[str, float | None] | None:
    """Where the median lies, and with which coverage; None of a single value."""
    interval = order_statistic_interval(values)
    if interval is None:
        return _range(values)
    return {"low": interval.low, "high": interval.high, "coverage": interval.coverage}


def _range(values: Sequence[float]) -> dict[str, float | None] | None:
    return {"low": min(values), "high": max(values), "coverage": None} if len(values) > 1 else None


def in_words(values: Sequence[float], digits: int = 3) -> str:
    """The same for a person: "0.981 (0.968 to 0.990, 96.5 %, 15 rounds)"."""
    found = between(values)
    middle = f"{median(values):.{digits}f}"
    if found is None:
        return f"{middle} (one round)"
    coverage = "range" if found["coverage"] is None else f"{found['coverage']:.1%}"
    return f"{middle} ({found['low']:.{digits}f} to {found['high']:.{digits}f}, {coverage}, {len(values)} rounds)"
