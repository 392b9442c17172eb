"""What a live cache weighs: bytes per layer, keys and values apart, states, storages, devices.

The only file that knows private fields of transformers' cache layers. Logical bytes are what the tensors show; storage
bytes are what stays allocated behind them (a sliding layer's view keeps the whole prompt's storage after a long prefill).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvdemo.facts.records import LayerBytes

if TYPE_CHECKING:
    import torch
    from transformers import Cache

__all__ = ["CacheWeight", "cached_tokens", "layer_tensors", "layers_of", "room_of", "weigh", "weigh_layers"]

# Tensors of bookkeeping that a layer keeps beside its data: counters and the window's size, all of them below two dimensions.
_DATA_MIN_DIM = 2
_WITHOUT_TENSORS = frozenset({type(None), bool, int, float, str})


@dataclass(frozen=True, slots=True)
class CacheWeight:
    """A whole cache, in bytes."""

    held_bytes: int
    storage_bytes: int
    by_device: dict[str, int]


def layers_of(cache: Cache) -> list[Any]:
    """The layers of a cache; an encoder-decoder cache gives its own layers, then those of cross-attention."""
    if hasattr(cache, "self_attention_cache"):
        return [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return list(cache.layers)


def cached_tokens(cache: Cache | None) -> int:
    """How many positions does the cache hold? 0 without a cache, and for one of states only."""
    if cache is None or not any(hasattr(layer, "get_seq_length") for layer in layers_of(cache)):
        return 0
    return int(cache.get_seq_length())


def room_of(cache: Cache) -> int | None:
    """How many positions can the cache take in all? None: it grows, or forgets the oldest (whole windows) and so has no end.

    A window that was given fewer slots than it is long would forget too early: its slots are an end.
    """
    layers = (layer for layer in layers_of(cache) if hasattr(layer, "max_cache_len"))
    return min((layer.max_cache_len for layer in layers if getattr(layer, "_is_croppable", True)), default=None)


def layer_tensors(layer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in which a cache layer keeps data, with the name of its field; one that has two names comes once."""
    import torch

    plain, device = torch.Tensor, torch.device  # asked by type: isinstance of a tensor takes most of a look at a cache
    seen: set[int] = set()
    for name, value in vars(layer).items():
        kind = type(value)
        if kind is device or kind in _WITHOUT_TENSORS:
            continue
        quantised = name.startswith("_quantized")
        for tensor in (value,) if kind is plain else _tensors_in(value):
            # fp8 keeps one scale per layer as a scalar; elsewhere scalars and vectors are counters.
            if (quantised or tensor.dim() >= _DATA_MIN_DIM) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor


def weigh(cache: Cache | None) -> CacheWeight:
    """What does this cache weigh now? A few microseconds per layer, so that it can be asked at every token."""
    by_device: dict[torch.device, int] = {}
    storages: dict[int, int] = {}
    for layer in layers_of(cache) if cache is not None else ():
        for _, tensor in layer_tensors(layer):
            device = tensor.device
            by_device[device] = by_device.get(device, 0) + tensor.nbytes
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    named = {str(device): num_bytes for device, num_bytes in by_device.items()}
    return CacheWeight(sum(named.values()), sum(storages.values()), named)


def weigh_layers(cache: Cache) -> tuple[LayerBytes, ...]:
    """What does each layer of this cache weigh?"""
    return tuple(_weigh_layer(index, layer) for index, layer in enumerate(layers_of(cache)))


def _weigh_layer(index: int, layer: Any) -> LayerBytes:
    keys = values = states = other = 0
    keys_shape = None
    storages: dict[int, int] = {}
    device = None
    for name, tensor in layer_tensors(layer):
        num_bytes = tensor.numel() * tensor.element_size()
        if name in ("keys", "_quantized_keys"):
            keys += num_bytes
            keys_shape = tuple(tensor.shape) if name == "keys" else None
        elif name in ("values", "_quantized_values"):
            values += num_bytes
        elif name in ("conv_states", "recurrent_states"):
            states += num_bytes
        else:
            other += num_bytes
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage.nbytes()
        device = str(tensor.device)
    return LayerBytes(
        index, type(layer).__name__, keys, values, states, other, sum(storages.values()), device, keys_shape
    )


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors inside a field: itself, or those in its dicts, tuples and wrapped (quantised) tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            names, _ = value.__tensor_flatten__()
            for name in names:
                yield from _tensors_in(getattr(value, name))
        else:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors_in(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from _tensors_in(inner)
