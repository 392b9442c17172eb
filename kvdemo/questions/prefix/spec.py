"""Does a shared prefix pay: the request, one question asked both ways, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import Verdict
from kvdemo.experiments.hits import TEMPLATE_END_TOKENS, Hit
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import (
    MAX_NEW_TOKENS,
    Message,
    SamplingParams,
    checked_int,
    checked_number,
    checked_text,
)
from kvdemo.facts.results import Environment, PreparedPrefix, Spread

__all__ = ["Ended", "PrefixPair", "PrefixResult", "PrefixSpec", "Way"]

Way = Literal["fresh", "kept"]
"""The prefix is processed for every question, or once."""
Ended = Literal["questions", "budget", "stopped", "limit", "failed"]
"""All questions were asked, the time was up, a person stopped it, so did the operator's limit, one way failed again and again."""

MAX_QUESTIONS = 1000


@dataclass(frozen=True, slots=True)
class PrefixSpec:
    """A long system prompt with several questions: processed every time, or once and kept."""

    system_prompt: str
    questions: tuple[str, ...]
    strategy: str = "dynamic"
    max_new_tokens: int = 32
    fixed_length: bool = True
    sampling: SamplingParams = field(default_factory=SamplingParams)
    time_budget_s: float | None = None

    def __post_init__(self) -> None:
        checked_text("system_prompt", self.system_prompt)
        if not 1 <= len(self.questions) <= MAX_QUESTIONS:
            raise InvalidRequest("questions", f"there must be between one and {MAX_QUESTIONS:,}")
        for question in self.questions:
            checked_text("questions", question)
        checked_text("strategy", self.strategy, max_chars=40)
        checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        if self.time_budget_s is not None:
            checked_number("time_budget_s", self.time_budget_s, 1, 86_400)

    def messages(self, question: str) -> tuple[Message, ...]:
        return (Message("system", self.system_prompt), Message("user", question))


@dataclass(frozen=True, slots=True)
class PrefixPair:
    """One question both ways; `first` says which ran first."""

    question: str
    fresh: RunRecord
    kept: RunRecord
    verdict: Verdict
    first: Way = "fresh"

    @property
    def counts(self) -> bool:
        return self.fresh.counts and self.kept.counts

    @property
    def saved_s(self) -> float | None:
        """First-token time saved, s; None where one of the two did not get that far."""
        if not self.counts or self.fresh.ttft_s is None or self.kept.ttft_s is None:
            return None
        return self.fresh.ttft_s - self.kept.ttft_s


@dataclass(frozen=True, slots=True)
class PrefixResult:
    """ratio: median over the questions of first-token time fresh / kept, with its order-statistic interval.

    pays_after       smallest number of questions whose time saved (median) covers preparing the prefix; None: never, or not known
    fresh_ttft_s     first-token times over the questions; kept_ttft_s: with the prefix kept, its copy included
    page_tokens      of a page of a server's cache; None: not reported, or no server
    """

    spec: PrefixSpec
    model: ModelFacts
    environment: Environment
    prefix: PreparedPrefix
    pairs: tuple[PrefixPair, ...]
    ratio: float | None
    low: float | None
    high: float | None
    coverage: float | None
    fresh_ttft_s: Spread | None
    kept_ttft_s: Spread | None
    pays_after: int | None
    warmups: tuple[RunRecord, ...] = ()
    stopped_because: Ended = "questions"
    page_tokens: int | None = None

    @property
    def hits(self) -> list[Hit]:
        """What a server said of the questions whose beginning it had; their own ends by their share of the text."""
        system = len(self.spec.system_prompt)
        return [
            Hit(
                pair.kept.reused_tokens,
                tokens,
                tokens * len(pair.question) / (system + len(pair.question)) + TEMPLATE_END_TOKENS,
            )
            for pair in self.pairs
            if pair.counts and pair.kept.reported is not None and (tokens := pair.kept.prompt_tokens)
        ]
