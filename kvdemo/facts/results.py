"""What experiments tell while they run, and where they ran."""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.facts.events import GenerationEvent
from kvdemo.facts.records import RunRecord

__all__ = [
    "ArmEvent",
    "ArmFailed",
    "Environment",
    "Line",
    "PreparedPrefix",
    "Progress",
    "Spread",
]


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

    The record of a Finished event has its round, order, warmup and arm filled in already.
    """

    arm: str
    round: int
    warmup: bool
    event: GenerationEvent


@dataclass(frozen=True, slots=True)
class ArmFailed:
    """A run of one arm failed; the experiment goes on with the others. `message` may be shown to anybody."""

    arm: str
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
class PreparedPrefix:
    """The prefix processed once and kept: its tokens, what the kept cache holds, how long that took; None: not known."""

    num_tokens: int | None
    cache_bytes: int | None
    prepare_s: float | None
