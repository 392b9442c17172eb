"""Is my endpoint caching: what may be spent on it, and every request that was sent with its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.facts.load import ManyRecord
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import checked_int, checked_number
from kvdemo.facts.results import Environment

__all__ = [
    "AT_ONCE",
    "REQUESTS",
    "SECONDS",
    "SUBJECTS",
    "TOKENS",
    "AtOnce",
    "EndpointResult",
    "EndpointSpec",
    "Judged",
    "Judgement",
    "Subject",
    "Verdict",
]

Verdict = Literal["in use", "not in use", "cannot tell"]
Subject = Literal["kv_cache", "prefix_reuse", "batching"]
Ended = Literal["measured", "budget", "stopped", "limit", "failed"]
"""All was measured; a part of the budget was used up; a person stopped it; the operator's limit; the server kept failing."""

SUBJECTS: dict[Subject, str] = {"kv_cache": "KV cache", "prefix_reuse": "Prefix reuse", "batching": "Batching"}
AT_ONCE = (1, 2, 4, 8)
REQUESTS, TOKENS, SECONDS = 240, 100_000, 300.0


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """What may be spent: requests, tokens (prompts and answers together) and s. Checked before each request."""

    requests: int = REQUESTS
    tokens: int = TOKENS
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        checked_int("requests", self.requests, 1, 10_000)
        checked_int("tokens", self.tokens, 1, 100_000_000)
        checked_number("seconds", self.seconds, 1, 86_400)


@dataclass(frozen=True, slots=True)
class Judgement:
    """evidence: in sentences; settle: what would settle it. ratio: what it rests on, with its interval; None: it has none.

    may_clear_up   of one that cannot be told: its figures are too far apart, so that more rounds may bring it
    """

    verdict: Verdict
    evidence: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    settle: str = ""
    may_clear_up: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """One of the three is judged; the others are still to come."""

    subject: Subject
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class AtOnce:
    """So many requests sent together, in this round, and what came of them."""

    requests: int
    round: int
    order: int
    record: ManyRecord

    @property
    def status(self) -> str:
        """ "ok" where every one of them was answered."""
        if self.record.status != "ok":
            return self.record.status
        return next((run.status for run in self.record.runs if run.status != "ok"), "ok")


@dataclass(frozen=True, slots=True)
class EndpointResult:
    """
    lengths        requests that only found out which lengths can be told apart here; one may have been too long for the server
    runs           arm short and long: a fresh prompt of either length with an answer; cold and warm: a long prompt whose
                   beginning the server has not seen, or has
    at_once        several together
    tokens_used    of prompts and answers; estimated where the server does not say
    page_tokens    of a page of its cache; None: not reported
    """

    spec: EndpointSpec
    model: ModelFacts
    environment: Environment
    lengths: tuple[RunRecord, ...]
    runs: tuple[RunRecord, ...]
    at_once: tuple[AtOnce, ...]
    requests_sent: int
    tokens_used: int
    stopped_because: Ended = "measured"
    page_tokens: int | None = None

    def arm(self, key: str) -> tuple[RunRecord, ...]:
        """The runs of an arm that count."""
        return tuple(run for run in self.runs if run.arm == key and run.counts)

    def rounds_of(self, *keys: str) -> tuple[tuple[RunRecord, ...], ...]:
        """The rounds in which all these arms were answered: a run of each."""
        by_round = [{run.round: run for run in self.arm(key)} for key in keys]
        common = sorted(number for number in by_round[0] if number and all(number in found for found in by_round))
        return tuple(tuple(found[number] for found in by_round) for number in common)
