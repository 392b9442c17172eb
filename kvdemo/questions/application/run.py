"""The program again and again, in processes: rounds over the ways of running it, and what the rounds come to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.attempt import Place, Stop, never
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.json_documents import decoded
from kvdemo.experiments.rounds import Arm, Limits, Rounds, Step
from kvdemo.experiments.statistics import paired_ratios, ratio_figures
from kvdemo.questions.application.spec import (
    AS_IS,
    NO_MODEL,
    ApplicationResult,
    ApplicationSpec,
    ArmOfProgram,
    ProgramRun,
    Ratio,
    RatioMetric,
)
from kvdemo.watching.record import Call, Watched

__all__ = ["Launch", "compare_program", "not_here", "ratios_of", "result_of"]

Launch = Callable[[str, bool], tuple[Any, str]]
"""(arm, is it the first run of all?) -> (the record of that process as plain values, None where it left none; its last words,
where it failed)."""

METRICS: tuple[RatioMetric, ...] = ("generation_s", "wall_s")


def not_here(spec: ApplicationSpec, bench: Bench) -> Iterator[Any]:
    """A page never runs anybody's scripts."""
    raise InvalidRequest("program", "scripts are run by the command kvdemo watch only; open its result here")


def result_of(spec: ApplicationSpec, watched: Watched) -> ApplicationResult:
    """What was seen of a program that ran once."""
    assert watched.environment is not None
    return ApplicationResult(spec, _model_of(watched), watched.environment, _without_ids(watched))


def compare_program(
    spec: ApplicationSpec,
    launch: Launch,
    labels: Mapping[str, str],
    *,
    clock: Callable[[], float],
    stop: Stop = never,
) -> Iterator[Step | ApplicationResult]:
    """Each way once as a warm-up (files are read into memory by it, and code is compiled), then in rounds of rotating order.

    launch runs one of them to its end; what raises KeyboardInterrupt there ends the rounds, with what was done; it goes on
    where that is nothing.
    """
    seen: dict[str, Watched] = {}

    def arm_of(key: str) -> Arm[ProgramRun]:
        def play(place: Place) -> Generator[Step, None, ProgramRun]:
            yield from ()
            return _one(key, place, launch, seen, first=not seen and place.warmup and place.order == 1)

        return Arm(key, labels.get(key, key), play)

    def steps() -> Generator[Step | ApplicationResult, None, None]:
        rounds = Rounds([arm_of(key) for key in spec.compare], Limits(spec.rounds), clock=clock, stop=stop)
        reason = yield from rounds.go()
        runs = [run for *_, run in rounds.outcomes]
        if not seen:
            if reason == "stopped":
                raise KeyboardInterrupt
            why = next((run.error for run in runs if run.error), "nothing was run")
            raise KvdemoError(f"No run of the program came to its end without an error: {why}.")
        shown = seen.get(AS_IS) or next(seen[key] for key in spec.compare if key in seen)
        assert shown.environment is not None
        yield ApplicationResult(
            spec=spec,
            model=_model_of(shown),
            environment=shown.environment,
            watched=_without_ids(shown),
            arms=tuple(_arm(key, labels.get(key, key), seen.get(key)) for key in spec.compare),
            runs=tuple(dataclasses.replace(run, token_ids=None) for run in runs),
            comparisons=ratios_of(spec.compare, runs, sampled=any(call.sampled for call in shown.calls)),
            stopped_because=reason,
        )

    return steps()


def _one(key: str, place: Place, launch: Launch, seen: dict[str, Watched], *, first: bool) -> ProgramRun:
    where = ProgramRun(key, "failed", place.round, place.order, place.warmup)
    try:
        values, why = launch(key, first)
    except KeyboardInterrupt:
        return dataclasses.replace(where, status="cancelled")
    if values is None:
        return dataclasses.replace(where, error=why.rpartition("\n")[2][:300])
    watched = decoded(Watched, values, "record")
    failed = watched.script.exit_code != 0
    if not failed:
        seen[key] = watched
    computed = [sum(call.positions_computed) for call in watched.calls if call.positions_computed is not None]
    held = [call.peak_cache_bytes for call in watched.calls if call.peak_cache_bytes is not None]
    return dataclasses.replace(
        where,
        status="failed" if failed else "ok",
        exit_code=watched.script.exit_code,
        wall_s=watched.script.wall_s,
        generation_s=watched.script.generation_s,
        calls=len(watched.calls) + watched.calls_left_out,
        positions_computed=sum(computed) if len(computed) == len(watched.calls) else None,
        peak_cache_bytes=max(held, default=None),
        error=f"it ended with exit code {watched.script.exit_code}" if failed else None,
        token_ids=tuple(call.token_ids for call in watched.calls),
    )


def ratios_of(arms: Sequence[str], runs: Sequence[ProgramRun], *, sampled: bool = False) -> tuple[Ratio, ...]:
    """The first arm beside each of the others, by generation and by the whole: ratios are taken inside the rounds."""
    placed = {(run.round, run.arm): run for run in runs if run.counts}
    found = []
    for candidate in arms[1:]:
        numbers = sorted({number for number, arm in placed if arm == candidate and (number, arms[0]) in placed})
        pairs = [(placed[number, arms[0]], placed[number, candidate]) for number in numbers]
        same, differing = _same(pairs)
        for metric in METRICS:
            ratios = paired_ratios((getattr(one, metric), getattr(other, metric)) for one, other in pairs)
            found.append(
                Ratio(
                    baseline=arms[0],
                    candidate=candidate,
                    metric=metric,
                    same_output=same,
                    differing_call=differing,
                    sampled=sampled,
                    **ratio_figures(ratios),
                )
            )
    return tuple(found)


def _same(pairs: Sequence[tuple[ProgramRun, ProgramRun]]) -> tuple[bool | None, int | None]:
    """Are the ids of all calls the same in every round? And the first call that is not."""
    told: bool | None = None
    for one, other in pairs:
        if one.token_ids is None or other.token_ids is None:
            continue
        if len(one.token_ids) != len(other.token_ids):
            return False, min(len(one.token_ids), len(other.token_ids)) + 1
        for number, (left, right) in enumerate(zip(one.token_ids, other.token_ids, strict=True), 1):
            if left is None or right is None:
                continue
            if left != right:
                return False, number
            told = True
    return told, None


def _arm(key: str, label: str, watched: Watched | None) -> ArmOfProgram:
    if watched is None or watched.environment is None:
        return ArmOfProgram(key, label)
    there = watched.environment
    classes = tuple(dict.fromkeys(call.cache_class for call in watched.calls if call.cache_class))
    return ArmOfProgram(key, label, there.python, there.torch, there.transformers, watched.cached, classes)


def _model_of(watched: Watched) -> Any:
    return watched.models[0] if watched.models else NO_MODEL


def _without_ids(watched: Watched) -> Watched:
    """The ids are the text: they stay with the comparison that needed them."""
    calls: tuple[Call, ...] = tuple(dataclasses.replace(call, token_ids=None) for call in watched.calls)
    return dataclasses.replace(watched, calls=calls)
