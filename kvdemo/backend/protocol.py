"""What the page and the commands may ask of a backend. mypy holds the real one and the tests' against it.

Where an argument is left out here, the caller always says it; what each method promises stands with the real backend.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from kvdemo.experiments.question import AnyResult, FormBackend
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.endpoint import Endpoint
from kvdemo.facts.events import GenerationEvent, Waiting, Working
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.plans import Architecture, Budget, MeasuredPoint, MemoryPlan, MemoryRequest
from kvdemo.facts.reader import Reader
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import MeasureSpec, Message, SamplingParams
from kvdemo.facts.steps import CacheLook, Stepped

__all__ = ["Backend"]


class Backend(FormBackend, Protocol):
    """The one door to the model: requests go in as facts, events and results come out as facts.

    Generators may be closed at any time; what they run ends then.
    """

    def describe(self) -> ModelFacts: ...

    # Chat
    def chat(
        self,
        messages: tuple[Message, ...],
        *,
        max_new_tokens: int,
        strategy: str,
        sampling: SamplingParams,
        owner: str,
        keep: bool = False,
        reader: Reader,
        endpoint: Endpoint | None = None,
    ) -> Generator[GenerationEvent, None, None]: ...
    def step(
        self,
        messages: tuple[Message, ...],
        made: tuple[int, ...] = (),
        *,
        strategy: str,
        layer: int = 0,
        head: int = 0,
        owner: str,
        reader: Reader,
    ) -> Generator[Waiting | Working | Stepped, None, None]: ...
    def look(
        self, *, layer: int = 0, head: int = 0, owner: str, reader: Reader
    ) -> Generator[Waiting | CacheLook | None, None, None]: ...
    def turns_without_reuse(
        self,
        conversations: tuple[tuple[Message, ...], ...],
        *,
        strategy: str,
        longest_answer: int,
        owner: str,
        reader: Reader,
    ) -> Generator[RunRecord | Waiting | Working, None, None]: ...
    def kept_bytes(self, owner: str) -> int: ...
    def forget(self, owner: str) -> None: ...

    # Questions
    def ask(
        self, spec: Any, *, owner: str, reader: Reader, endpoint: Endpoint | None = None
    ) -> Generator[Any, None, None]: ...
    def recorded_results(self) -> tuple[str, ...]: ...
    def recorded_result(self, name: str) -> AnyResult: ...
    def inspect(self, spec: InspectSpec) -> CacheDecision: ...
    def advice(self, strategy: str, *, num_tokens: int, spec: InspectSpec | None = None) -> CacheAdvice: ...

    # Memory
    def catalogue(self) -> list[str]: ...
    def architecture(self, model: str | None = None, config: str = "") -> Architecture: ...
    def architecture_of_hub(self, hub_id: str) -> Architecture: ...
    def architecture_by_hand(
        self, layers: object, kv_heads: object, head_dim: object, *, num_parameters: int | None = None
    ) -> Architecture: ...
    def fields_of_config(self, config: str) -> dict[str, int]: ...
    def usual_budget(self, geometry: Architecture | None = None) -> Budget: ...
    def plan_of(self, geometry: Architecture, request: MemoryRequest, *, one_page_size: bool = False) -> MemoryPlan: ...
    def plan_document(self, made: MemoryPlan) -> dict[str, Any]: ...
    def measure_memory(
        self, spec: MeasureSpec, *, owner: str, reader: Reader
    ) -> Generator[MeasuredPoint | Waiting | Working, None, None]: ...

    # Whose runs
    def stop(self, owner: str) -> None: ...
    def release(self, owner: str) -> None: ...
