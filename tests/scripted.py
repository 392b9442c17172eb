"""Scripted runs for the experiments: records by hand, a clock that moves when told, events without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvdemo.errors import RunFailed
from kvdemo.experiments.attempt import Alive
from kvdemo.experiments.bench import Bench
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, TokenEmitted, Working
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.facts.results import PreparedPrefix
from tests.known import known
from tests.made_up_model import ENVIRONMENT, MODEL, ROWS


def record(
    strategy: str = "dynamic", times_s: Sequence[float] = (), ids: Sequence[int] | None = None, **changes: Any
) -> RunRecord:
    """A finished run with these token times; ids 0, 1, 2 ... unless given."""
    made = tuple(range(len(times_s))) if ids is None else tuple(ids)
    base = RunRecord(
        strategy=strategy,
        status="ok",
        finish_reason="length",
        prompt_tokens=4,
        token_ids=made,
        token_times_s=tuple(times_s),
        text="".join(f" w{token}" for token in made),
        request_s=times_s[-1] + 0.01 if times_s else 0.01,
    )
    return replace(base, **changes)


def even_times(first_s: float, step_s: float, count: int) -> tuple[float, ...]:
    return tuple(first_s + step_s * index for index in range(count))


@dataclass
class Clock:
    """Stands still until somebody advances it."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


Script = Callable[[GenerationRequest, int], RunRecord]


@dataclass
class ScriptedRun:
    """Answers each request with the record that `script(request, number of earlier runs of that strategy)` makes.

    A record whose status is "failed" is raised with what it produced; the clock moves on by every run's last token.
    beat_s   seconds of the clock after which a run says that it goes on; stop: ends it as the stream would, with its record
    """

    script: Script
    clock: Clock = field(default_factory=Clock)
    requests: list[GenerationRequest] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    beat_s: float = 0.5
    stop: Callable[[], bool] = lambda: False

    def __call__(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        before = sum(earlier.strategy == request.strategy for earlier in self.requests)
        self.requests.append(request)
        return self._events(request, self.script(request, before))

    def _events(self, request: GenerationRequest, made: RunRecord) -> Iterator[GenerationEvent]:
        began_s = told_s = self.clock.now_s
        try:
            yield PromptEncoded(made.prompt_tokens, made.queue_s, made.prepare_s)
            for index, (token, time_s) in enumerate(zip(made.token_ids or (), made.token_times_s, strict=True)):
                if self.stop():
                    ids, times_s = known(made.token_ids)[:index], made.token_times_s[:index]
                    said = replace(made, token_ids=ids, token_times_s=times_s)
                    yield Finished("cancelled", replace(said, status="cancelled", finish_reason="cancelled"))
                    return
                while told_s + self.beat_s < began_s + time_s:
                    told_s = self.clock.now_s = told_s + self.beat_s
                    yield Working(told_s - began_s)
                self.clock.now_s = began_s + time_s
                yield TokenEmitted(index, token, f" w{token}", time_s, index, 0, 0)
            if made.status == "failed":
                raise RunFailed(made.error or "it broke", made)
            yield Finished(made.finish_reason or "length", made)
        finally:
            self.closed.append(request.strategy)


def bench_of(run: Callable[[GenerationRequest], Iterator[GenerationEvent]], **changes: Any) -> Bench:
    """A bench over scripted runs: a prompt has as many tokens as words, and a text of a length is so many letters."""
    known: dict[str, Any] = {
        "model": MODEL,
        "environment": ENVIRONMENT,
        "strategies": ROWS,
        "run": run,
        "count": lambda request: len(str(request.prompt).split()),
        "text_of": lambda _, num_tokens: ("x" * num_tokens, num_tokens),
    }
    return Bench(**{**known, **changes})


@dataclass
class ScriptedPrefix:
    """A prefix that is prepared as scripted; `asked` has what it was shared by."""

    prepare: Callable[[], Alive[PreparedPrefix]]
    run: Callable[[GenerationRequest], Iterator[GenerationEvent]]
    slots: int = 600
    asked: list[tuple[Sequence[tuple[Message, ...]], str, int]] = field(default_factory=list)

    def share(self, prompts: Sequence[tuple[Message, ...]], strategy: str, max_new_tokens: int) -> ScriptedPrefix:
        self.asked.append((prompts, strategy, max_new_tokens))
        return self
