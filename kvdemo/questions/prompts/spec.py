"""On my prompts: the request, what one prompt came to, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import ComparisonResult, checked_arms, checked_budget
from kvdemo.experiments.prompt_file import MAX_PROMPTS, PromptRow
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_REQUEST_TOKENS, MAX_ROUNDS, SamplingParams, checked_int
from kvdemo.facts.results import Environment

__all__ = ["Ended", "PromptResult", "PromptSetResult", "PromptSetSpec", "SetComparison"]

Ended = Literal["prompts", "budget", "stopped", "limit"]
"""All prompts were run, the time was up, a person stopped it, so did the operator's limit."""


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
        checked_arms(self.strategies)
        checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        checked_int("rounds", self.rounds, 1, MAX_ROUNDS)
        if self.longest_tokens is not None:
            checked_int("longest_tokens", self.longest_tokens, 2, MAX_REQUEST_TOKENS)
        checked_budget(self.time_budget_s)


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
    """not_run: ids of the prompts that time did not allow."""

    spec: PromptSetSpec
    model: ModelFacts
    environment: Environment
    prompts: tuple[PromptResult, ...]
    comparisons: tuple[SetComparison, ...]
    not_run: tuple[str, ...] = ()
    stopped_because: Ended = "prompts"
    strategies: tuple[StrategyRow, ...] = ()
