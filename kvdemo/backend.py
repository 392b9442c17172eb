"""The one door that the page, the command line and the tests use.

It owns the model, its turnstile and the kept caches, and checks the operator's limits, all of them here. It knows no page:
requests come in as facts, events and results go out as facts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kvdemo.caches import strategies as table
from kvdemo.caches.prefix import KeptCaches
from kvdemo.errors import InvalidRequest, KvdemoError, ModelNotReady, ModelUnavailable
from kvdemo.experiments.compare import compare
from kvdemo.experiments.course import Step
from kvdemo.facts.decision import CacheDecision, InspectSpec
from kvdemo.facts.events import Finished, GenerationEvent
from kvdemo.facts.model import Failed, Loading, ModelFacts, ModelStatus, Ready, StrategyRow
from kvdemo.facts.plans import Architecture, MeasuredLayer, MeasuredPoint, MemoryPlan, MemoryRequest
from kvdemo.facts.requests import (
    CompareSpec,
    GenerationRequest,
    MeasureSpec,
    Message,
    Prompt,
    SamplingParams,
)
from kvdemo.facts.results import ComparisonResult
from kvdemo.generation.device import free_bytes
from kvdemo.generation.environment import environment
from kvdemo.generation.inspect import decide
from kvdemo.generation.prompt import encode_prompt
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.config import device_when_loaded, dtype_when_loaded, read_config, read_generation_config
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import load
from kvdemo.models.source import resolve
from kvdemo.models.thread import ModelThread
from kvdemo.planner import architecture, catalog, plan
from kvdemo.settings import Settings

__all__ = ["Backend", "LoadModel"]

LoadModel = Callable[[Settings, ModelThread, Callable[[str, str], None]], LoadedModel]
"""Runs in the model's thread; tells the model's name and each step in words."""

PREFILL_CHUNK = 512
SWEEP_S = 20.0


def load_named(settings: Settings, thread: ModelThread, progress: Callable[[str, str], None]) -> LoadedModel:
    """Load the model that the settings name."""
    source = resolve(settings.model, settings.home, mode=settings.mode)
    return load(settings, source, thread=thread, progress=lambda step: progress(source.name, step))


class Backend:
    """Build it, `start` it, ask; `close` it at the end. `load` is what tests replace."""

    def __init__(self, settings: Settings, *, load_model: LoadModel = load_named) -> None:
        self.settings = settings
        self._load_model = load_model
        self._thread = ModelThread()
        self._turnstile = Turnstile(settings.limits.waiting)
        self._kept = KeptCaches(self._kept_budget_bytes, settings.limits.idle_s)
        self._status: ModelStatus = Loading("the model", "starting")
        self._loaded: LoadedModel | None = None
        self._settled = threading.Event()
        self._closed = threading.Event()
        self._stops: dict[str, set[threading.Event]] = {}
        self._stops_lock = threading.Lock()
        self._architecture: Architecture | None = None
        self._architecture_lock = threading.Lock()

    # --- the model -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to load the model, in the model's thread."""
        self._thread.submit(self._load)
        threading.Thread(target=self._sweep, name="kvdemo-sweep", daemon=True).start()

    def close(self) -> None:
        """End every run and the model's thread."""
        self._closed.set()
        with self._stops_lock:
            for stop in (stop for stops in self._stops.values() for stop in stops):
                stop.set()
        self._thread.close()

    def status(self) -> ModelStatus:
        return self._status

    def wait_until_settled(self, timeout_s: float | None = None) -> ModelStatus:
        """Wait until the model is loaded or has failed to load."""
        self._settled.wait(timeout_s)
        return self._status

    def describe(self) -> ModelFacts:
        """The loaded model; ModelNotReady while there is none."""
        return self._ready().facts

    def strategies(self) -> tuple[StrategyRow, ...]:
        """The strategies table; with the reasons that hold here once the model is loaded."""
        return table.rows(self._loaded.model if self._loaded is not None else None)

    def count_tokens(self, prompt: Prompt) -> int:
        """How many tokens does the model see for this prompt?"""
        return len(encode_prompt(self._ready(), prompt).token_ids)

    # --- runs ----------------------------------------------------------------------------------------------------

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
        """One answer. With `keep` the owner's cache from the turn before is continued, and this one kept."""
        request = GenerationRequest(
            prompt=messages,
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            sampling=sampling or SamplingParams(),
            stop_strings=stop_strings,
            prefill_chunk=PREFILL_CHUNK,
        )
        return self._run(request, owner, self._kept if keep and owner else None)

    def compare(self, spec: CompareSpec, *, owner: str = "") -> Iterator[Step | ComparisonResult]:
        """The same prompt with every strategy of the spec, in rounds; the last thing yielded is the result."""
        loaded = self._ready()
        self._check_new_tokens(spec.max_new_tokens)
        prompt_tokens = len(encode_prompt(loaded, spec.prompt_of_run()).token_ids)
        rows = {row.key: row for row in self.strategies()}
        with self._stoppable(owner) as stop:
            yield from compare(
                spec,
                lambda request: self._run(request, owner, None, stop),
                model=loaded.facts,
                environment=environment(),
                strategies=rows,
                prompt_tokens=prompt_tokens,
                cache_slots=lambda prompt, new: prompt + new - 1,
                decode=lambda ids: str(loaded.tokenizer.decode(ids, skip_special_tokens=True)),
                stop=stop.is_set,
                limit_s=self.settings.limits.compare_budget_s,
            )

    def stop(self, owner: str) -> None:
        """End what this owner is running or waiting for, within one token."""
        with self._stops_lock:
            for stop in self._stops.get(owner, ()):
                stop.set()

    def release(self, owner: str) -> None:
        """A visitor has left: end his runs and free what he holds."""
        self.stop(owner)
        self._kept.release(owner)

    def inspect(self, spec: InspectSpec) -> CacheDecision:
        """Which cache will generate use for this call and these files, and who decided? No weights are needed."""
        call = _json_object("generate_kwargs", spec.generate_kwargs)
        if spec.config is not None:
            config = architecture.parse_config(spec.config)
            generation_config = (
                _json_object("generation_config", spec.generation_config) if spec.generation_config else None
            )
        else:
            source = resolve(self.settings.model, self.settings.home, mode=self.settings.mode)
            config = read_config(source, self.settings)
            if spec.generation_config is None:
                generation_config = read_generation_config(source, self.settings)
            else:
                generation_config = (
                    _json_object("generation_config", spec.generation_config) if spec.generation_config else None
                )
        with self._architecture_lock:
            return decide(
                architecture.on_meta(config),
                config=config,
                generation_config=generation_config,
                call=call,
                device=device_when_loaded(self.settings),
                keeps_cache=architecture.keeps_cache,
            )

    # --- memory --------------------------------------------------------------------------------------------------

    def catalogue(self) -> list[str]:
        """The known models that a plan can be asked for by name."""
        return catalog.names()

    def architecture_named(self, model: str | None = None, config: str = "") -> Architecture:
        """The same without any weights: `model` may also be a hub id, a folder or a .gguf file, None the default model."""
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
        loaded = self._ready()
        with self._architecture_lock:
            if self._architecture is None:
                found = architecture.from_loaded(loaded.model)
                self._architecture = dataclasses.replace(found, name=loaded.facts.name)
            return self._architecture

    def plan(self, request: MemoryRequest, *, model: str | None = None, config: str = "") -> MemoryPlan:
        """What the cache of this model takes for this request, predicted."""
        return self.plan_of(self.architecture(model, config), request)

    def plan_of(self, geometry: Architecture, request: MemoryRequest) -> MemoryPlan:
        """The same for a geometry that is at hand."""
        return plan.make_plan(geometry, request)

    def plan_document(self, made: MemoryPlan) -> dict[str, Any]:
        """A plan as the JSON document of the command line and the API."""
        return plan.as_document(made)

    def measure_memory(self, spec: MeasureSpec, *, owner: str = "") -> Iterator[MeasuredPoint]:
        """Fill caches of the loaded model for real and weigh them, layer by layer, beside the prediction."""
        loaded, geometry = self._ready(), self.architecture()
        bytes_each = loaded.model.dtype.itemsize
        with self._stoppable(owner) as stop:
            for key in spec.strategies:
                strategy = table.available_strategy(key, loaded.model, "strategies")
                for length in spec.lengths:
                    # A prompt of `length` tokens and one new one: the cache holds exactly `length` positions.
                    ids = tuple(1 + at % (loaded.facts.vocab_size - 1) for at in range(length))
                    record = None
                    for event in self._run(GenerationRequest(ids, 1, key, fixed_length=True), owner, None, stop):
                        if isinstance(event, Finished):
                            record = event.record
                    if record is None or record.status != "ok":
                        return
                    kind = "static" if strategy.fixed_size else "dynamic"
                    yield MeasuredPoint(
                        strategy=key,
                        seq_len=length,
                        layers=tuple(
                            MeasuredLayer(
                                index=layer.index,
                                kind=footprint.kind,
                                held_bytes=layer.held_bytes,
                                storage_bytes=layer.storage_bytes,
                                predicted_bytes=plan.predict_layer(footprint, kind, length, 1, bytes_each),
                            )
                            for layer, footprint in zip(record.cache_layers, geometry.layers, strict=True)
                        ),
                        process_bytes=record.peak_bytes,
                        process_kind=record.peak_kind or "resident",
                    )

    # --- what they share -----------------------------------------------------------------------------------------

    def _run(
        self, request: GenerationRequest, owner: str, kept: KeptCaches | None, stop: threading.Event | None = None
    ) -> Iterator[GenerationEvent]:
        loaded = self._ready()
        self._check_new_tokens(request.max_new_tokens)
        limits = self.settings.limits
        if isinstance(request.prompt, str) and len(request.prompt) > limits.prompt_chars:
            raise InvalidRequest(
                "prompt", f"is {len(request.prompt):,} characters long; the limit here is {limits.prompt_chars:,}"
            )
        if request.strategy == "none":
            request = dataclasses.replace(request, prefill_chunk=None)
        if request.timeout_s is None:
            request = dataclasses.replace(request, timeout_s=limits.run_s)
        with contextlib.nullcontext(stop) if stop is not None else self._stoppable(owner) as flag:
            yield from stream(loaded, request, turnstile=self._turnstile, kept=kept, owner=owner, stop=flag)

    @contextlib.contextmanager
    def _stoppable(self, owner: str) -> Iterator[threading.Event]:
        """A flag that `stop(owner)` sets while the block runs."""
        flag = threading.Event()
        with self._stops_lock:
            self._stops.setdefault(owner, set()).add(flag)
        try:
            yield flag
        finally:
            with self._stops_lock:
                self._stops[owner].discard(flag)
                if not self._stops[owner]:
                    del self._stops[owner]

    def _check_new_tokens(self, max_new_tokens: int) -> None:
        limit = self.settings.limits.new_tokens
        if max_new_tokens > limit:
            raise InvalidRequest("max_new_tokens", f"{max_new_tokens:,} is more than the limit here, {limit:,}")

    def _ready(self) -> LoadedModel:
        if self._loaded is not None:
            return self._loaded
        status = self._status
        if isinstance(status, Failed):
            raise ModelUnavailable(status.reason)
        step = status.step if isinstance(status, Loading) else "starting"
        raise ModelNotReady(f"The model is still loading ({step}). Try again in a moment.")

    def _load(self) -> None:
        name = "the model"

        def progress(known_name: str, step: str) -> None:
            nonlocal name
            name = known_name
            self._status = Loading(name, step)

        try:
            self._loaded = self._load_model(self.settings, self._thread, progress)
        except KvdemoError as error:
            self._status = Failed(name, str(error))
        except Exception as error:  # whatever a library raises, the page stays up and says it
            self._status = Failed(
                name, f"The model could not be loaded: {type(error).__name__}. The log has the details."
            )
            raise
        else:
            self._status = Ready(self._loaded.facts)
        finally:
            self._settled.set()

    def _kept_budget_bytes(self) -> int:
        """A share of what would be free without the kept caches."""
        device = self._loaded.model.device.type if self._loaded is not None else "cpu"
        return int((free_bytes(device)) * self.settings.limits.kept_cache_share)

    def _sweep(self) -> None:
        while not self._closed.wait(SWEEP_S):
            self._kept.sweep()


def _json_object(field: str, text: str) -> dict[str, Any]:
    """Text as a JSON object; InvalidRequest that names the place otherwise."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(field, f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise InvalidRequest(field, "is nested too deeply") from error
    if not isinstance(value, dict):
        raise InvalidRequest(field, "must be a JSON object")
    return value
