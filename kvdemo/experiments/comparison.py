"""Two or more arms on one prompt: the request, what their runs come to, and the result. What several questions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.records import PeakKind, RunRecord
from kvdemo.facts.requests import (
    MAX_ARMS,
    MAX_NEW_TOKENS,
    MAX_ROUNDS,
    Message,
    SamplingParams,
    checked_int,
    checked_number,
    checked_text,
    keep_int,
)
from kvdemo.facts.results import Environment, Line, Spread
from kvdemo.facts.steps import CacheNorms

__all__ = [
    "AGAIN",
    "ENDPOINT_ARM",
    "MAX_LAYERS",
    "METRICS",
    "ArmSummary",
    "CompareSpec",
    "Comparison",
    "ComparisonResult",
    "Metric",
    "Noise",
    "StopReason",
    "Verdict",
    "checked_arms",
    "checked_budget",
    "endpoint_row",
]

Metric = Literal["generation_s", "ttft_s", "tpot_s", "request_s", "throughput_tokens_per_s"]
METRICS: tuple[Metric, ...] = ("generation_s", "ttft_s", "tpot_s", "request_s")  # of two runs
AGAIN = "-again"
MAX_LAYERS = 100_000  # more layers or heads than any model has: which of them there are, the model says
ENDPOINT_ARM = "endpoint"
"""The one arm of a request to an engine behind a URL, whose cache is not ours to choose."""
ENDPOINT_TRADE = "an engine behind a URL: its cache is not ours to choose"
StopReason = Literal["rounds", "clear", "budget", "stopped", "limit", "failed"]
"""All rounds were done, the interval became narrow enough, the time was up, a person stopped it, so did the operator's limit, no
two arms were left to compare."""


def checked_arms(strategies: tuple[str, ...], least: int = 2) -> None:
    """InvalidRequest unless these are `least` or more keys, each once; whether they exist is the experiment's to know.

    A server behind a URL is one arm by itself: there is nothing to choose.
    """
    if strategies == (ENDPOINT_ARM,):
        return
    if not least <= len(strategies) <= MAX_ARMS:
        raise InvalidRequest("strategies", f"choose between {'one' if least == 1 else 'two'} and {MAX_ARMS}")
    for strategy in strategies:
        checked_text("strategies", strategy, max_chars=40)
    if len(set(strategies)) != len(strategies):
        raise InvalidRequest("strategies", "each may be chosen once")


def endpoint_row(name: str) -> StrategyRow:
    """The arm as the strategies table would have it. name: of what is asked."""
    return StrategyRow(ENDPOINT_ARM, name, ENDPOINT_TRADE, exact=False, keeping="copy")


def checked_budget(time_budget_s: float | None) -> None:
    """InvalidRequest unless this is None or between a second and a day."""
    if time_budget_s is not None:
        checked_number("time_budget_s", time_budget_s, 1, 86_400)


@dataclass(frozen=True, slots=True)
class CompareSpec:
    """Two or more strategies on one prompt. The first strategy is the baseline.

    time_budget_s   None: exactly `rounds`; else rounds go on (at least `rounds`) until the interval is within 5 % of
                    the median or the budget ends
    norms           (layer, KV head) whose keys and values are looked at after the timed runs; None: none
    noise           run the first strategy once more in every round, as an arm of its own: how much do two identical runs
                    differ on this machine? Then a single strategy is enough
    """

    prompt: str
    strategies: tuple[str, ...] = ("none", "dynamic")
    max_new_tokens: int = 64
    rounds: int = 1
    as_chat: bool = False
    system_prompt: str = ""
    fixed_length: bool = True
    sampling: SamplingParams = field(default_factory=SamplingParams)
    time_budget_s: float | None = None
    noise: bool = False
    norms: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        checked_text("prompt", self.prompt)
        checked_text("system_prompt", self.system_prompt, empty=True)
        keep_int(self, "max_new_tokens", 1, MAX_NEW_TOKENS)
        keep_int(self, "rounds", 1, MAX_ROUNDS)
        checked_arms(self.strategies, least=1 if self.noise else 2)
        checked_budget(self.time_budget_s)
        if self.norms is not None:
            layer, head = self.norms
            chosen = checked_int("layer", layer, 0, MAX_LAYERS), checked_int("head", head, 0, MAX_LAYERS)
            object.__setattr__(self, "norms", chosen)

    @property
    def arms(self) -> tuple[str, ...]:
        """The keys of the arms, the baseline first: the strategies, and the baseline again where noise is asked for."""
        return (*self.strategies, f"{self.strategies[0]}{AGAIN}") if self.noise else self.strategies

    def strategy_of(self, arm: str) -> str:
        """The strategy that this arm runs: its own, or the baseline's for the baseline again."""
        return self.strategies[0] if self.noise and arm == self.arms[-1] else arm

    def arm_rows(self, strategies: Mapping[str, StrategyRow]) -> tuple[StrategyRow, ...]:
        """The arms as rows of the table, each under its own key and label."""
        again = (_again(strategies[self.strategies[0]]),) if self.noise else ()
        return (*(strategies[key] for key in self.strategies), *again)

    def prompt_of_run(self) -> str | tuple[Message, ...]:
        """The prompt as a run takes it: the text, or a conversation of one turn."""
        if not self.as_chat:
            return self.prompt
        system = (Message("system", self.system_prompt),) if self.system_prompt else ()
        return (*system, Message("user", self.prompt))


def _again(row: StrategyRow) -> StrategyRow:
    return replace(row, key=f"{row.key}{AGAIN}", label=f"{row.label}, again")


@dataclass(frozen=True, slots=True)
class Noise:
    """How much do two identical runs differ here? The ratio of an arm with itself, median and interval over the rounds.

    Below six rounds low and high are only the range; None with one round.

    new_tokens   of its runs: longer ones differ by less; None in results from before it was kept
    """

    ratio: float
    low: float | None
    high: float | None
    rounds: int
    new_tokens: int | None = None

    def holds_for(self, new_tokens: int) -> bool:
        """Were its runs about as long as these, half to twice?"""
        return self.new_tokens is not None and self.new_tokens / 2 <= new_tokens <= 2 * self.new_tokens

    @property
    def most(self) -> float:
        """The largest difference seen, as a share: 0.04 where times differ by up to 4 %."""
        return max(abs(value - 1) for value in (self.ratio, self.low, self.high) if value is not None)

    def words(self) -> str:
        """The largest difference in percent: "4 %", "0.3 %"."""
        percent = self.most * 100
        return f"{percent:.1f} %" if percent < 0.95 else f"{percent:.0f} %"

    def covers(self, ratio: float) -> bool:
        """Is a ratio no further from 1 than two identical runs are?"""
        return max(ratio, 1 / ratio) - 1 <= self.most if ratio > 0 else False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Are the tokens of two arms the same? Judged on ids, over every round in which both finished.

    same_output          None: no round in which both finished
    first_difference     index of the first token that differs (one a prefix of the other: its length), else None
    expected_equal       both arms are exact and the run was greedy float32: a difference is a fault
    largest_gap          largest difference of logits up to there, None when not measured
    baseline_text, candidate_text   the texts around the first difference, "" when there is none
    """

    same_output: bool | None
    first_difference: int | None
    expected_equal: bool
    baseline_text: str = ""
    candidate_text: str = ""
    largest_gap: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one arm beside the baseline: ratio = baseline / candidate, above 1 when the candidate is faster.

    low, high, coverage   order-statistic interval of the median of the paired ratios; below six rounds low and high
                          are only the range (range_only, coverage None), with one round all three are None
    per_token             the arms made different numbers of tokens: the ratio is that of the time per output token
    """

    baseline: str
    candidate: str
    metric: Metric
    ratio: float | None
    low: float | None
    high: float | None
    coverage: float | None
    rounds: int
    verdict: Verdict
    ratios: tuple[float, ...] = ()
    range_only: bool = False
    per_token: bool = False


@dataclass(frozen=True)  # no slots: what is worked out once is kept
class ComparisonResult:
    """A finished (or stopped) comparison: every run, warm-ups included, and what follows from them.

    strategies        the rows of the table for spec.strategies, in that order
    noise             of this machine, where it was measured before, or in this comparison
    norms             of the keys and values that a cache holds of prompt and answer; None: not recorded
    """

    spec: CompareSpec
    model: ModelFacts
    environment: Environment
    runs: tuple[RunRecord, ...]
    comparisons: tuple[Comparison, ...]
    stopped_because: StopReason = "rounds"
    strategies: tuple[StrategyRow, ...] = ()
    noise: Noise | None = None
    norms: CacheNorms | None = None

    def row(self, arm: str) -> StrategyRow:
        """The arm's row of the table; a bare one where the result came without it."""
        strategy = self.spec.strategy_of(arm)
        known = next((row for row in self.strategies if row.key == strategy), None)
        row = known or StrategyRow(strategy, strategy, "", exact=False, keeping="no")
        return row if strategy == arm else _again(row)

    @cached_property
    def arm_summaries(self) -> tuple[ArmSummary, ...]:
        """One row per arm, in the order of the spec. Every table, chart and document asks for it: worked out once."""
        from kvdemo.experiments.summary import summarise_arm

        return tuple(summarise_arm(self, key) for key in self.spec.arms)

    @property
    def labels(self) -> dict[str, str]:
        """What each arm is called."""
        return {arm: self.row(arm).label for arm in self.spec.arms}

    def counted(self, arm: str) -> tuple[RunRecord, ...]:
        """The runs of one arm that belong in the statistics."""
        return tuple(run for run in self.runs if run.arm_key == arm and run.counts)

    @property
    def fastest(self) -> str | None:
        """The strategy with the shortest generation; None where nothing was compared, or a strategy with itself alone."""
        ratios = {
            item.candidate: item.ratio
            for item in self.comparisons
            if item.metric == "generation_s" and item.ratio and item.candidate in self.spec.strategies
        }
        if not ratios:
            return None
        best = max(ratios, key=lambda key: ratios[key] or 0.0)
        return best if (ratios[best] or 0.0) > 1 else self.spec.strategies[0]

    def comparison(self, candidate: str, metric: str = "generation_s") -> Comparison | None:
        for comparison in self.comparisons:
            if comparison.candidate == candidate and comparison.metric == metric:
                return comparison
        return None


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm's row of the table: over its counted runs, with the count of those that are not.

    tokens                 (fewest, most) new tokens of a counted run
    cache_bytes            of the last counted run; cache_bytes_by_device the same, per device
    positions_computed     by one run, all forwards together
    warmup_s               of the warm-up, reported apart; compile_s: of all runs together, None where nothing was compiled
    step_s                 median time of each step, for as many as every run made
    step_line              step time in s by position in the answer (1, 2, ...); None where no slope is seen: its interval
                           holds 0, or there is none
    left_out               runs that failed, were cancelled or timed out
    """

    strategy: str
    label: str
    exact: bool
    n: int
    generation_s: Spread | None
    request_s: Spread | None
    ttft_s: Spread | None
    tpot_s: Spread | None
    decode_s: Spread | None
    queue_s: Spread | None
    prepare_s: Spread | None
    tokens: tuple[int, int] | None
    prompt_tokens: int | None
    cache_bytes: int | None
    cache_storage_bytes: int | None
    cache_bytes_by_device: dict[str, int] = field(default_factory=dict)
    peak_bytes: Spread | None = None
    peak_kind: PeakKind | None = None
    positions_computed: int | None = None
    compile_s: float | None = None
    warmup_s: float | None = None
    step_s: tuple[float, ...] = ()
    step_line: Line | None = None
    finish_reasons: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Of the median time per output token."""
        return 1 / self.tpot_s.median if self.tpot_s and self.tpot_s.median else None
