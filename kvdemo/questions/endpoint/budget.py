"""What may be spent on an engine behind a URL, and what was: requests, tokens, seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvdemo.facts.records import RunRecord
from kvdemo.questions.endpoint.spec import EndpointSpec

__all__ = ["Budget"]


class Budget:
    """The hard limits of one question. Ask `allows` before each request, tell `count` after it."""

    def __init__(self, spec: EndpointSpec, clock: Callable[[], float], limit_s: float | None) -> None:
        """limit_s: the operator's."""
        self.spec, self.clock = spec, clock
        self.seconds = spec.seconds if limit_s is None else min(spec.seconds, limit_s)
        self.by_operator = limit_s is not None and limit_s < spec.seconds
        self.started = clock()
        self.requests_sent = 0
        self.tokens_used = 0

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started

    @property
    def left_s(self) -> float:
        return max(0.0, self.seconds - self.elapsed_s)

    @property
    def left_tokens(self) -> int:
        return max(0, self.spec.tokens - self.tokens_used)

    @property
    def left_requests(self) -> int:
        return max(0, self.spec.requests - self.requests_sent)

    def allows(self, requests: int, tokens: int) -> bool:
        """Do so many more requests fit, with so many tokens, prompts and answers together?"""
        return requests <= self.left_requests and tokens <= self.left_tokens and self.left_s > 0

    def count(self, runs: Sequence[RunRecord], sent: int, expected_tokens: int) -> None:
        """Requests that were sent, whatever came of them. expected_tokens: of a request that does not say what it took."""
        self.requests_sent += sent
        known = [run.prompt_tokens + run.new_tokens for run in runs if run.prompt_tokens]
        self.tokens_used += sum(known) + expected_tokens * (sent - len(known))
