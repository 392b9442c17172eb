"""Does a shared prefix pay? The same questions after one long system prompt, processed every time or once and kept.

Runs and the preparing of the prefix come from callables. The kept run's first-token time includes copying the kept
cache, since each question needs a copy of its own.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from functools import partial

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.attempt import Place, attempt, with_progress
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.rounds import WARMUP_TOKENS, Arm, Limits, Rounds, Step
from kvdemo.experiments.statistics import median, order_statistic_interval, paired_ratios, spread
from kvdemo.experiments.summary import judge
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import Environment, PreparedPrefix
from kvdemo.questions.prefix.spec import Ended, PrefixPair, PrefixResult, PrefixSpec, Way

__all__ = ["pays_after", "prefix_reuse", "summarise_prefix"]


def prefix_reuse(spec: PrefixSpec, bench: Bench) -> Iterator[Step | PrefixPair | PrefixResult]:
    """How much sooner does the first token come when the shared prefix is kept, and after how many questions does
    keeping it pay?

    Every question is asked both ways, in alternating order, after an untimed warm-up of each way. The two arms are called
    "fresh" and "kept". InvalidRequest at once for a strategy that is unknown, unavailable, or whose cache cannot be
    copied, and where nothing can be kept at all; after the warm-ups when the kept prefix was not used.
    """
    (row,) = bench.rows((spec.strategy,), "strategy")
    if row.keeping not in ("crop", "copy"):
        raise InvalidRequest("strategy", f"{row.key} cannot be used here: its cache cannot be copied for each question")
    if bench.share is None:
        raise InvalidRequest("system_prompt", "a prefix cannot be kept here")
    shared = bench.share([spec.messages(question) for question in spec.questions], spec.strategy, spec.max_new_tokens)
    equal = row.exact and spec.sampling.greedy and bench.model.dtype == "float32"
    prepared: list[PreparedPrefix] = []
    pairs: list[PrefixPair] = []

    def request(place: Place) -> GenerationRequest:
        return GenerationRequest(
            prompt=spec.messages(spec.questions[max(0, place.round - 1)]),
            max_new_tokens=min(spec.max_new_tokens, WARMUP_TOKENS) if place.warmup else spec.max_new_tokens,
            strategy=spec.strategy,
            sampling=spec.sampling,
            fixed_length=spec.fixed_length,
            cache_slots=shared.slots,
        )

    def fresh(place: Place) -> Generator[Step, None, RunRecord]:
        return (yield from attempt(bench.run, request(place), place))

    def kept(place: Place) -> Generator[Step, None, RunRecord]:
        if not prepared:
            progress = partial(rounds.progress, "processing the prefix once")
            yield progress()
            prepared.append((yield from with_progress(shared.prepare(), progress)))
        record = yield from attempt(shared.run, request(place), place)
        if place.warmup and record.status == "ok" and record.reused_tokens == 0:
            raise InvalidRequest("system_prompt", "the kept prefix was not used, so there is nothing to compare")
        return record

    def pair_of(number: int) -> Iterator[PrefixPair]:
        """The question of this round, once both ways have been tried."""
        made = rounds.of_round(number)
        if len(made) == 2:
            both = [(made["fresh"], made["kept"])] if all(run.counts for run in made.values()) else []
            verdict = judge(both, expected_equal=equal, decode=bench.decode)
            question = spec.questions[number - 1]
            first: Way = "fresh" if next(iter(made)) == "fresh" else "kept"
            pairs.append(PrefixPair(question, made["fresh"], made["kept"], verdict, first=first))
            yield pairs[-1]

    rounds: Rounds[RunRecord] = Rounds(
        [Arm("fresh", "processed every time", fresh), Arm("kept", "prefix kept", kept)],
        Limits(len(spec.questions), spec.time_budget_s, None, bench.limit_s),
        clock=bench.clock,
        stop=bench.stop,
        name="question",
    )

    def steps() -> Generator[Step | PrefixPair | PrefixResult, None, None]:
        reason = yield from rounds.go(after_round=pair_of)
        yield summarise_prefix(
            spec,
            prepared[0] if prepared else PreparedPrefix(None, None, None),
            pairs,
            model=bench.model,
            environment=bench.environment,
            warmups=tuple(rounds.of_round(0).values()),
            stopped_because="questions" if reason == "rounds" or reason == "clear" else reason,
            page_tokens=bench.page_tokens,
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
    stopped_because: Ended = "questions",
    page_tokens: int | None = None,
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
        page_tokens=page_tokens,
    )


def pays_after(prepare_s: float | None, saved_s: float | None) -> int | None:
    """The smallest number of questions whose time saved covers `prepare_s`; None when nothing is saved, or not known."""
    if prepare_s is None or saved_s is None or saved_s <= 0:
        return None
    return max(1, math.ceil(prepare_s / saved_s))
