"""Caches of the loaded model, really filled and weighed layer by layer, beside what the planner predicts."""

from __future__ import annotations

from collections.abc import Generator

from kvdemo.caches import strategies as table
from kvdemo.caches.strategies import Strategy
from kvdemo.engine.engine import Engine
from kvdemo.facts.events import Finished, Waiting, Working
from kvdemo.facts.plans import Architecture, LayerFootprint, MeasuredLayer, MeasuredPoint
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.records import LayerBytes
from kvdemo.facts.requests import GenerationRequest, MeasureSpec
from kvdemo.planner.needs import layer_needs

__all__ = ["measure"]


def measure(
    engine: Engine, spec: MeasureSpec, geometry: Architecture, owner: str, reader: Reader = AT_ONCE
) -> Generator[MeasuredPoint | Waiting | Working, None, None]:
    """One point per strategy and length, one request each, and its signs of life; ends early when it is stopped."""
    loaded = engine.ready()
    bytes_each = loaded.model.dtype.itemsize
    with engine.stoppable(owner) as stop:
        for key in spec.strategies:
            strategy = table.available_strategy(key, loaded.model, "strategies")
            for length in spec.lengths:
                # A prompt of `length` tokens and one new one: the cache holds exactly `length` positions.
                ids = tuple(1 + at % ((loaded.facts.vocab_size or 2) - 1) for at in range(length))
                record = None
                request = GenerationRequest(ids, 1, key, fixed_length=True)
                for event in engine.run(request, owner, stop=stop, reader=reader, patient=True):
                    if isinstance(event, Waiting | Working):
                        yield event
                    if isinstance(event, Finished):
                        record = event.record
                if record is None or record.status != "ok":
                    return
                layers = zip(record.cache_layers, geometry.layers, strict=True) if record.cache_layers else ()
                yield MeasuredPoint(
                    strategy=key,
                    seq_len=length,
                    layers=tuple(
                        _measured(layer, footprint, layer_needs(footprint, strategy, length, bytes_each), strategy)
                        for layer, footprint in layers
                    ),
                    process_bytes=record.peak_bytes,
                    process_kind=record.peak_kind or "resident",
                )


def _measured(layer: LayerBytes, footprint: LayerFootprint, predicted_bytes: int, strategy: Strategy) -> MeasuredLayer:
    return MeasuredLayer(
        index=layer.index,
        kind=footprint.kind,
        held_bytes=layer.held_bytes,
        storage_bytes=layer.storage_bytes,
        predicted_bytes=predicted_bytes,
        cause=_cause(layer, footprint, predicted_bytes, strategy),
    )


def _cause(layer: LayerBytes, footprint: LayerFootprint, predicted_bytes: int, strategy: Strategy) -> str:
    """Why does what is held or allocated differ from the prediction? "" where it does not."""
    more = layer.held_bytes - predicted_bytes
    if more:
        if strategy.bits is not None and more > 0:
            return f"a quantised cache keeps scales and zero points beside its {strategy.bits}-bit values"
        return "not explained: please report it"
    if layer.storage_bytes > layer.held_bytes:
        if footprint.window is not None:
            return "the window is a view: the whole prompt's storage stays until the next step"
        return "a view: the storage behind it is larger"
    return ""
