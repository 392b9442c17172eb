"""With many at once? The same requests served in every mode, modes interleaved in rounds, at one number of them and more.

Serving comes from the bench: no model is known here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from functools import partial

from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.attempt import Place, with_progress
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.comparison import StopReason
from kvdemo.experiments.rounds import WARMUP_TOKENS, Arm, Limits, Rounds, Step
from kvdemo.facts.events import Waiting, Working
from kvdemo.facts.load import ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress
from kvdemo.questions.load.spec import LoadPoint, LoadResult, LoadRound, LoadSpec, ModeRun, mode_of
from kvdemo.questions.load.summary import compared, difference_of, largest_that_meets

__all__ = ["load"]

Serve = Callable[[ManyRequest], Iterator[Waiting | Working | ManyFinished]]
_ROUNDS: StopReason = "rounds"
COMMON_TOKENS = 4096  # a longer answer is not gone through again for a logit


def load(spec: LoadSpec, bench: Bench) -> Iterator[Step | LoadRound | LoadResult]:
    """How does the model serve so many requests, in each mode?

    InvalidRequest at once, naming the field, where a mode cannot be had, or model, memory or limits do not allow so many.
    """
    serve = bench.run_many
    if serve is None:
        raise InvalidRequest("modes", "requests cannot be served together here")
    numbers = [spec.requests, *(number for number in spec.sweep if number != spec.requests)]
    for number in sorted(numbers, reverse=True):
        for mode in spec.modes:
            bench.check_many(spec.request(mode, number))

    def steps() -> Generator[Step | LoadRound | LoadResult, None, None]:
        started, reason = bench.clock(), _ROUNDS
        points: list[LoadPoint] = []
        to_do = list(numbers)
        while to_do:
            number = to_do.pop(0)
            left_s, limit_s = (
                None if allowed_s is None else allowed_s - (bench.clock() - started)
                for allowed_s in (spec.time_budget_s, bench.limit_s)
            )
            if points and left_s is not None and left_s <= 0:
                reason = "budget"
                break
            rounds = rounds_of(spec, bench, serve, number, Limits(spec.rounds, left_s, None, limit_s))
            reason = yield from rounds.go(after_round=partial(finished_round, rounds, number))
            points.append(LoadPoint(number, tuple(run for _, _, run in rounds.outcomes)))
            if reason in ("stopped", "limit", "budget"):
                break
            if not to_do and spec.sweep and (between := number_between(spec, points)) is not None:
                to_do.append(between)
        gaps: dict[str, float | None] = {}
        if reason not in ("stopped", "limit"):
            gaps = yield from gaps_of(spec, bench, points[0], rounds.progress)
        yield LoadResult(
            spec=spec,
            model=bench.model,
            environment=bench.environment,
            points=(points[0], *sorted(points[1:], key=lambda point: point.requests)),
            comparisons=compared(spec, points[0], bench.model, gaps, bench.decode),
            stopped_because=reason,
        )

    return steps()


def number_between(spec: LoadSpec, points: list[LoadPoint]) -> int | None:
    """The next number to try so that a sweep ends at "8 at once meet the target, 9 miss it", for the mode that gets furthest.

    Halfway between the largest that meets it and the next that misses it; None where no number lies between, or no target.
    """
    if not spec.has_target:
        return None
    found = [largest_that_meets(spec, points, mode) for mode in spec.modes]
    most, missing = max(found, key=lambda one: (one[0] or 0, one[1] is not None))
    low = most or 0
    between = (low + missing) // 2 if missing is not None and missing - low > 1 else None
    return None if between in {point.requests for point in points} else between


def rounds_of(spec: LoadSpec, bench: Bench, serve: Serve, number: int, limits: Limits) -> Rounds[ModeRun]:
    """The modes as arms."""

    def arm(key: str) -> Arm[ModeRun]:
        def play(place: Place) -> Generator[Step, None, ModeRun]:
            request = spec.request(key, number, at_most=WARMUP_TOKENS if place.warmup else None)
            return (yield from served(serve, request, key, place))

        return Arm(key, f"{mode_of(key).label}, {number} requests" if number > 1 else mode_of(key).label, play)

    return Rounds([arm(key) for key in spec.modes], limits, clock=bench.clock, stop=bench.stop)


def served(
    serve: Serve, request: ManyRequest, key: str, place: Place
) -> Generator[ArmEvent | ArmFailed, None, ModeRun]:
    """All requests once. What is refused before anything was timed (a warm-up) is an InvalidRequest; later it has failed."""
    events = serve(request)
    try:
        record = yield from _record_of(events, key, place)
    except KvdemoError as error:
        if isinstance(error, InvalidRequest) and place.warmup:
            raise
        record = ManyRecord(request.serving, request.strategy, "failed", (), forwards=None, error=str(error))
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()
    if record.status == "failed":
        failed = RunRecord(
            None if key.startswith("continuous") else request.strategy, "failed", None, 0, error=record.error, arm=key
        )
        yield ArmFailed(key, place.round, place.warmup, record.error or "it did not say why", failed)
    return ModeRun(key, place.round, place.order, record)


def _record_of(
    events: Iterator[Waiting | Working | ManyFinished], key: str, place: Place
) -> Generator[ArmEvent, None, ManyRecord]:
    for event in events:
        if isinstance(event, ManyFinished):
            return event.record
        yield ArmEvent(key, place.round, place.warmup, event)
    raise RuntimeError("requests were served without a record of it")


def finished_round(rounds: Rounds[ModeRun], number: int, round_number: int) -> Iterator[LoadRound]:
    runs = tuple(rounds.of_round(round_number).values())
    if runs:
        yield LoadRound(number, round_number, runs)


def gaps_of(
    spec: LoadSpec, bench: Bench, point: LoadPoint, progress: Callable[[str], Progress]
) -> Generator[Progress, None, dict[str, float | None]]:
    """Of each mode that parts from the first one: by how much the first one's token beats the other's there."""
    gaps: dict[str, float | None] = {}
    for key in spec.modes[1:]:
        differs = difference_of(point, spec.modes[0], key)
        if bench.margin is None or differs is None or differs.one is None or differs.other is None:
            continue
        if len(differs.made) > COMMON_TOKENS:
            continue
        measured = bench.margin(spec.prompt(differs.request), differs.made, differs.one, differs.other)
        with contextlib.suppress(KvdemoError):  # the figure is a supplement: without it the result stands
            gaps[key] = yield from with_progress(
                measured, partial(progress, f"{mode_of(key).label}: the logits where it parts, not timed")
            )
    return gaps
