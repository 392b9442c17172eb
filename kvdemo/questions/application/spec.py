"""My application: a program that was watched, and the same program run with another cache or in another environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import StopReason
from kvdemo.facts.model import NOT_LOADED, ModelFacts
from kvdemo.facts.requests import MAX_ARMS, MAX_ROUNDS, checked_text, keep_int
from kvdemo.facts.results import Environment
from kvdemo.watching.record import Watched

__all__ = [
    "AS_IS",
    "NO_MODEL",
    "PYTHON",
    "ApplicationResult",
    "ApplicationSpec",
    "ArmOfProgram",
    "ProgramRun",
    "Ratio",
    "RatioMetric",
]

AS_IS = "as-is"
PYTHON = "python="
RatioMetric = Literal["generation_s", "wall_s"]
"""Generation alone, and the whole application."""

NO_MODEL = ModelFacts(
    name="no model",
    source="No model was called.",
    model_type="none",
    num_parameters=None,
    weight_bytes=None,
    dtype=NOT_LOADED,
    device=NOT_LOADED,
    context_limit=None,
    cache_bytes_per_token=None,
    vocab_size=0,
    has_chat_template=False,
    attention="not known",
)


@dataclass(frozen=True, slots=True)
class ApplicationSpec:
    """A program by its name: where it lies and its arguments stay on the machine that ran it.

    compare   what it was run with: "as-is", a key of the strategies table, or "python=" for another environment; the first is
              the baseline; () for none: it was watched once
    """

    program: str
    module: bool = False
    compare: tuple[str, ...] = ()
    rounds: int = 6

    def __post_init__(self) -> None:
        checked_text("program", self.program, max_chars=400)
        keep_int(self, "rounds", 1, MAX_ROUNDS)
        if len(self.compare) == 1 or len(self.compare) > MAX_ARMS:
            raise InvalidRequest("compare", f"choose between two and {MAX_ARMS}, such as none,as-is")
        if len(set(self.compare)) != len(self.compare):
            raise InvalidRequest("compare", "each may be chosen once")
        for arm in self.compare:
            checked_text("compare", arm, max_chars=200)


@dataclass(frozen=True, slots=True)
class ArmOfProgram:
    """One of the ways in which it was run; versions as its process said them, None where no run of it ended."""

    key: str
    label: str
    python: str | None = None
    torch: str | None = None
    transformers: str | None = None
    cached: bool | None = None
    cache_classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One run of the program, a process. status: "ok", "failed", or "cancelled" by whoever stopped it.

    wall_s              from the first line of the program to its end: starting Python and the observer is left out
    positions_computed  by all calls together; peak_cache_bytes: of the largest; None: not known
    """

    arm: str
    status: Literal["ok", "failed", "cancelled"]
    round: int
    order: int
    warmup: bool = False
    exit_code: int | None = None
    wall_s: float | None = None
    generation_s: float | None = None
    calls: int | None = None
    positions_computed: int | None = None
    peak_cache_bytes: int | None = None
    error: str | None = None
    token_ids: tuple[tuple[tuple[int, ...], ...] | None, ...] | None = None

    @property
    def counts(self) -> bool:
        return self.status == "ok" and not self.warmup


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure of two arms: ratio = baseline / candidate in each round, above 1 where the candidate is faster.

    same_output       of all calls, judged on the ids of every round; None: not known
    differing_call    the first call whose ids differ, counted from 1
    sampled           some call chooses its tokens at random, so that ids differ by themselves
    """

    baseline: str
    candidate: str
    metric: RatioMetric
    ratio: float | None
    low: float | None
    high: float | None
    coverage: float | None
    rounds: int
    same_output: bool | None
    differing_call: int | None = None
    sampled: bool = False
    ratios: tuple[float, ...] = ()
    range_only: bool = False


@dataclass(frozen=True, slots=True)
class ApplicationResult:
    """What was seen of the program as it is (of a comparison: of its first arm that leaves it so), and what was compared."""

    spec: ApplicationSpec
    model: ModelFacts
    environment: Environment
    watched: Watched
    arms: tuple[ArmOfProgram, ...] = ()
    runs: tuple[ProgramRun, ...] = ()
    comparisons: tuple[Ratio, ...] = ()
    stopped_because: StopReason = "rounds"

    def label(self, arm: str) -> str:
        return next((one.label for one in self.arms if one.key == arm), arm)

    def compared(self, candidate: str, metric: RatioMetric) -> Ratio | None:
        return next((one for one in self.comparisons if (one.candidate, one.metric) == (candidate, metric)), None)
