"""An engine behind a URL as a bench, with known answers and a clock of its own: nothing waits, nothing is measured.

Every time follows from the work that such an engine would do, with noise where a test asks for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from kvdemo.errors import KvdemoError
from kvdemo.experiments.bench import Bench
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, Working
from kvdemo.facts.load import ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message, Prompt
from tests.made_up_model import ENVIRONMENT

__all__ = ["ENDPOINT", "EngineBehind"]

ENDPOINT = ModelFacts(
    name="served-model",
    source="an endpoint",
    model_type="",
    num_parameters=None,
    weight_bytes=None,
    dtype="not reported",
    device="not reported",
    context_limit=None,
    cache_bytes_per_token=None,
    vocab_size=0,
    has_chat_template=True,
    attention="not reported",
)
AHEAD_S, EACH_S, OWN_S, READ_S = 0.03, 0.001, 0.02, 0.000002
PAGE = 16


@dataclass
class EngineBehind:
    """cached, prefixes, together: what it does. reports: it says how many tokens it reused.

    noise       of every time, a share of it
    answers     so many requests are answered, then it says 429; None: all
    longest     tokens of a prompt, beyond which it refuses; None: any
    held_back   the answer comes in one piece
    says_usage  how many tokens a prompt had
    """

    cached: bool = True
    prefixes: bool = True
    together: bool = True
    reports: bool = False
    noise: float = 0.01
    answers: int | None = None
    longest: int | None = None
    held_back: bool = False
    says_usage: bool = True
    slower: float = 1.0
    now_s: float = 0.0
    sent: int = 0
    tokens: int = 0
    requests: list[GenerationRequest | ManyRequest] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    noisy: random.Random = field(default_factory=lambda: random.Random(0))
    stop: Callable[[], bool] = lambda: False

    def bench(self, **more: Any) -> Bench:
        return Bench(
            model=ENDPOINT,
            environment=ENVIRONMENT,
            strategies={},
            run=self.run,
            count=lambda request: len(text_of(request.prompt)) // 4,
            run_many=self.run_many,
            clock=lambda: self.now_s,
            stop=lambda: self.stop(),
            **more,
        )

    def run(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        self.requests.append(request)
        yield Working(0.0)
        record = self.answer(request.prompt, request.max_new_tokens)
        self.now_s += record.token_times_s[-1]
        yield PromptEncoded(record.prompt_tokens, 0.0, 0.0)
        yield Finished("length", record)

    def run_many(self, request: ManyRequest) -> Iterator[Working | ManyFinished]:
        self.requests.append(request)
        yield Working(0.0)
        runs: list[RunRecord] = []
        free_s = 0.0
        try:
            for arrival in request.arrivals:
                run = self.answer(arrival.prompt, arrival.max_new_tokens)
                wait_s = 0.0 if self.together else free_s
                run = replace(run, token_times_s=tuple(time + wait_s for time in run.token_times_s))
                free_s = run.token_times_s[-1]
                runs.append(run)
        except KvdemoError as error:
            self.now_s += AHEAD_S
            yield ManyFinished(ManyRecord("one-by-one", "dynamic", "failed", (), forwards=None, error=str(error)))
            return
        wall_s = max(run.token_times_s[-1] for run in runs)
        self.now_s += wall_s
        yield ManyFinished(ManyRecord("one-by-one", "dynamic", "ok", tuple(runs), wall_s, forwards=None))

    def answer(self, prompt: Prompt, answer: int) -> RunRecord:
        text = text_of(prompt)
        tokens = 8 + len(text) // 4
        self.sent += 1
        if self.answers is not None and self.sent > self.answers:
            self.now_s += AHEAD_S
            raise KvdemoError("The server says 429: too many requests")
        if self.longest is not None and tokens > self.longest:
            self.now_s += AHEAD_S
            raise KvdemoError("The server says 400: the prompt is too long")
        kept = max((shared(text, other) // 4 // PAGE * PAGE for other in self.seen), default=0) if self.prefixes else 0
        self.seen.append(text)
        times = [AHEAD_S + EACH_S * (tokens - kept)]
        for at in range(1, answer):
            own = READ_S if self.cached else EACH_S
            times.append(times[-1] + OWN_S + own * (tokens + at))
        drawn = [max(0.0, 1 + self.noisy.gauss(0, self.noise)) * self.slower for _ in times]
        steps = [times[0], *(after - before for before, after in pairwise(times))]
        at_s, exact = 0.0, []
        for step, factor in zip(steps, drawn, strict=True):
            at_s += step * factor
            exact.append(at_s)
        self.tokens += tokens + answer
        return RunRecord(
            strategy=None,
            status="ok",
            finish_reason="length",
            prompt_tokens=tokens if self.says_usage else 0,
            token_ids=None,
            num_new_tokens=answer,
            token_times_s=(exact[-1],) if self.held_back else tuple(exact),
            positions_computed=None,
            positions_read=None,
            text=" one two",
            reused_tokens=kept if self.reports else None,
            request_s=exact[-1],
            cache_tokens=None,
            cache_bytes=None,
            cache_storage_bytes=None,
        )


def text_of(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "".join(part.content for part in prompt if isinstance(part, Message))


def shared(one: str, other: str) -> int:
    """Characters with which both begin."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
