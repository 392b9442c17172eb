"""The same prompt with two or more cache strategies, one run after the other, in rounds.

A generator of progress and events, then one result. Runs come from a callable: no model is known here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.attempt import Alive, Run, Stop, never, with_progress
from kvdemo.experiments.rounds import CacheSlots, Course, Step
from kvdemo.experiments.summary import Decode, summarise
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.requests import CompareSpec
from kvdemo.facts.results import ComparisonResult, Environment

__all__ = ["Gap", "chosen_rows", "compare"]

Gap = Callable[[str, str, tuple[int, ...]], Alive[float | None]]
"""(baseline, candidate, tokens both made) -> largest difference of their logits over these, from an untimed pass."""


def compare(
    spec: CompareSpec,
    run: Run,
    *,
    model: ModelFacts,
    environment: Environment,
    strategies: Mapping[str, StrategyRow],
    clock: Callable[[], float] = time.monotonic,
    prompt_tokens: int | None = None,
    cache_slots: CacheSlots | None = None,
    gap: Gap | None = None,
    decode: Decode | None = None,
    stop: Stop = never,
    limit_s: float | None = None,
    warm_up: bool = True,
) -> Iterator[Step | ComparisonResult]:
    """Which strategy is faster on this prompt, and are the tokens the same?

    InvalidRequest at once for a strategy that is unknown or unavailable. Each arm first has an untimed warm-up of its
    own (round 0), then every round runs every arm once, in rotating order. `stop` is asked between runs and events;
    stopped, the result is made of what was done. A consumer that closes the generator instead can still call
    `summarise` on the records it saw. An arm that failed its warm-up, or failed twice, is not run again.

    prompt_tokens with cache_slots let a cache of fixed size reserve the same slots in the warm-up as in the rounds.
    limit_s is the operator's: no new run begins after it.
    """
    rows = chosen_rows(spec.strategies, strategies)
    course = Course(spec, rows, run, clock, stop, prompt_tokens, cache_slots, limit_s)

    def steps() -> Generator[Step | ComparisonResult, None, None]:
        reason = yield from course.go(warm_up)
        gaps: dict[str, float | None] = {}
        if gap is not None and reason not in ("stopped", "limit"):
            for row in course.to_measure_gaps(model.dtype):
                told = partial(course.progress, f"{row.label}: comparing its logits, not timed")
                yield told()
                with contextlib.suppress(KvdemoError):  # the figure is a supplement: without it the result stands
                    measured = gap(rows[0].key, row.key, course.common_tokens(row.key))
                    gaps[row.key] = yield from with_progress(measured, told)
        yield summarise(
            spec,
            course.runs,
            model=model,
            environment=environment,
            strategies=strategies,
            stopped_because=reason,
            gaps=gaps,
            decode=decode,
        )

    return steps()


def chosen_rows(keys: Sequence[str], strategies: Mapping[str, StrategyRow]) -> tuple[StrategyRow, ...]:
    """The rows of these strategies; InvalidRequest for one that is unknown or cannot be used here."""
    for key in keys:
        if key not in strategies:
            raise InvalidRequest("strategies", f"{key!r} is not one of {', '.join(strategies)}")
        if strategies[key].unavailable_reason:
            reason = strategies[key].unavailable_reason
            raise InvalidRequest("strategies", f"{key} cannot be used here: {reason}")
    return tuple(strategies[key] for key in keys)
