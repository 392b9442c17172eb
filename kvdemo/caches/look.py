"""What does a cache hold now? Positions by layer, and how long the stored vectors of one head are. Reads, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvdemo.caches.footprint import cached_tokens, layers_of, weigh_layers
from kvdemo.facts.requests import checked_int
from kvdemo.facts.steps import CacheLook

if TYPE_CHECKING:
    from transformers import Cache

__all__ = ["look_into"]


def look_into(cache: Cache, tokens: int, layer: int = 0, head: int = 0) -> CacheLook:
    """In the model's thread, where nothing writes to it. InvalidRequest for a layer or head that it does not have."""
    layers = layers_of(cache)
    checked_int("layer", layer, 0, len(layers) - 1)
    held = tuple(_held(one, tokens) for one in layers)
    weighed = weigh_layers(cache)
    keys, values, positions = *_tensors(layers[layer]), held[layer]
    if keys is None or values is None or positions is None or cached_tokens(cache) != tokens:
        return CacheLook(tokens, weighed, held, layer)
    checked_int("head", head, 0, keys.shape[1] - 1)
    key_norms, value_norms = (tuple(part[0, head, :positions].float().norm(dim=-1).tolist()) for part in (keys, values))
    return CacheLook(
        tokens, weighed, held, layer, head, keys.shape[1], max(0, tokens - positions), key_norms, value_norms
    )


def _tensors(layer: Any) -> tuple[Any, Any]:
    """Keys and values as (batch, heads, positions, dim), where the layer keeps them so; (None, None) elsewhere."""
    found = getattr(layer, "keys", None), getattr(layer, "values", None)
    readable = all(part is not None and part.dim() == 4 and part.shape[0] == 1 and part.numel() for part in found)
    # Quantised layers keep most of their data elsewhere; what stands here is the part that is not quantised yet.
    return found if readable and not hasattr(layer, "_quantized_keys") else (None, None)


def _held(layer: Any, tokens: int) -> int | None:
    """How many positions of the text does this layer hold? A layer of fixed size has empty slots behind them."""
    keys, _ = _tensors(layer)
    return None if keys is None else min(tokens, keys.shape[-2])
