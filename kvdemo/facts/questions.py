"""The further questions of Compare: how does it grow, on my prompts, does a shared prefix pay. Requests and results."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvdemo.errors import InvalidRequest
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.requests import (
    MAX_ARMS,
    MAX_NEW_TOKENS,
    MAX_ROUNDS,
    SamplingParams,
    checked_int,
    checked_number,
    checked_text,
)
from kvdemo.facts.results import ComparisonResult, Environment
from kvdemo.questions.prefix.spec import PrefixPair, PrefixResult, PrefixSpec, PreparedPrefix

__all__ = [
    "MAX_PROMPTS",
    "GrowthPoint",
    "GrowthResult",
    "GrowthSpec",
    "PrefixPair",
    "PrefixResult",
    "PrefixSpec",
    "PreparedPrefix",
    "PromptResult",
    "PromptRow",
    "PromptSetResult",
    "PromptSetSpec",
    "SetComparison",
]

MAX_PROMPTS = 1000
MAX_GRID = 12
MAX_REQUEST_TOKENS = 10_000_000


def _checked_arms(strategies: tuple[str, ...]) -> None:
    if not 2 <= len(strategies) <= MAX_ARMS:
        raise InvalidRequest("strategies", f"choose between two and {MAX_ARMS}")
    if len(set(strategies)) != len(strategies):
        raise InvalidRequest("strategies", "each may be chosen once")
    for strategy in strategies:
        checked_text("strategies", strategy, max_chars=40)


def _checked_budget(time_budget_s: float | None) -> None:
    if time_budget_s is not None:
        checked_number("time_budget_s", time_budget_s, 1, 86_400)


def _checked_grid(name: str, lengths: tuple[int, ...], high: int) -> None:
    if len(lengths) > MAX_GRID:
        raise InvalidRequest(name, f"at most {MAX_GRID} lengths")
    for length in lengths:
        checked_int(name, length, 1, high)
    if len(set(lengths)) != len(lengths):
        raise InvalidRequest(name, "each length may be named once")


@dataclass(frozen=True, slots=True)
class GrowthSpec:
    """How do the arms differ as requests get longer? Every prompt length with every number of new tokens.

    prompt           text from which prompts of every length are cut (repeated where it is too short)
    prompt_tokens    prompt lengths; empty: chosen up to longest_tokens
    new_tokens       numbers of new tokens; empty: chosen up to longest_tokens
    longest_tokens   the longest request I allow, prompt and answer together; longer points are left out
    """

    prompt: str
    strategies: tuple[str, ...] = ("none", "dynamic")
    prompt_tokens: tuple[int, ...] = ()
    new_tokens: tuple[int, ...] = ()
    longest_tokens: int = 512
    rounds: int = 1
    time_budget_s: float | None = 300.0

    def __post_init__(self) -> None:
        checked_text("prompt", self.prompt)
        _checked_arms(self.strategies)
        checked_int("longest_tokens", self.longest_tokens, 2, MAX_REQUEST_TOKENS)
        _checked_grid("prompt_tokens", self.prompt_tokens, MAX_REQUEST_TOKENS)
        _checked_grid("new_tokens", self.new_tokens, MAX_NEW_TOKENS)
        checked_int("rounds", self.rounds, 1, MAX_ROUNDS)
        _checked_budget(self.time_budget_s)


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """The comparison of one request size. prompt_tokens is what the prompt really has: at most what was asked for."""

    prompt_tokens: int
    new_tokens: int
    result: ComparisonResult

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.new_tokens


@dataclass(frozen=True, slots=True)
class GrowthResult:
    """left_out: (prompt tokens, new tokens) of the points that time did not allow. stopped_because: points (all were
    done), budget, stopped, limit."""

    spec: GrowthSpec
    model: ModelFacts
    environment: Environment
    points: tuple[GrowthPoint, ...]
    left_out: tuple[tuple[int, int], ...] = ()
    stopped_because: str = "points"
    strategies: tuple[StrategyRow, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt of a set. `id` is its own or "row 3"; max_new_tokens None: that of the set."""

    prompt: str
    id: str
    system: str = ""
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        checked_text("prompt", self.prompt)
        checked_text("system", self.system, empty=True)
        checked_text("id", self.id, max_chars=200)
        if self.max_new_tokens is not None:
            checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)


@dataclass(frozen=True, slots=True)
class PromptSetSpec:
    """Two or more strategies on every prompt of a set.

    longest_tokens   the longest request allowed, None: the model's own limit
    """

    prompts: tuple[PromptRow, ...]
    strategies: tuple[str, ...] = ("none", "dynamic")
    max_new_tokens: int = 64
    rounds: int = 1
    as_chat: bool = True
    fixed_length: bool = True
    sampling: SamplingParams = field(default_factory=SamplingParams)
    longest_tokens: int | None = None
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.prompts) <= MAX_PROMPTS:
            raise InvalidRequest("prompts", f"there must be between one and {MAX_PROMPTS:,}, not {len(self.prompts):,}")
        _checked_arms(self.strategies)
        checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        checked_int("rounds", self.rounds, 1, MAX_ROUNDS)
        if self.longest_tokens is not None:
            checked_int("longest_tokens", self.longest_tokens, 2, MAX_REQUEST_TOKENS)
        _checked_budget(self.time_budget_s)


@dataclass(frozen=True, slots=True)
class PromptResult:
    row: PromptRow
    result: ComparisonResult


@dataclass(frozen=True, slots=True)
class SetComparison:
    """One arm beside the baseline over the whole set, generation times.

    ratio, low, high, coverage   median over the prompts of each prompt's own ratio, with its order-statistic interval
                                 (None below six prompts, where low and high are only the range)
    total_ratio                  time of the whole set with the baseline / with the candidate; None where the arms made
                                 different numbers of tokens
    worst_id, worst_ratio        the prompt that gained least
    different_ids                prompts whose tokens differ between the arms
    """

    baseline: str
    candidate: str
    ratio: float | None
    low: float | None
    high: float | None
    coverage: float | None
    prompts: int
    total_ratio: float | None
    worst_id: str | None
    worst_ratio: float | None
    different_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptSetResult:
    """not_run: ids of the prompts that time did not allow. stopped_because: prompts, budget, stopped, limit."""

    spec: PromptSetSpec
    model: ModelFacts
    environment: Environment
    prompts: tuple[PromptResult, ...]
    comparisons: tuple[SetComparison, ...]
    not_run: tuple[str, ...] = ()
    stopped_because: str = "prompts"
    strategies: tuple[StrategyRow, ...] = ()
