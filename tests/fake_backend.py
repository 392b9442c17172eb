"""A backend without a model: it yields scripted events at once, or at a pace when somebody wants to look at the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from kvdemo.errors import InvalidRequest, KvdemoError, ModelNotReady, ModelUnavailable
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.question import AnyResult
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.endpoint import Endpoint, ServedModel
from kvdemo.facts.events import (
    Finished,
    GenerationEvent,
    PrefillProgress,
    PromptEncoded,
    TokenEmitted,
    Waiting,
    Working,
)
from kvdemo.facts.model import ModelFacts, ModelStatus, Ready, StrategyRow
from kvdemo.facts.plans import (
    USUAL_BUDGET,
    Architecture,
    Budget,
    LayerFootprint,
    MeasuredLayer,
    MeasuredPoint,
    MemoryPlan,
    MemoryRequest,
    StoredWeights,
)
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.records import FinishReason, RunRecord
from kvdemo.facts.requests import GenerationRequest, MeasureSpec, Message, Prompt, SamplingParams, checked_int
from kvdemo.facts.results import PreparedPrefix
from kvdemo.facts.steps import CacheLook, Stepped
from kvdemo.generation.templated import Templated
from kvdemo.planner import catalog, geometries, plan
from kvdemo.questions.table import QUESTIONS, Table, asked_by
from tests.engine_behind import ENDPOINT, EngineBehind
from tests.made_up import advice_of
from tests.made_up_model import ENVIRONMENT, MODEL, PER_TOKEN, ROWS
from tests.many import events_of_many
from tests.tiny import tiny_tokenizer

__all__ = ["STRATEGIES", "FakeBackend", "answer_events"]

STRATEGIES = tuple(ROWS[key] for key in ("none", "dynamic", "static", "offloaded"))
ANSWER = (
    "Mars is the fourth planet from the Sun.\n\n1. Mercury\n2. Venus\n\tand its <b>clouds</b>\n3. Earth & Moon 🌍\n\n"
    "Each of them is made of rock."
)
ARCHITECTURE = Architecture(
    name=MODEL.name,
    model_type="llama",
    layers=tuple(
        LayerFootprint(index, "full", kv_heads=3, key_dim=64, value_heads=3, value_dim=64) for index in range(30)
    ),
    num_parameters=MODEL.num_parameters,
    context_limit=MODEL.context_limit,
    dtype="float32",
    method="traced",
    attention_heads=9,
    weights=StoredWeights(MODEL.weight_bytes or 0, "as loaded: float32"),
    loaded=True,
)


def answer_events(
    words: list[str],
    *,
    prompt_tokens: int = 64,
    strategy: str = "dynamic",
    step_s: float = 0.04,
    reason: FinishReason = "stop",
) -> list[GenerationEvent]:
    """A whole run that says `words`, one token each."""
    reserved = prompt_tokens + 256 if strategy == "static" else None
    events: list[GenerationEvent] = [
        Waiting(1),
        PromptEncoded(prompt_tokens, 0.0, 0.001, MODEL.context_limit, reserved),
        PrefillProgress(prompt_tokens // 2, prompt_tokens),
        PrefillProgress(prompt_tokens, prompt_tokens),
    ]
    growing_s = 0.0012 if strategy == "none" else 0.00002
    times = [0.064 + step_s * index + growing_s * index * (index + 1) / 2 for index in range(len(words))]
    for index, word in enumerate(words):
        held = 0 if strategy == "none" else prompt_tokens + index
        num_bytes = PER_TOKEN * (reserved or held)
        events.append(TokenEmitted(index, 1000 + index, word, times[index], held, num_bytes, num_bytes))
    events.append(Finished(reason, record_of(words, times, prompt_tokens, strategy, reason)))
    return events


def record_of(
    words: list[str], times: list[float], prompt_tokens: int, strategy: str, reason: FinishReason
) -> RunRecord:
    """The record of a run that said `words` at `times`."""
    cached = strategy != "none"
    steps = range(len(words))
    computed = [prompt_tokens if index == 0 else 1 if cached else prompt_tokens + index for index in steps]
    read = [prompt_tokens + index - 1 if cached and index else 0 for index in steps]
    return RunRecord(
        strategy=strategy,
        status=reason if reason in ("cancelled", "timed_out") else "ok",
        finish_reason=reason,
        prompt_tokens=prompt_tokens,
        token_ids=tuple(1000 + index for index in steps),
        token_times_s=tuple(times),
        positions_computed=tuple(computed),
        positions_read=tuple(read),
        text="".join(words),
        request_s=(times[-1] if times else 0) + 0.002,
        cache_tokens=prompt_tokens + len(words) - 1 if cached else 0,
        cache_bytes=PER_TOKEN * (prompt_tokens + len(words) - 1) if cached else 0,
        cache_storage_bytes=PER_TOKEN * (prompt_tokens + len(words) - 1) if cached else 0,
    )


@dataclass(frozen=True)
class FakePrefix:
    """A prefix that is kept at once."""

    fresh: Callable[[GenerationRequest], Iterator[GenerationEvent]]
    slots: int = 600

    def run(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        for event in self.fresh(request):
            if isinstance(event, Finished):
                yield replace(event, record=replace(event.record, reused_tokens=500))
            else:
                yield event

    def prepare(self) -> Generator[Working, None, PreparedPrefix]:
        yield Working(0.0)
        return PreparedPrefix(500, 500 * PER_TOKEN, 1.5)


@dataclass
class FakeBackend:
    """Scripted: `model` is its status, `script` what the next runs yield (else ANSWER), `error` what a run raises.

    step_s   seconds between events; 0 in tests
    asked    every call of chat, in order: (messages, keywords)
    """

    model: ModelStatus = field(default_factory=lambda: Ready(MODEL))
    script: list[GenerationEvent] | None = None
    error: KvdemoError | None = None
    step_s: float = 0.0
    machine: Budget = field(default_factory=lambda: Budget(23.4, "this machine"))
    asked: list[tuple[tuple[Message, ...], dict[str, object]]] = field(default_factory=list)
    asked_specs: list[Any] = field(default_factory=list)
    questions: Table = QUESTIONS
    stopped: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    recordings: dict[str, AnyResult] = field(default_factory=dict)
    _stops: dict[str, Event] = field(default_factory=dict)

    def status(self) -> ModelStatus:
        return self.model

    def describe(self) -> ModelFacts:
        if not isinstance(self.model, Ready):
            raise ModelNotReady("The model is still loading. Try again in a moment.")
        return self.model.facts

    def strategies(self) -> tuple[StrategyRow, ...]:
        return STRATEGIES

    def count_tokens(self, prompt: Prompt) -> int:
        self.describe()
        if isinstance(prompt, str):
            return len(prompt.split())
        last = prompt[-1]
        return 30 + len(last.content.split()) if isinstance(last, Message) else len(prompt)

    def chat(
        self,
        messages: tuple[Message, ...],
        *,
        max_new_tokens: int,
        strategy: str = "dynamic",
        sampling: SamplingParams | None = None,
        owner: str,
        stop_strings: tuple[str, ...] = (),
        keep: bool = False,
        reader: Reader = AT_ONCE,
        endpoint: Endpoint | None = None,
    ) -> Generator[GenerationEvent, None, None]:
        checked_int("max_new_tokens", max_new_tokens, 1, 4096)
        self.asked.append(
            (messages, {"max_new_tokens": max_new_tokens, "strategy": strategy, "sampling": sampling, "keep": keep})
        )
        return self._play(self._events(strategy, len(messages)), owner, self._stoppable(owner))

    def step(
        self,
        messages: tuple[Message, ...],
        made: tuple[int, ...] = (),
        *,
        strategy: str = "dynamic",
        layer: int = 0,
        head: int = 0,
        owner: str,
        reader: Reader = AT_ONCE,
    ) -> Generator[Waiting | Working | Stepped, None, None]:
        """The next word of the answer."""
        words = [piece + " " for piece in ANSWER.split(" ")][: len(made) + 1]
        yield Working(0.0)
        if self.error is not None:
            raise self.error
        record = replace(record_of(words, [0.1] * len(words), 32, strategy, "length"), reused_tokens=31 + len(made))
        yield Stepped(record, tuple(range(1000, 1000 + len(words))), "".join(words), ended=False, look=None)

    def look(
        self, *, layer: int = 0, head: int = 0, owner: str, reader: Reader = AT_ONCE
    ) -> Generator[Waiting | CacheLook | None, None, None]:
        yield None

    def _events(self, strategy: str, num_messages: int) -> list[GenerationEvent]:
        if self.script is not None:
            return self.script
        words = [piece + " " for piece in ANSWER.split(" ")]
        words[-1] = words[-1].rstrip()
        return answer_events(words, prompt_tokens=32 * num_messages, strategy=strategy)

    def _play(self, events: list[GenerationEvent], owner: str, stop: Event) -> Generator[GenerationEvent, None, None]:
        """Every event is told by itself, as to a reader who hears all at once; a script says itself what comes in one go."""
        by_itself = not any(isinstance(event, Working) for event in events)
        try:
            if self.error is not None:
                raise self.error
            told: list[TokenEmitted] = []
            for event in events:
                if self.step_s:
                    time.sleep(self.step_s)
                if stop.is_set():
                    words, times = [token.text for token in told], [token.time_s for token in told]
                    yield Finished("cancelled", record_of(words, times, 64, "dynamic", "cancelled"))
                    return
                if isinstance(event, TokenEmitted):
                    told.append(event)
                yield event
                if by_itself and not isinstance(event, Waiting | Finished):
                    yield Working(0.0)
        finally:
            self.closed.append(owner)

    def _stoppable(self, owner: str) -> Event:
        self._stops[owner] = Event()
        return self._stops[owner]

    def endpoint_models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        return (ServedModel(ENDPOINT.name),)

    def ask(
        self, spec: Any, *, owner: str, reader: Reader = AT_ONCE, endpoint: Endpoint | None = None
    ) -> Generator[Any, None, None]:
        """The real question on scripted runs."""
        question = asked_by(spec, self.questions)
        if question.needs == "model":
            self.describe()
        self.asked_specs.append(spec)
        if self.error is not None:
            raise self.error
        bench = self._bench(owner, reader)
        if question.needs == "tokenizer":
            bench = replace(bench, tokens=Templated(tiny_tokenizer()))
        if question.needs == "endpoint":
            bench = EngineBehind().bench()
        yield from question.run(spec, bench)

    def inspect(self, spec: InspectSpec) -> CacheDecision:
        return CacheDecision(True, "library default", None, "DynamicCache", "sdpa", False)

    def advice(self, strategy: str, *, num_tokens: int = 512, spec: InspectSpec | None = None) -> CacheAdvice:
        return advice_of(strategy, self.inspect(InspectSpec()), new_tokens=num_tokens - 4)

    def recorded_results(self) -> tuple[str, ...]:
        return tuple(self.recordings)

    def recorded_result(self, name: str) -> AnyResult:
        return self.recordings[name]

    def _bench(self, owner: str, reader: Reader) -> Bench:
        stop = self._stoppable(owner)
        run = self._run(owner, stop)
        return Bench(
            model=MODEL,
            environment=replace(ENVIRONMENT, on_page=reader.on_page),
            strategies={row.key: row for row in STRATEGIES},
            run=run,
            count=lambda request: self.count_tokens(request.prompt),
            text_of=lambda _, length: (" ".join(["word"] * length), length),
            run_many=events_of_many,
            share=lambda *_: FakePrefix(run),
            stop=stop.is_set,
        )

    def _run(self, owner: str, stop: Event) -> Callable[[GenerationRequest], Iterator[GenerationEvent]]:
        def run(request: GenerationRequest) -> Iterator[GenerationEvent]:
            slower = 0.08 if request.strategy == "none" else 0.034
            words = [f" word{index}" for index in range(request.max_new_tokens)]
            events = answer_events(words, prompt_tokens=4, strategy=request.strategy, step_s=slower, reason="length")
            return self._play(events, f"{owner}/run", stop)

        return run

    def catalogue(self) -> list[str]:
        return catalog.names()

    def architecture(self, model: str | None = None, config: str = "") -> Architecture:
        if config.strip():
            raise InvalidRequest("config.json", "line 1, column 2: expected a property name")
        if model is not None:
            return catalog.architecture(model)
        self.describe()
        return ARCHITECTURE

    def architecture_of_hub(self, hub_id: str) -> Architecture:
        raise ModelUnavailable(f"{hub_id} cannot be reached here.")

    def architecture_by_hand(
        self, layers: object, kv_heads: object, head_dim: object, *, num_parameters: int | None = None
    ) -> Architecture:
        return geometries.typed(layers, kv_heads, head_dim, num_parameters=num_parameters)

    def fields_of_config(self, config: str) -> dict[str, int]:
        return geometries.fields_of(config)

    def plan_of(self, geometry: Architecture, request: MemoryRequest, *, one_page_size: bool = False) -> MemoryPlan:
        return plan.make_plan(geometries.with_one_page_size(geometry) if one_page_size else geometry, request)

    def usual_budget(self, geometry: Architecture | None = None) -> Budget:
        return self.machine if geometry is None or geometry.loaded else USUAL_BUDGET

    def plan_document(self, made: MemoryPlan) -> dict[str, object]:
        return plan.as_document(made)

    def measure_memory(
        self, spec: MeasureSpec, *, owner: str, reader: Reader = AT_ONCE
    ) -> Generator[MeasuredPoint, None, None]:
        self.describe()
        for strategy in spec.strategies:
            for length in spec.lengths:
                if self.step_s:
                    time.sleep(self.step_s)
                each = 2 * 3 * 64 * 4 * length
                layers = tuple(MeasuredLayer(index, "full", each, each, each) for index in range(30))
                yield MeasuredPoint(strategy, length, layers, process_bytes=900 * 2**20)

    def stop(self, owner: str) -> None:
        self.stopped.append(owner)
        if owner in self._stops:
            self._stops[owner].set()

    def kept_bytes(self, owner: str) -> int:
        return 3_594_240

    def forget(self, owner: str) -> None:
        self.forgotten.append(owner)

    def turns_without_reuse(
        self,
        conversations: tuple[tuple[Message, ...], ...],
        *,
        strategy: str = "dynamic",
        longest_answer: int = 1,
        owner: str = "",
        reader: Reader = AT_ONCE,
    ) -> Generator[RunRecord, None, None]:
        self.describe()
        for number, messages in enumerate(conversations, start=1):
            if self.step_s:
                time.sleep(self.step_s)
            yield record_of(["x"], [0.1 * number], 32 * len(messages), strategy, "length")

    def release(self, owner: str) -> None:
        self.released.append(owner)

    def refuse(self, field_name: str, words: str) -> None:
        """From now on every run is refused."""
        self.error = InvalidRequest(field_name, words)
