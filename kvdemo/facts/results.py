"""What experiments tell: progress while they run, and the result at the end."""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.facts.events import GenerationEvent
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import CompareSpec

__all__ = ["ArmEvent", "Comparison", "ComparisonResult", "Environment", "Progress", "Verdict"]

METRICS = ("generation_s", "ttft_s", "tpot_s", "request_s")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where something was measured."""

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
    """An event of one arm's run inside an experiment."""

    strategy: str
    round: int
    warmup: bool
    event: GenerationEvent


@dataclass(frozen=True, slots=True)
class Verdict:
    """Are the tokens of two arms the same? Judged on ids.

    first_difference   index of the first token that differs, None when all are the same (or one is a prefix: its length)
    expected_equal     both arms are exact and the run was greedy float32: a difference is a fault
    largest_gap        largest difference of logits up to there, None when not measured
    """

    same_output: bool
    first_difference: int | None
    expected_equal: bool
    baseline_text: str = ""
    candidate_text: str = ""
    largest_gap: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one arm beside the baseline: ratio = baseline / candidate, above 1 when the candidate is faster.

    low, high, coverage   order-statistic interval of the median of the paired ratios; None below six rounds,
                          where low and high are only the range (range_only)
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


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """A finished (or stopped) comparison: every run, warm-ups included, and what follows from them."""

    spec: CompareSpec
    model: ModelFacts
    environment: Environment
    runs: tuple[RunRecord, ...]
    comparisons: tuple[Comparison, ...]
    stopped_because: str = "rounds"
