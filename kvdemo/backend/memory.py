"""What needs no run: geometries and plans, which cache is in force and how to change it; and caches filled to be weighed."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import Any

from kvdemo.backend.model import BackendBase
from kvdemo.engine.engine import LoadModel, load_named
from kvdemo.engine.measuring import measure
from kvdemo.experiments.json_documents import encoded
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.events import Waiting, Working
from kvdemo.facts.plans import (
    USUAL_BUDGET,
    Architecture,
    Budget,
    MeasuredPoint,
    MemoryPlan,
    MemoryRequest,
    StoredWeights,
)
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import MeasureSpec
from kvdemo.generation.environment import environment
from kvdemo.generation.memory import machine_budget
from kvdemo.in_force import asked as deciding
from kvdemo.models.config import device_when_loaded, dtype_when_loaded, read_config
from kvdemo.models.source import resolve
from kvdemo.planner import architecture, catalog, geometries, plan
from kvdemo.settings import DEFAULT_MODEL, Settings

__all__ = ["Memory"]

MEASURED = ("held_bytes", "storage_bytes", "predicted_bytes")


class Memory(BackendBase):
    """The part of the backend that knows configs."""

    def __init__(self, settings: Settings, *, load_model: LoadModel = load_named) -> None:
        super().__init__(settings, load_model=load_model)
        self._architecture: Architecture | None = None
        self._in_force: CacheDecision | None = None

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
        asked = deciding.read(spec, self.settings)  # may wait for the hub: nobody else must wait with it
        with self._tracing:
            return deciding.decision(asked, self.settings)

    def advice(self, strategy: str, *, num_tokens: int = 512, spec: InspectSpec | None = None) -> CacheAdvice:
        """Keep this, and Go back: the call or the file for a strategy, and for what `spec` says is there now.

        num_tokens   prompt and answer together: what a cache of fixed size is made for
        """
        loaded, asked = self._engine.ready(), deciding.read(spec or InspectSpec(), self.settings)
        with self._tracing:
            before = deciding.decision(asked, self.settings)
        return deciding.advice(loaded, strategy, num_tokens, asked, before)

    def catalogue(self) -> list[str]:
        """The known models that a plan can be asked for by name."""
        return catalog.names()

    def architecture_named(self, model: str | None = None, config: str = "") -> Architecture:
        """A geometry without any weights: `model` is a known one, a hub id, a folder or a .gguf file, None the default."""
        if config.strip() or model in self.catalogue():
            return self.architecture(model, config)
        source = resolve(model or self.settings.model, self.settings.home, mode=self.settings.mode)
        found = architecture.from_config(read_config(source, self.settings), name=source.name)
        hub_id = DEFAULT_MODEL if source.kind == "embedded" else source.hub_id
        return dataclasses.replace(found, dtype=dtype_when_loaded(self.settings), loaded=True, hub_id=hub_id)

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
                weights = StoredWeights(loaded.facts.weight_bytes or 0, f"as loaded: {loaded.facts.dtype}")
                name, hub_id = loaded.facts.name, loaded.facts.hub_id
                self._architecture = dataclasses.replace(found, name=name, hub_id=hub_id, weights=weights)
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
        name: str = "A model typed by hand",
    ) -> Architecture:
        """A geometry typed by hand; kv_heads is one number or one per layer."""
        return geometries.typed(layers, kv_heads, head_dim, num_parameters=num_parameters, name=name)

    def fields_of_config(self, config: str) -> dict[str, int]:
        """layers, kv_heads and head_dim as far as a config.json that was refused names them; nothing is derived."""
        return geometries.fields_of(config)

    def usual_budget(self, geometry: Architecture | None = None) -> Budget:
        """The memory that a plan is made for where nobody says: this machine's for what is or would be loaded here.

        None stands for the model that this process loads; which accelerator it is on is known when it is there.
        """
        if geometry is not None and not geometry.loaded:
            return USUAL_BUDGET
        if self._engine.loaded is not None:
            return machine_budget(self._engine.loaded.model.device.type)
        return machine_budget("cpu" if geometry is None else device_when_loaded(self.settings))

    def plan(self, request: MemoryRequest, *, model: str | None = None, config: str = "") -> MemoryPlan:
        """What the cache of this model takes for this request, predicted."""
        return self.plan_of(self.architecture(model, config), request)

    def plan_of(self, geometry: Architecture, request: MemoryRequest, *, one_page_size: bool = False) -> MemoryPlan:
        """The same for a geometry that is at hand; one_page_size: in an engine that keeps every layer at full length."""
        return plan.make_plan(geometries.with_one_page_size(geometry) if one_page_size else geometry, request)

    def plan_document(self, made: MemoryPlan) -> dict[str, Any]:
        """A plan as the JSON document of the command line and the API."""
        return plan.as_document(made)

    def measure_memory(
        self, spec: MeasureSpec, *, owner: str = "", reader: Reader = AT_ONCE
    ) -> Generator[MeasuredPoint | Waiting | Working, None, None]:
        """Fill caches of the loaded model for real and weigh them, layer by layer, beside the prediction.

        Between the points there are the runs' signs of life.
        """
        return measure(self._engine, spec, self.architecture(), owner, reader)

    def measured_document(self, points: Sequence[MeasuredPoint]) -> dict[str, Any]:
        """Measured caches as the JSON document of the command line."""
        return {
            "schema": 1,
            "kind": "memory_measurement",
            "environment": encoded(environment()),
            "model": encoded(self.describe()),
            "points": [{**encoded(point), **{name: getattr(point, name) for name in MEASURED}} for point in points],
        }
