"""The cost of steps as a line: where it begins and ends, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from kvdemo.experiments.statistics import MIN_ROUNDS, MIN_STEPS
from kvdemo.facts.results import Line
from kvdemo.facts.units import format_seconds

__all__ = ["fitted_ms", "level", "slope_words"]


def level(steps: Sequence[float]) -> Line:
    """The mean of the steps, s: the line where no slope is seen."""
    return Line(fmean(steps), 0.0)


def fitted_ms(line: Line, steps: int) -> tuple[float, float]:
    """The fitted line at the first and at the last step, ms."""
    return (line.intercept + line.slope) * 1000, (line.intercept + line.slope * steps) * 1000


def slope_words(line: Line, *, rounds: int, steps: int) -> str:
    """What the first step takes and what each token of context adds; of a level line the mean. Never "flat".

    Where too little was measured to see a slope (rounds, and steps of each), that is said.
    """
    start_ms, added_ms = (line.intercept + line.slope) * 1000, line.slope * 1000
    start = f"{start_ms:.0f} ms" if 10 <= start_ms < 1000 else format_seconds(start_ms / 1000)
    if not line.slope:
        few = f" in {rounds} rounds" if 1 < rounds < MIN_ROUNDS else ""
        if rounds == 1 and steps < MIN_STEPS:
            few = f" in {steps} {'step' if steps == 1 else 'steps'}"
        return f"{start}, no slope seen{few}"
    added = f"{abs(added_ms):.2g}" if abs(added_ms) >= 0.001 else f"{abs(added_ms):.4f}"
    return f"{start}, {'−' if added_ms < 0 else '+'} {added} ms per token of context"
