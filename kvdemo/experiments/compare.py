"""The same prompt with two or more cache strategies, one run after the other, in rounds.

A generator of progress and events, then one result. Runs come from the bench: no model is known here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import replace
from functools import partial

from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.attempt import Place, attempt, with_progress
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.rounds import WARMUP_TOKENS, Arm, Limits, Rounds, Step
from kvdemo.experiments.statistics import is_clear, paired_ratios
from kvdemo.experiments.summary import first_difference, paired, summarise
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Prompt
from kvdemo.facts.steps import CacheNorms

__all__ = ["compare"]

CLEAR_WITHIN = 0.05


def compare(
    spec: CompareSpec, bench: Bench, *, prompt_tokens: int | None = None, warm_up: bool = True
) -> Generator[Step | ComparisonResult, None, None]:
    """Which strategy is faster on this prompt, and are the tokens the same?

    InvalidRequest at once for a strategy that is unknown or unavailable. Each arm first has an untimed warm-up of its
    own (round 0), then every round runs every arm once, in rotating order. `bench.stop` is asked between runs and events;
    stopped, the result is made of what was done. A consumer that closes the generator instead can still call
    `summarise` on the records it saw.

    prompt_tokens with bench.cache_slots let a cache of fixed size reserve the same slots in the warm-up as in the rounds.
    """
    bench.rows(spec.strategies)
    if spec.norms is not None and bench.norms is None:
        raise InvalidRequest("norms", "can be recorded of a model that runs here: a server shows nothing of its cache")
    running = _Running(spec, bench, prompt_tokens)

    def steps() -> Generator[Step | ComparisonResult, None, None]:
        rounds = running.rounds
        yield from running.norms_after((0,), ())  # is there such a layer and head? Known before the first run
        reason = yield from rounds.go(warm_up)
        gaps: dict[str, float | None] = {}
        if bench.gap is not None and reason not in ("stopped", "limit"):
            for row in running.to_measure_gaps():
                progress = partial(rounds.progress, f"{row.label}: comparing its logits, not timed")
                yield progress()
                with contextlib.suppress(KvdemoError):  # the figure is a supplement: without it the result stands
                    made = running.common_tokens(row.key)
                    measured = bench.gap(spec.prompt_of_run(), spec.strategies[0], row.key, made)
                    gaps[row.key] = yield from with_progress(measured, progress)
        norms = None
        if reason not in ("stopped", "limit") and (made := running.tokens_made()):
            norms = yield from running.norms_after(
                spec.prompt_of_run(), made[:-1]
            )  # the newest token is in no cache yet
        result = summarise(
            spec,
            running.runs,
            model=bench.model,
            environment=bench.environment,
            strategies=bench.strategies,
            stopped_because=reason,
            gaps=gaps,
            decode=bench.decode,
            noise=bench.noise if bench.noise and bench.noise.holds_for(spec.max_new_tokens) else None,
        )
        yield replace(result, norms=norms)

    return steps()


class _Running:
    """The arms of one comparison and their records so far."""

    def __init__(self, spec: CompareSpec, bench: Bench, prompt_tokens: int | None) -> None:
        self.spec, self.bench, self.prompt_tokens = spec, bench, prompt_tokens
        self.rows = spec.arm_rows(bench.strategies)
        until_clear = self._all_clear if spec.time_budget_s is not None else None
        self.rounds = Rounds(
            [self._arm(row) for row in self.rows],
            Limits(spec.rounds, spec.time_budget_s, until_clear, bench.limit_s),
            clock=bench.clock,
            stop=bench.stop,
        )

    @property
    def runs(self) -> list[RunRecord]:
        return [record for _, _, record in self.rounds.outcomes]

    def _arm(self, row: StrategyRow) -> Arm[RunRecord]:
        strategy = self.spec.strategy_of(row.key)

        def play(place: Place) -> Generator[Step, None, RunRecord]:
            request = self._request(strategy, row, warmup=place.warmup)
            record = yield from attempt(self.bench.run, request, place)
            self.prompt_tokens = self.prompt_tokens or record.prompt_tokens or None
            return record

        def expected_s(record: RunRecord, took_s: float) -> float:
            """A short warm-up drawn out to the full length."""
            missing = self.spec.max_new_tokens - record.new_tokens if record.warmup else 0
            return took_s + missing * (record.tpot_s or 0.0)

        warming = "compiling, about a minute the first time" if row.compiles else "warming up, not timed"
        return Arm(row.key, row.label, play, warming, expected_s)

    def _request(self, strategy: str, row: StrategyRow, *, warmup: bool) -> GenerationRequest:
        slots, new_tokens = None, self.spec.max_new_tokens
        if row.fixed_size and self.bench.cache_slots is not None and self.prompt_tokens is not None:
            slots = self.bench.cache_slots(self.prompt_tokens, new_tokens)
        # A short warm-up has the shapes of a timed run, except where the cache is cut to the request or code is
        # compiled for what it meets.
        if warmup and not row.compiles and (slots is not None or not row.fixed_size):
            new_tokens = min(new_tokens, WARMUP_TOKENS)
        return GenerationRequest(
            prompt=self.spec.prompt_of_run(),
            max_new_tokens=new_tokens,
            strategy=strategy,
            sampling=self.spec.sampling,
            fixed_length=self.spec.fixed_length,
            cache_slots=slots,
        )

    def norms_after(self, prompt: Prompt, made: tuple[int, ...]) -> Generator[Step, None, CacheNorms | None]:
        """The norms that were asked for, of a cache that holds these tokens; None where none were, or they could not be had."""
        if self.spec.norms is None or self.bench.norms is None:
            return None
        progress = partial(self.rounds.progress, "Keys and values: measuring their lengths, not timed")
        yield progress()
        return (yield from with_progress(self.bench.norms(prompt, made, *self.spec.norms), progress))

    def tokens_made(self) -> tuple[int, ...]:
        """Of the first counted run; () where no run counts."""
        return next((run.token_ids for run in self.runs if run.counts and run.token_ids), ())

    def _all_clear(self) -> bool:
        return all(is_clear(self._ratios(arm.key), CLEAR_WITHIN) for arm in self.rounds.alive()[1:])

    def _ratios(self, candidate: str) -> tuple[float, ...]:
        pairs = paired(self.runs, self.rows[0].key, candidate)
        return paired_ratios((one.generation_s, other.generation_s) for one, other in pairs)

    def to_measure_gaps(self) -> list[StrategyRow]:
        """Candidates whose tokens may differ from the baseline's without a fault, and that have made some."""
        exact = self.rows[0].exact and self.bench.model.dtype == "float32"
        others = self.rows[1 : len(self.spec.strategies)]
        return [row for row in others if not (exact and row.exact) and self.common_tokens(row.key)]

    def common_tokens(self, candidate: str) -> tuple[int, ...]:
        """The tokens of the first paired round up to the first difference."""
        for one, other in paired(self.runs, self.rows[0].key, candidate):
            if one.token_ids is not None and other.token_ids is not None:
                return one.token_ids[: first_difference(one.token_ids, other.token_ids)]
        return ()
