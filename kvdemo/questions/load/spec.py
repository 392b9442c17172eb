"""With many at once: the ways to serve requests, the request, what a round came to, and the result."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import Comparison, Metric, StopReason, checked_budget
from kvdemo.experiments.prompt_file import MAX_PROMPTS, PromptRow
from kvdemo.facts.load import MAX_REQUESTS, PAGED, Arrival, ManyRecord, ManyRequest, Serving
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord, Status
from kvdemo.facts.requests import (
    MAX_NEW_TOKENS,
    MAX_ROUNDS,
    Message,
    checked_choice,
    checked_int,
    checked_number,
    keep_int,
)
from kvdemo.facts.results import Environment

__all__ = [
    "HERE",
    "LOAD_METRIC",
    "MODES",
    "LoadComparison",
    "LoadPoint",
    "LoadResult",
    "LoadRound",
    "LoadSpec",
    "Mode",
    "ModeRun",
    "mode_of",
]

LOAD_METRIC: Metric = "throughput_tokens_per_s"
MAX_SWEEP = 12


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to serve requests. strategy: the cache; share: pages that begin alike are computed once."""

    key: str
    label: str
    serving: Serving
    strategy: str
    share: bool = False

    @property
    def cache(self) -> str:
        """The cache in a word or two."""
        return (
            f"{self.strategy}, {'shared' if self.share else 'not shared'}" if self.strategy == PAGED else self.strategy
        )


# The order in which they stand everywhere; the first one chosen is the baseline.
MODES = (
    Mode("one-by-one", "One by one", "one-by-one", "dynamic"),
    Mode("padded", "Padded batch", "padded", "dynamic"),
    Mode("continuous", "Continuous batching", "continuous", PAGED, share=True),
    Mode("continuous-unshared", "Continuous batching, pages not shared", "continuous", PAGED),
    Mode("one-by-one-no-cache", "One by one, no cache", "one-by-one", "none"),
    Mode("padded-no-cache", "Padded batch, no cache", "padded", "none"),
    Mode("at-once", "All at their times, to a server", "at-once", "dynamic"),
)


HERE = tuple(mode for mode in MODES if mode.serving != "at-once")
"""Those that the loaded model can be served in."""


def mode_of(key: str) -> Mode:
    return next(mode for mode in MODES if mode.key == key)


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """So many requests at once, greedy, served in each of these modes.

    prompts           taken in turn until there are enough requests
    requests          how many; sweep: further numbers of them, each measured the same way
    rate_per_s        they arrive with Poisson gaps, so many a second; None: all together. arrival_seed: of the gaps
    page_size         tokens of a page; num_pages: that there are, None: enough for all at once
    target_ttft_s     a request meets the target when its first token comes so long after its arrival;
    target_request_s  and its last one so long after. None: no target
    """

    prompts: tuple[PromptRow, ...]
    requests: int = 8
    modes: tuple[str, ...] = ("one-by-one", "padded", "continuous")
    max_new_tokens: int = 64
    rate_per_s: float | None = None
    arrival_seed: int = 0
    rounds: int = 1
    as_chat: bool = False
    fixed_length: bool = True
    page_size: int = 128
    num_pages: int | None = None
    target_ttft_s: float | None = None
    target_request_s: float | None = None
    sweep: tuple[int, ...] = ()
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.prompts) <= MAX_PROMPTS:
            raise InvalidRequest("prompts", f"there must be between one and {MAX_PROMPTS:,}, not {len(self.prompts):,}")
        keep_int(self, "requests", 1, MAX_REQUESTS)
        if not self.modes:
            raise InvalidRequest("modes", "choose at least one")
        for key in self.modes:
            checked_choice("modes", key, tuple(mode.key for mode in MODES))
        ordered = tuple(mode.key for mode in MODES if mode.key in self.modes)
        object.__setattr__(self, "modes", ordered)
        keep_int(self, "max_new_tokens", 1, MAX_NEW_TOKENS)
        if self.rate_per_s is not None:
            checked_number("rate_per_s", self.rate_per_s, 0.001, 1000)
        keep_int(self, "arrival_seed", 0, 2**32)
        keep_int(self, "rounds", 1, MAX_ROUNDS)
        keep_int(self, "page_size", 4, 4096)
        if self.num_pages is not None:
            checked_int("num_pages", self.num_pages, 1, 1_000_000)
        for name in ("target_ttft_s", "target_request_s"):
            if getattr(self, name) is not None:
                checked_number(name, getattr(self, name), 0.001, 86_400)
        if len(self.sweep) > MAX_SWEEP:
            raise InvalidRequest("sweep", f"at most {MAX_SWEEP} numbers")
        for number in self.sweep:
            checked_int("sweep", number, 1, MAX_REQUESTS)
        object.__setattr__(self, "sweep", tuple(sorted(set(self.sweep))))
        checked_budget(self.time_budget_s)

    @property
    def has_target(self) -> bool:
        return self.target_ttft_s is not None or self.target_request_s is not None

    def row(self, index: int) -> PromptRow:
        """Whose prompt this request has."""
        return self.prompts[index % len(self.prompts)]

    def prompt(self, index: int) -> str | tuple[Message, ...]:
        """The prompt of this request as a run takes it."""
        row = self.row(index)
        if not self.as_chat:
            return f"{row.system}\n\n{row.prompt}" if row.system else row.prompt
        system = (Message("system", row.system),) if row.system else ()
        return (*system, Message("user", row.prompt))

    def arrivals(self, requests: int, *, at_most: int | None = None) -> tuple[Arrival, ...]:
        """at_most: new tokens of each, and all of them together: a warm-up."""
        gaps, at_s, found = random.Random(self.arrival_seed), 0.0, []
        for index in range(requests):
            new_tokens = self.row(index).max_new_tokens or self.max_new_tokens
            if at_most is not None:
                found.append(Arrival(self.prompt(index), min(new_tokens, at_most)))
                continue
            found.append(Arrival(self.prompt(index), new_tokens, at_s))
            at_s += gaps.expovariate(self.rate_per_s) if self.rate_per_s is not None else 0.0
        return tuple(found)

    def request(self, key: str, requests: int, *, at_most: int | None = None) -> ManyRequest:
        """What one run of this mode asks for."""
        mode = mode_of(key)
        return ManyRequest(
            serving=mode.serving,
            arrivals=self.arrivals(requests, at_most=at_most),
            strategy=mode.strategy,
            fixed_length=self.fixed_length,
            page_size=self.page_size,
            num_pages=self.num_pages,
            share_prefix=mode.share,
        )

    def met(self, run: RunRecord) -> bool | None:
        """Did this request meet every target? A failed one did not; None: it cannot be judged, or there is no target."""
        if not self.has_target:
            return None
        if run.status != "ok":
            return False
        first_s = None if run.ttft_s is None else run.queue_s + run.ttft_s
        judged = [
            None if took_s is None else took_s <= target_s
            for target_s, took_s in ((self.target_ttft_s, first_s), (self.target_request_s, run.request_s))
            if target_s is not None
        ]
        return False if False in judged else None if None in judged else True


@dataclass(frozen=True, slots=True)
class ModeRun:
    """All requests served once in one mode. Round 0 is the warm-up."""

    mode: str
    round: int
    order: int
    record: ManyRecord

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def counts(self) -> bool:
        return self.round > 0 and self.record.status == "ok"


@dataclass(frozen=True, slots=True)
class LoadRound:
    """A round that is over, told while the rest goes on."""

    requests: int
    number: int
    runs: tuple[ModeRun, ...]


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """So many requests at once, in every mode and round."""

    requests: int
    runs: tuple[ModeRun, ...]

    def of(self, mode: str) -> tuple[ModeRun, ...]:
        """The runs of one mode that belong in the statistics."""
        return tuple(run for run in self.runs if run.mode == mode and run.counts)

    def both(self, one: str, other: str) -> tuple[tuple[ModeRun, ModeRun], ...]:
        """The two modes' runs of every round in which both count."""
        others = {run.round: run for run in self.of(other)}
        return tuple((run, others[run.round]) for run in self.of(one) if run.round in others)


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """A mode's throughput beside the first mode's, and whether each request's tokens are the same.

    comparison   ratio = the mode's throughput / the first one's: above 1 when it serves more
    request      the first request (from 0) whose tokens differ, None where none does
    gap_there    by how much the first mode's token beats the other one's where they part, in its logits; None: not measured
    """

    comparison: Comparison
    request: int | None = None
    gap_there: float | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """points: the asked number of requests first, then the sweep's. stopped_because: rounds, budget, stopped, limit, failed."""

    spec: LoadSpec
    model: ModelFacts
    environment: Environment
    points: tuple[LoadPoint, ...]
    comparisons: tuple[LoadComparison, ...] = ()
    stopped_because: StopReason = "rounds"

    @property
    def main(self) -> LoadPoint:
        """The number of requests that was asked for."""
        return self.points[0]

    @property
    def sweep(self) -> tuple[LoadPoint, ...]:
        """Every number of requests, the smallest first."""
        return tuple(sorted(self.points, key=lambda point: point.requests))

    def comparison(self, mode: str) -> LoadComparison | None:
        return next((item for item in self.comparisons if item.comparison.candidate == mode), None)
