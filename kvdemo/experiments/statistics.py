"""Medians, paired ratios, exact intervals and straight lines: arithmetic on plain numbers.

It knows nothing of runs or models. Missing values (None) are skipped, never counted as 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from kvdemo.facts.results import Line, Spread

__all__ = [
    "MIN_ROUNDS",
    "MIN_STEPS",
    "Interval",
    "RatioFigures",
    "fit_line",
    "is_clear",
    "line_of_one",
    "line_of_runs",
    "median",
    "order_statistic_interval",
    "paired_ratios",
    "ratio_figures",
    "spread",
]

MIN_ROUNDS = 6  # below it the range of the values covers the median in less than 95 % of cases
MIN_STEPS = 32  # of a single answer: below it a few slow steps pass for a slope
CLOCK_S = 1e-9  # what is smaller is rounding of our own


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of the median of what was sampled, with the chance that such an interval holds it."""

    low: float
    high: float
    coverage: float


def median(values: Iterable[float | None]) -> float | None:
    """The middle value (the mean of the middle two), None when there is none."""
    known = _known(values)
    return statistics.median(known) if known else None


def spread(values: Iterable[float | None]) -> Spread | None:
    """Median, smallest, largest and count, None when there is no value."""
    known = _known(values)
    middle = median(known)
    return None if middle is None else Spread(median=middle, low=known[0], high=known[-1], n=len(known))


def paired_ratios(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[float, ...]:
    """baseline / candidate of each pair; a pair that lacks a value, or whose candidate is 0, is left out."""
    return tuple(
        baseline / candidate
        for baseline, candidate in pairs
        if baseline is not None and candidate is not None and candidate > 0 and math.isfinite(baseline / candidate)
    )


def order_statistic_interval(values: Sequence[float], coverage: float = 0.95) -> Interval | None:
    """Between which two of the values does the median of their distribution lie, at `coverage` or more?

    Exact, whatever the distribution: the k-th smallest and k-th largest of n values enclose its median with
    probability 1 - 2 P(Binomial(n, 1/2) < k). The largest k that reaches `coverage` is taken; None when not even
    the range does (below six values at 95 %). Six: min to max, 96.9 %; nine: 2nd to 8th, 96.1 %.
    Source: David and Nagaraja, Order Statistics, section 7.1.
    """
    n = len(values)
    best: Interval | None = None
    outside = 0.0
    ordered = sorted(values)
    for k in range(1, n // 2 + 1):
        outside += 2 * math.comb(n, k - 1) / 2**n
        if 1 - outside < coverage:
            break
        best = Interval(ordered[k - 1], ordered[n - k], 1 - outside)
    return best


def is_clear(values: Sequence[float], within: float = 0.05) -> bool:
    """Is the interval of the median within `within` of the median on both sides?"""
    interval, middle = order_statistic_interval(values), median(values)
    if interval is None or middle is None:
        return False
    return interval.high - middle <= within * middle and middle - interval.low <= within * middle


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line | None:
    """The least squares line through the points, None with fewer than two different xs."""
    if len(xs) == len(ys) and len(set(xs)) < 2:
        return None
    slope, intercept = statistics.linear_regression(xs, ys)
    return Line(intercept, slope)


class RatioFigures(TypedDict):
    """What paired ratios come to, by the names that comparisons have for it.

    low, high    the exact interval of the median; below MIN_ROUNDS only the range, and None of a single one
    coverage     of the interval; None for a range
    """

    ratio: float | None
    low: float | None
    high: float | None
    coverage: float | None
    rounds: int
    ratios: tuple[float, ...]
    range_only: bool


def ratio_figures(ratios: tuple[float, ...]) -> RatioFigures:
    """The median of ratios that were each taken inside a round, and how sure it is."""
    interval = order_statistic_interval(ratios)
    ranged = interval is None and len(ratios) > 1
    return {
        "ratio": median(ratios),
        "low": interval.low if interval else min(ratios) if ranged else None,
        "high": interval.high if interval else max(ratios) if ranged else None,
        "coverage": interval.coverage if interval else None,
        "rounds": len(ratios),
        "ratios": ratios,
        "range_only": ranged,
    }


def line_of_one(steps: Sequence[float]) -> Line | None:
    """The line through the steps 1, 2, ... of one answer, with its slope and two standard errors around it.

    None where these hold 0, so that no slope can be told from noise, and below MIN_STEPS.
    """
    n = len(steps)
    line = fit_line(range(1, n + 1), steps) if n >= MIN_STEPS else None
    if line is None:
        return None
    rest = math.fsum((y - line.intercept - line.slope * x) ** 2 for x, y in enumerate(steps, 1))
    around = n * (n * n - 1) / 12  # the sum of squared distances of 1 ... n from their mean
    two_errors = 2 * math.sqrt(rest / (n - 2) / around)
    return _stated(line, line.slope - two_errors, line.slope + two_errors, n)


def line_of_runs(runs: Sequence[Sequence[float]], middle: Sequence[float]) -> Line | None:
    """The line through `middle` (the medians of the steps 1, 2, ...) whose slope is the median of the runs' own.

    None where the order-statistic interval of these slopes holds 0, and where there is none: below MIN_ROUNDS runs.
    A single run is one answer.
    """
    if len(runs) == 1:
        return line_of_one(runs[0])
    own = (fit_line(range(1, len(steps) + 1), steps) for steps in runs)
    slopes = [line.slope for line in own if line is not None]
    interval, slope = order_statistic_interval(slopes), median(slopes)
    if interval is None or slope is None or not middle:
        return None
    intercept = math.fsum(middle) / len(middle) - slope * (len(middle) + 1) / 2
    return _stated(Line(intercept, slope), interval.low, interval.high, len(middle))


def _stated(line: Line, low: float, high: float, steps: int) -> Line | None:
    """The line with the interval of its slope; None where that holds 0, and where all steps add less than a clock tick."""
    if low <= 0 <= high or abs(line.slope) * steps < CLOCK_S:
        return None
    return replace(line, low=low, high=high)


def _known(values: Iterable[float | None]) -> list[float]:
    return sorted(value for value in values if value is not None and math.isfinite(value))
