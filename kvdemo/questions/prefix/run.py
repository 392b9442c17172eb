"""Does a shared prefix pay? The same questions after one long system prompt, processed every time or once and kept.

Runs and the preparing of the prefix come from callables. The kept run's first-token time includes copying the kept
cache, since each question needs a copy of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.attempt import Alive, Place, Run, Stop, attempt, never, with_progress
from kvdemo.experiments.rounds import WARMUP_TOKENS, Step
from kvdemo.experiments.statistics import median, order_statistic_interval, paired_ratios, spread
from kvdemo.experiments.summary import Decode, judge
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import Environment, Progress
from kvdemo.questions.prefix.spec import PrefixPair, PrefixResult, PrefixSpec, PreparedPrefix

__all__ = ["Prepare", "pays_after", "prefix_reuse", "summarise_prefix"]

Prepare = Callable[[PrefixSpec], Alive[PreparedPrefix]]


def prefix_reuse(
    spec: PrefixSpec,
    run_fresh: Run,
    run_with_prefix: Run,
    prepare_prefix: Prepare,
    *,
    model: ModelFacts,
    environment: Environment,
    strategies: Mapping[str, StrategyRow],
    clock: Callable[[], float] = time.monotonic,
    decode: Decode | None = None,
    stop: Stop = never,
    limit_s: float | None = None,
    cache_slots: int | None = None,
) -> Iterator[Step | PrefixPair | PrefixResult]:
    """How much sooner does the first token come when the shared prefix is kept, and after how many questions does
    keeping it pay?

    Every question is asked both ways, in alternating order, after an untimed warm-up of each way. The events of the
    two arms are called "fresh" and "kept". InvalidRequest at once for a strategy that is unknown, unavailable, or
    whose cache cannot be copied; after the warm-ups when the kept prefix was not used.

    cache_slots   positions that a cache of fixed size reserves for every question both ways, the longest one's
    """
    if spec.strategy not in strategies:
        raise InvalidRequest("strategy", f"{spec.strategy!r} is not one of {', '.join(strategies)}")
    row = strategies[spec.strategy]
    if row.unavailable_reason or row.keeping not in ("crop", "copy"):
        why = row.unavailable_reason or "its cache cannot be copied for each question"
        raise InvalidRequest("strategy", f"{row.key} cannot be used here: {why}")
    equal = row.exact and spec.sampling.greedy and model.dtype == "float32"
    runs = {"fresh": run_fresh, "kept": run_with_prefix}
    named = ((spec.time_budget_s, "budget"), (limit_s, "limit"))
    limits = [(allowed_s, why) for allowed_s, why in named if allowed_s is not None]

    def steps() -> Generator[Step | PrefixPair | PrefixResult, None, None]:
        started = clock()
        pairs: list[PrefixPair] = []
        warmups: list[RunRecord] = []

        def preparing() -> Progress:
            return Progress("processing the prefix once", 0, len(spec.questions), clock() - started)

        def ask(question: str, place: Place) -> Generator[Step, None, RunRecord]:
            words = "warming up, not timed" if place.warmup else f"question {place.round} of {len(spec.questions)}"
            arm = "processed every time" if place.arm == "fresh" else "prefix kept"
            elapsed_s = clock() - started
            left_s = elapsed_s / len(pairs) * (len(spec.questions) - len(pairs)) if pairs else None
            yield Progress(f"{words}, {arm}", len(pairs), len(spec.questions), elapsed_s, left_s)
            request = GenerationRequest(
                prompt=spec.messages(question),
                max_new_tokens=min(spec.max_new_tokens, WARMUP_TOKENS) if place.warmup else spec.max_new_tokens,
                strategy=spec.strategy,
                sampling=spec.sampling,
                fixed_length=spec.fixed_length,
                cache_slots=cache_slots,
            )
            return (yield from attempt(runs[place.arm or "fresh"], request, place))

        warmups.append((yield from ask(spec.questions[0], Place(0, 1, warmup=True, arm="fresh"))))
        yield preparing()
        prefix = yield from with_progress(prepare_prefix(spec), preparing)
        warmups.append((yield from ask(spec.questions[0], Place(0, 2, warmup=True, arm="kept"))))
        if warmups[-1].status == "ok" and not warmups[-1].reused_tokens:
            raise InvalidRequest("system_prompt", "the kept prefix was not used, so there is nothing to compare")
        reason = "stopped" if stop() or any(run.status == "cancelled" for run in warmups) else "questions"
        for number, question in enumerate(spec.questions if reason == "questions" else (), 1):
            if late := [why for allowed_s, why in limits if clock() - started >= allowed_s]:
                reason = late[0]
                break
            order = ("fresh", "kept") if number % 2 else ("kept", "fresh")
            made: dict[str, RunRecord] = {}
            for index, arm in enumerate(order, 1):
                if not stop() and all(run.status != "cancelled" for run in made.values()):
                    made[arm] = yield from ask(question, Place(number, index, arm=arm))
            if len(made) == 2:
                both = [(made["fresh"], made["kept"])] if all(run.counts for run in made.values()) else []
                verdict = judge(both, expected_equal=equal, decode=decode)
                pairs.append(PrefixPair(question, made["fresh"], made["kept"], verdict, first=order[0]))
                yield pairs[-1]
            if len(made) < 2 or made[order[1]].status == "cancelled":
                reason = "stopped"
                break
        yield summarise_prefix(
            spec,
            prefix,
            pairs,
            model=model,
            environment=environment,
            warmups=warmups,
            stopped_because=reason,
        )

    return steps()


def summarise_prefix(
    spec: PrefixSpec,
    prefix: PreparedPrefix,
    pairs: Sequence[PrefixPair],
    *,
    model: ModelFacts,
    environment: Environment,
    warmups: Sequence[RunRecord] = (),
    stopped_because: str = "questions",
) -> PrefixResult:
    """What do these questions say about keeping the prefix?"""
    counted = [pair for pair in pairs if pair.counts]
    ratios = paired_ratios((pair.fresh.ttft_s, pair.kept.ttft_s) for pair in counted)
    interval = order_statistic_interval(ratios)
    return PrefixResult(
        spec=spec,
        model=model,
        environment=environment,
        prefix=prefix,
        pairs=tuple(pairs),
        ratio=median(ratios),
        low=interval.low if interval else min(ratios) if len(ratios) > 1 else None,
        high=interval.high if interval else max(ratios) if len(ratios) > 1 else None,
        coverage=interval.coverage if interval else None,
        fresh_ttft_s=spread(pair.fresh.ttft_s for pair in counted),
        kept_ttft_s=spread(pair.kept.ttft_s for pair in counted),
        pays_after=pays_after(prefix.prepare_s, median(pair.saved_s for pair in counted)),
        warmups=tuple(warmups),
        stopped_because=stopped_because,
    )


def pays_after(prepare_s: float, saved_s: float | None) -> int | None:
    """The smallest number of questions whose time saved covers `prepare_s`; None when nothing is saved."""
    if saved_s is None or saved_s <= 0:
        return None
    return max(1, math.ceil(prepare_s / saved_s))
