"""Several comparisons one after the other, until all are done, somebody stops, or the time is up.

The last comparison may be cut short by the time; it counts when it got as far as one ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.attempt import Run
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.rounds import Step
from kvdemo.facts.events import GenerationEvent
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import Progress

__all__ = ["refused_at_first_only", "series"]

EndedEarly = Literal["stopped", "budget", "limit"]

Item = TypeVar("Item")
Kept = TypeVar("Kept")


def series(
    items: Sequence[Item],
    begin: Callable[[Item, Bench], Iterator[Step | ComparisonResult]],
    keep: Callable[[Item, ComparisonResult], Kept],
    name: Callable[[Item], str],
    *,
    bench: Bench,
    budget_s: float | None,
) -> Generator[Step | Kept, None, EndedEarly | None]:
    """Runs one comparison per item, yields what `keep` makes of its result.

    begin(item, bench) starts an item's comparison with the time that is left; name(item) says in words which it is.
    Returns why it ended early (stopped, budget, limit), None when all were done.
    """
    clock = bench.clock
    started = clock()
    named: list[tuple[float | None, EndedEarly]] = [(budget_s, "budget"), (bench.limit_s, "limit")]
    ends: list[tuple[float, EndedEarly]] = [(limit_s, why) for limit_s, why in named if limit_s is not None]
    ends_s: float | None = None
    why_late: EndedEarly = "limit"
    if ends:
        ends_s, why_late = min(ends)
    for done, item in enumerate(items):
        elapsed_s = clock() - started
        if bench.stop():
            return "stopped"
        if ends_s is not None and elapsed_s >= ends_s:
            return why_late
        left_s = _left_s(elapsed_s, done, len(items), ends_s)
        result: ComparisonResult | None = None
        left = replace(bench, limit_s=None if ends_s is None else ends_s - elapsed_s)
        for step in begin(item, left):
            if isinstance(step, ComparisonResult):
                result = step
            elif isinstance(step, Progress):
                yield Progress(f"{name(item)}: {step.phase}", done, len(items), clock() - started, left_s)
            else:
                yield step
        if result is None:
            raise RuntimeError("a comparison ended without its result")
        whole = result.stopped_because not in ("stopped", "limit")
        if whole or any(comparison.ratio is not None for comparison in result.comparisons):
            yield keep(item, result)
        if not whole:
            return "stopped" if result.stopped_because == "stopped" else why_late
    return None


def refused_at_first_only(run: Run, measured: Callable[[], object]) -> Run:
    """`run`, whose refusals are failures of that run alone as soon as something was measured, which must not be lost."""

    def running(request: GenerationRequest) -> Iterator[GenerationEvent]:
        try:
            yield from run(request)
        except InvalidRequest as error:
            if not measured():
                raise
            raise KvdemoError(str(error)) from error

    return running


def _left_s(elapsed_s: float, done: int, of: int, ends_s: float | None) -> float | None:
    """Time left if the rest takes as long as what was done, never more than is allowed; None while nothing is done."""
    if not done:
        return None
    usual_s = elapsed_s / done * (of - done)
    return usual_s if ends_s is None else min(usual_s, ends_s - elapsed_s)
