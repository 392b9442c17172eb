"""The one door that the page, the command line and the tests use.

It knows no page: requests come in as facts, events and results go out as facts. What guards the model is in engine.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from kvdemo import deciding, geometries
from kvdemo.caches import strategies as table
from kvdemo.engine import Engine, LoadModel, load_named
from kvdemo.errors import ContextFull
from kvdemo.experiments.compare import compare
from kvdemo.experiments.course import Step
from kvdemo.experiments.decoding import encoded
from kvdemo.experiments.growth import chosen_points, growth
from kvdemo.experiments.prefix_reuse import prefix_reuse
from kvdemo.experiments.prompt_set import prompt_set
from kvdemo.experiments.question_documents import AnyResult
from kvdemo.experiments.recorded import recorded_names, recorded_result
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.events import Finished, GenerationEvent
from kvdemo.facts.model import ModelFacts, ModelStatus, StrategyRow
from kvdemo.facts.plans import Architecture, MeasuredPoint, MemoryPlan, MemoryRequest
from kvdemo.facts.questions import (
    GrowthPoint,
    GrowthResult,
    GrowthSpec,
    PrefixPair,
    PrefixResult,
    PrefixSpec,
    PromptResult,
    PromptSetResult,
    PromptSetSpec,
)
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import (
    CompareSpec,
    GenerationRequest,
    MeasureSpec,
    Message,
    Prompt,
    SamplingParams,
)
from kvdemo.facts.results import ComparisonResult
from kvdemo.generation.environment import environment
from kvdemo.generation.logits import largest_gap
from kvdemo.generation.prompt import encode_prompt
from kvdemo.measuring import measure
from kvdemo.models.config import dtype_when_loaded, read_config
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.source import resolve
from kvdemo.planner import architecture, catalog, plan
from kvdemo.settings import Settings
from kvdemo.sharing import SharedPrefix, text_of_length

__all__ = ["Backend"]

PREFILL_CHUNK = 512
MEASURED = ("held_bytes", "storage_bytes", "predicted_bytes")


class Backend:
    """Build it, `start` it, ask; `close` it at the end. `load_model` is what tests replace."""

    def __init__(self, settings: Settings, *, load_model: LoadModel = load_named) -> None:
        self.settings = settings
        self._engine = Engine(settings, load_model)
        self._architecture: Architecture | None = None
        self._tracing = threading.Lock()
        self._in_force: CacheDecision | None = None

    # --- the model ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the model."""
        self._engine.start()

    def close(self) -> None:
        """End every run and the model's thread."""
        self._engine.close()

    def status(self) -> ModelStatus:
        return self._engine.status

    def wait_until_settled(self, timeout_s: float | None = None) -> ModelStatus:
        """Wait until the model is loaded or has failed to load."""
        return self._engine.wait_until_settled(timeout_s)

    def describe(self) -> ModelFacts:
        """The loaded model; ModelNotReady while there is none."""
        return self._engine.ready().facts

    def strategies(self) -> tuple[StrategyRow, ...]:
        """The strategies table; with the reasons that hold here once the model is loaded."""
        loaded = self._engine.loaded
        return table.rows(loaded.model if loaded is not None else None)

    def count_tokens(self, prompt: Prompt) -> int:
        """How many tokens does the model see for this prompt?"""
        return len(encode_prompt(self._engine.ready(), prompt).token_ids)

    # --- chat --------------------------------------------------------------------------------------------------------

    def chat(
        self,
        messages: tuple[Message, ...],
        *,
        max_new_tokens: int,
        strategy: str = "dynamic",
        sampling: SamplingParams | None = None,
        owner: str = "",
        stop_strings: tuple[str, ...] = (),
        keep: bool = False,
    ) -> Iterator[GenerationEvent]:
        """One answer. With `keep` the owner's cache from the turn before is continued, and this one kept.

        ContextFull before anything runs where the conversation is too long, with the number of turns to drop.
        """
        request = GenerationRequest(
            prompt=messages,
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            sampling=sampling or SamplingParams(),
            stop_strings=stop_strings,
            prefill_chunk=PREFILL_CHUNK,
        )
        try:
            self._engine.check_length(request)
        except ContextFull as error:
            raise self._with_turns_to_drop(error, request) from None
        yield from self._engine.run(request, owner, kept=self._engine.kept if keep and owner else None)

    def turns_without_reuse(
        self, conversations: tuple[tuple[Message, ...], ...], *, strategy: str = "dynamic", owner: str = ""
    ) -> Iterator[RunRecord]:
        """First-token times of the same turns with an empty cache each: one new token per conversation, nothing kept."""
        with self._engine.stoppable(owner) as stop:
            for messages in conversations:
                request = GenerationRequest(messages, 1, strategy, prefill_chunk=PREFILL_CHUNK)
                for event in self._engine.run(request, owner, stop=stop):
                    if isinstance(event, Finished):
                        if event.record.status != "ok":
                            return
                        yield event.record

    def kept_bytes(self, owner: str) -> int:
        """Storage bytes of the cache kept for this owner."""
        return self._engine.kept.storage_bytes(owner)

    def forget(self, owner: str) -> None:
        """Free the cache kept for this owner, who stays."""
        self._engine.kept.release(owner)

    def stop(self, owner: str) -> None:
        """End what this owner is running or waiting for, within one token."""
        self._engine.stop(owner)

    def release(self, owner: str) -> None:
        """A visitor has left: end his runs and free what he holds."""
        self._engine.release(owner)

    # --- questions answered by several runs --------------------------------------------------------------------------

    def compare(self, spec: CompareSpec, *, owner: str = "") -> Iterator[Step | ComparisonResult]:
        """The same prompt with every strategy of the spec, in rounds; the last thing yielded is the result."""
        loaded = self._engine.ready()
        prompt = spec.prompt_of_run()
        for key in spec.strategies:
            ids = self._engine.check_length(GenerationRequest(prompt, spec.max_new_tokens, key)).token_ids
        with self._engine.stoppable(owner) as stop:
            yield from compare(
                spec,
                lambda request: self._engine.run(request, owner, stop=stop),
                prompt_tokens=len(ids),
                gap=lambda one, other, made: largest_gap(loaded, self._engine.turnstile, ids, made, one, other),
                decode=_decoder(loaded),
                **self._common(stop),
            )

    def growth(self, spec: GrowthSpec, *, owner: str = "") -> Iterator[Step | GrowthPoint | GrowthResult]:
        """The comparison at several lengths of prompt and answer."""
        loaded = self._engine.ready()
        with self._engine.stoppable(owner) as stop:
            answering = growth(
                spec,
                lambda request: self._engine.run(request, owner, stop=stop),
                prompt_of=lambda length: text_of_length(loaded, spec.prompt, length),
                **self._common(stop),
            )
            for prompt_tokens, new_tokens in chosen_points(spec):
                for key in spec.strategies:
                    self._engine.check_size(GenerationRequest(spec.prompt, new_tokens, key), prompt_tokens)
            yield from answering

    def prompt_set(self, spec: PromptSetSpec, *, owner: str = "") -> Iterator[Step | PromptResult | PromptSetResult]:
        """The comparison on each of many prompts."""
        loaded = self._engine.ready()

        def tokens_of(one: CompareSpec) -> int:
            prompt = one.prompt_of_run()
            self._engine.check(GenerationRequest(prompt, one.max_new_tokens))
            return len(encode_prompt(loaded, prompt).token_ids)

        with self._engine.stoppable(owner) as stop:
            yield from prompt_set(
                spec,
                lambda request: self._engine.run(request, owner, stop=stop),
                count_tokens=tokens_of,
                **self._common(stop),
            )

    def prefix_reuse(self, spec: PrefixSpec, *, owner: str = "") -> Iterator[Step | PrefixPair | PrefixResult]:
        """A long system prompt with several questions: processed every time, or once and kept."""
        loaded = self._engine.ready()
        with self._engine.stoppable(owner) as stop:
            shared = SharedPrefix(self._engine, owner, stop)
            common = self._common(stop)
            del common["cache_slots"]
            yield from prefix_reuse(
                spec,
                lambda request: self._engine.run(request, owner, stop=stop),
                shared.run,
                shared.prepare,
                decode=_decoder(loaded),
                **common,
            )

    def inspect(self, spec: InspectSpec) -> CacheDecision:
        """Which cache will generate use for this call and these files, and who decided? No weights are needed.

        The answer for a plain call with the model's own files is kept: neither changes while the process lives.
        """
        if spec != InspectSpec():
            return self._inspect(spec)
        if self._in_force is None:
            self._in_force = self._inspect(spec)
        return self._in_force

    def _inspect(self, spec: InspectSpec) -> CacheDecision:
        with self._tracing:
            return deciding.decision(deciding.read(spec, self.settings), self.settings)

    def advice(self, strategy: str, *, num_tokens: int = 512, spec: InspectSpec | None = None) -> CacheAdvice:
        """Keep this, and Go back: the call or the file for a strategy, and for what `spec` says is there now.

        num_tokens   prompt and answer together: what a cache of fixed size is made for
        """
        loaded, asked = self._engine.ready(), deciding.read(spec or InspectSpec(), self.settings)
        with self._tracing:
            before = deciding.decision(asked, self.settings)
        return deciding.advice(loaded, strategy, num_tokens, asked, before)

    def recorded_results(self) -> tuple[str, ...]:
        """Names of the results that are shipped; they open without a model."""
        return recorded_names()

    def recorded_result(self, name: str) -> AnyResult:
        """The shipped result of this name; InvalidRequest for any other name."""
        return recorded_result(name)

    # --- memory ------------------------------------------------------------------------------------------------------

    def catalogue(self) -> list[str]:
        """The known models that a plan can be asked for by name."""
        return catalog.names()

    def architecture_named(self, model: str | None = None, config: str = "") -> Architecture:
        """A geometry without any weights: `model` is a known one, a hub id, a folder or a .gguf file, None the default."""
        if config.strip() or model in self.catalogue():
            return self.architecture(model, config)
        source = resolve(model or self.settings.model, self.settings.home, mode=self.settings.mode)
        found = architecture.from_config(read_config(source, self.settings), name=source.name)
        return dataclasses.replace(found, dtype=dtype_when_loaded(self.settings))

    def architecture(self, model: str | None = None, config: str = "") -> Architecture:
        """The geometry of the loaded model (None), a known one, or a pasted config.json."""
        if config.strip():
            return architecture.from_config(architecture.parse_config(config))
        if model is not None:
            return catalog.architecture(model)
        loaded = self._engine.ready()
        with self._tracing:
            if self._architecture is None:
                found = architecture.from_loaded(loaded.model)
                self._architecture = dataclasses.replace(found, name=loaded.facts.name)
            return self._architecture

    def architecture_of_hub(self, hub_id: str) -> Architecture:
        """The geometry of a model of the hub: only its config.json is fetched."""
        return geometries.from_hub(hub_id, self.settings)

    def architecture_by_hand(
        self,
        layers: object,
        kv_heads: object,
        head_dim: object,
        *,
        num_parameters: int | None = None,
        name: str = "typed by hand",
    ) -> Architecture:
        """A geometry typed by hand; kv_heads is one number or one per layer."""
        return geometries.typed(layers, kv_heads, head_dim, num_parameters=num_parameters, name=name)

    def fields_of_config(self, config: str) -> dict[str, int]:
        """layers, kv_heads and head_dim as far as a config.json that was refused names them; nothing is derived."""
        return geometries.fields_of(config)

    def plan(self, request: MemoryRequest, *, model: str | None = None, config: str = "") -> MemoryPlan:
        """What the cache of this model takes for this request, predicted."""
        return self.plan_of(self.architecture(model, config), request)

    def plan_of(self, geometry: Architecture, request: MemoryRequest, *, one_page_size: bool = False) -> MemoryPlan:
        """The same for a geometry that is at hand; one_page_size: in an engine that keeps every layer at full length."""
        return plan.make_plan(geometries.with_one_page_size(geometry) if one_page_size else geometry, request)

    def plan_document(self, made: MemoryPlan) -> dict[str, Any]:
        """A plan as the JSON document of the command line and the API."""
        return plan.as_document(made)

    def measure_memory(self, spec: MeasureSpec, *, owner: str = "") -> Iterator[MeasuredPoint]:
        """Fill caches of the loaded model for real and weigh them, layer by layer, beside the prediction."""
        return measure(self._engine, spec, self.architecture(), owner)

    def measured_document(self, points: Sequence[MeasuredPoint]) -> dict[str, Any]:
        """Measured caches as the JSON document of the command line."""
        return {
            "schema": 1,
            "kind": "memory_measurement",
            "environment": encoded(environment()),
            "model": encoded(self.describe()),
            "points": [{**encoded(point), **{name: getattr(point, name) for name in MEASURED}} for point in points],
        }

    def _with_turns_to_drop(self, error: ContextFull, request: GenerationRequest) -> ContextFull:
        """The same refusal in a chat's words, with how many of the oldest turns would have to go."""
        messages = tuple(part for part in request.prompt if isinstance(part, Message))
        system = tuple(message for message in messages[:1] if message.role == "system")
        turns = messages[len(system) :]
        drop = 0
        for gone in range(2, len(turns), 2):
            shorter = dataclasses.replace(request, prompt=(*system, *turns[gone:]))
            with contextlib.suppress(ContextFull):
                self._engine.check_length(shorter)
                drop = gone // 2
                break
        oldest = "" if not drop else " or drop the oldest turn" if drop == 1 else f" or drop the {drop} oldest turns"
        return ContextFull(
            f"this turn needs {error.needed_tokens:,} of {error.limit_tokens:,} tokens, the longest answer included: "
            f"shorten it, allow a shorter answer, clear{oldest}.",
            needed_tokens=error.needed_tokens,
            limit_tokens=error.limit_tokens,
            drop_turns=drop,
        )

    def _common(self, stop: threading.Event) -> dict[str, Any]:
        """What every experiment is told."""
        return {
            "model": self.describe(),
            "environment": environment(),
            "strategies": {row.key: row for row in self.strategies()},
            "cache_slots": lambda prompt, new: prompt + new - 1,
            "stop": stop.is_set,
            "limit_s": self.settings.limits.compare_budget_s,
        }


def _decoder(loaded: LoadedModel) -> Any:
    return lambda ids: str(loaded.tokenizer.decode(list(ids), skip_special_tokens=True))
