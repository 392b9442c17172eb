"""What experiments tell: progress while they run, and the result of a comparison at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvdemo.facts.events import GenerationEvent
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import CompareSpec

__all__ = [
    "METRICS",
    "STOP_REASONS",
    "ArmEvent",
    "ArmFailed",
    "ArmSummary",
    "Comparison",
    "ComparisonResult",
    "Environment",
    "Line",
    "Progress",
    "Spread",
    "Verdict",
]

METRICS = ("generation_s", "ttft_s", "tpot_s", "request_s")
STOP_REASONS = ("rounds", "clear", "budget", "stopped", "limit", "failed")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where something was measured.

    on_page   by the process that served the page at the same time, which takes a few percent of the speed; None: not known
    """

    kvdemo: str
    python: str
    torch: str
    transformers: str
    platform: str
    processor: str
    cpu_cores: int
    threads: int
    accelerator: str | None
    commit: str | None
    measured_at: str
    on_page: bool | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """An experiment is at run `done` of `of` (of None: unknown); `phase` says what is running, in words."""

    phase: str
    done: int
    of: int | None
    elapsed_s: float
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class ArmEvent:
    """An event of one arm's run inside an experiment. Round 0 is the warm-up.

    The record of a Finished event has its round, order and warmup filled in already.
    """

    strategy: str
    round: int
    warmup: bool
    event: GenerationEvent


@dataclass(frozen=True, slots=True)
class ArmFailed:
    """A run of one arm failed; the experiment goes on with the others. `message` may be shown to anybody."""

    strategy: str
    round: int
    warmup: bool
    message: str
    record: RunRecord


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of n values, the smallest and the largest."""

    median: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Line:
    """y = intercept + slope x; low and high: the interval of the slope, None where nobody worked it out."""

    intercept: float
    slope: float
    low: float | None = None
    high: float | None = None


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
    metric: str
    ratio: float | None
    low: float | None
    high: float | None
    coverage: float | None
    rounds: int
    verdict: Verdict
    ratios: tuple[float, ...] = ()
    range_only: bool = False
    per_token: bool = False


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ComparisonResult:
    """A finished (or stopped) comparison: every run, warm-ups included, and what follows from them.

    stopped_because   rounds (all were done), clear (the interval became narrow enough), budget (time), stopped (by a
                      person), limit (the operator's), failed (no two arms were left to compare)
    strategies        the rows of the table for the arms, in the order of spec.strategies
    """

    spec: CompareSpec
    model: ModelFacts
    environment: Environment
    runs: tuple[RunRecord, ...]
    comparisons: tuple[Comparison, ...]
    stopped_because: str = "rounds"
    strategies: tuple[StrategyRow, ...] = ()

    def row(self, strategy: str) -> StrategyRow:
        """The strategy's row of the table; a bare one where the result came without it."""
        for row in self.strategies:
            if row.key == strategy:
                return row
        return StrategyRow(strategy, strategy, "", exact=False, keeping="no")

    def counted(self, strategy: str) -> tuple[RunRecord, ...]:
        """The runs of one arm that belong in the statistics."""
        return tuple(run for run in self.runs if run.strategy == strategy and run.counts)

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
    cache_bytes: int
    cache_storage_bytes: int
    cache_bytes_by_device: dict[str, int] = field(default_factory=dict)
    peak_bytes: Spread | None = None
    peak_kind: str | None = None
    positions_computed: int = 0
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
