"""What a live cache of one sequence takes with a strategy, from the footprints of the model's layers."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from kvdemo.caches.strategies import Strategy
from kvdemo.errors import KvdemoError
from kvdemo.facts.plans import LayerFootprint
from kvdemo.planner.plan import predict_layer

if TYPE_CHECKING:
    from kvdemo.facts.plans import Architecture

__all__ = ["CacheNeeds", "layer_needs"]

RESIDUAL_TOKENS = 128  # a quantised cache keeps so many in full precision before it quantises them together
SCALES_BITS = 1  # of an element: a scale and a zero point in float32 per group of 64

log = logging.getLogger(__name__)


def layer_needs(footprint: LayerFootprint, strategy: Strategy, positions: int, bytes_each: int) -> int:
    """Bytes of one layer with so many positions (slots, where the size is fixed); of a quantised cache its values alone.

    bytes_each   of an element in the model's dtype; fp8's two scales are counted
    """
    if strategy.key == "fp8" or strategy.bits is None:
        kind = "fp8" if strategy.key == "fp8" else "static" if strategy.fixed_size else "dynamic"
        return predict_layer(footprint, kind, positions, 1, bytes_each)
    return predict_layer(footprint, "dynamic", positions, 1, 1) * strategy.bits // 8


class CacheNeeds:
    """Asks the code of a loaded model once, when it is first needed, since that takes a second."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._geometry: Architecture | None = None
        self._asked = False
        self._lock = threading.Lock()

    def __call__(self, strategy: Strategy, positions: int) -> int | None:
        """Bytes of a whole cache with so many positions, one sequence; None where the model cannot be traced."""
        geometry = self._traced()
        if geometry is None:
            return None
        each = self._model.dtype.itemsize
        total = sum(layer_needs(layer, strategy, positions, each) for layer in geometry.layers)
        if strategy.bits is None or strategy.key == "fp8":
            return total
        residual = sum(
            predict_layer(layer, "dynamic", min(positions, RESIDUAL_TOKENS), 1, each) for layer in geometry.layers
        )
        return total + total * SCALES_BITS // strategy.bits + residual

    def kinds(self) -> frozenset[str] | None:
        """The kinds of its layers; None where the model cannot be traced."""
        geometry = self._traced()
        return None if geometry is None else frozenset(layer.kind for layer in geometry.layers)

    def _traced(self) -> Architecture | None:
        from kvdemo.planner.architecture import from_loaded

        with self._lock:
            if not self._asked:
                self._asked = True
                try:
                    self._geometry = from_loaded(self._model)
                except KvdemoError as error:
                    log.warning("the cache's size is counted at full width: %s", error)
            return self._geometry
