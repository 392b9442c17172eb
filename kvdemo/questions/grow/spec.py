"""How does it grow: the request, one size of it, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import ComparisonResult, checked_arms, checked_budget
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_REQUEST_TOKENS, MAX_ROUNDS, checked_int, checked_text
from kvdemo.facts.results import Environment

__all__ = ["Ended", "GrowthPoint", "GrowthResult", "GrowthSpec"]

MAX_GRID = 12

Ended = Literal["points", "budget", "stopped", "limit"]
"""All points were measured, the time was up, a person stopped it, so did the operator's limit."""


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
        checked_arms(self.strategies)
        checked_int("longest_tokens", self.longest_tokens, 2, MAX_REQUEST_TOKENS)
        _checked_grid("prompt_tokens", self.prompt_tokens, MAX_REQUEST_TOKENS)
        _checked_grid("new_tokens", self.new_tokens, MAX_NEW_TOKENS)
        checked_int("rounds", self.rounds, 1, MAX_ROUNDS)
        checked_budget(self.time_budget_s)


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
    """left_out: (prompt tokens, new tokens) of the points that time did not allow."""

    spec: GrowthSpec
    model: ModelFacts
    environment: Environment
    points: tuple[GrowthPoint, ...]
    left_out: tuple[tuple[int, int], ...] = ()
    stopped_because: Ended = "points"
    strategies: tuple[StrategyRow, ...] = ()


def _checked_grid(name: str, lengths: tuple[int, ...], high: int) -> None:
    if len(lengths) > MAX_GRID:
        raise InvalidRequest(name, f"at most {MAX_GRID} lengths")
    for length in lengths:
        checked_int(name, length, 1, high)
    if len(set(lengths)) != len(lengths):
        raise InvalidRequest(name, "each length may be named once")
