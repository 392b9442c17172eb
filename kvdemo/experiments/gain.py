"""How much faster a cache is than none, read from comparisons whichever way round they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kvdemo.experiments.comparison import AGAIN, ComparisonResult
from kvdemo.experiments.pieces import factor
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.units import format_ratio

__all__ = ["NO_CACHE", "Gain", "beside_no_cache", "gain_in", "gain_of"]

NO_CACHE = "none"


class Compared(Protocol):
    """What a comparison on one prompt and one over a whole set have in common."""

    @property
    def baseline(self) -> str: ...
    @property
    def candidate(self) -> str: ...
    @property
    def ratio(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


C = TypeVar("C", bound=Compared)


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times faster the cache `cached` is than none. low, high: the interval of it, or its range; None: neither."""

    cached: str
    ratio: float
    low: float | None
    high: float | None

    def words(self) -> str:
        """ "4.2 times faster (4.0 to 4.5)"."""
        if self.low is None or self.high is None:
            return factor(self.ratio)
        low, high = (self.low, self.high) if self.ratio >= 1 or self.low <= 0 else (1 / self.high, 1 / self.low)
        return f"{factor(self.ratio)} ({format_ratio(low)} to {format_ratio(high)})"


def gain_in(item: Compared, cached: str) -> Gain | None:
    """How many times faster the one of the two that uses a cache is than the other; None where no ratio is known."""
    if item.ratio is None or item.ratio <= 0:
        return None
    if item.candidate == cached:
        return Gain(cached, item.ratio, item.low, item.high)
    low, high = (1 / item.high if item.high else None), (1 / item.low if item.low else None)
    return Gain(cached, 1 / item.ratio, low, high)


def beside_no_cache(found: Iterable[C], rows: Mapping[str, StrategyRow]) -> tuple[Gain, C] | None:
    """The gain over no cache, with the comparison that tells it; None where no cache ran beside none.

    Of several caches the fastest that must give the same tokens, where there is such a one: the safest that can be had.
    """
    gains: list[tuple[bool, float, Gain, C]] = []
    for item in found:
        others = [key for key in (item.baseline, item.candidate) if key != NO_CACHE]
        gain = gain_in(item, others[0]) if len(others) == 1 else None
        if gain is None or item.candidate.endswith(AGAIN):
            continue
        exact = gain.cached not in rows or rows[gain.cached].exact
        gains.append((exact, gain.ratio, gain, item))
    if not gains:
        return None
    _, _, best, told_by = max(gains, key=lambda one: one[:2])
    return best, told_by


def gain_of(result: ComparisonResult) -> Gain | None:
    """The gain in the generation's time; None where no cache ran beside none."""
    rows = {row.key: row for row in result.strategies}
    found = beside_no_cache((item for item in result.comparisons if item.metric == "generation_s"), rows)
    return found[0] if found is not None else None
