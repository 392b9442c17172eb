"""The tensors of a traced cache -> one footprint per layer.

Keys, values, states and indexer keys have known places. Anything else that a layer keeps is told apart by how its shape
changes between prefills of different lengths; what fits no pattern is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvdemo.facts.plans import FixedState, LayerFootprint, LayerKind, TokenStream

__all__ = ["UnreadableCache", "Views", "footprints", "needs_lengths", "view"]

View = dict[str, tuple[tuple[int, ...], int, bool]]  # place -> shape, bytes of an element, stored in the model's dtype
Views = list[tuple[Any, View]]  # one per layer: the layer object, and its tensors
FIXED_PLACES = ("conv_states", "recurrent_states", "linear_cache")
KNOWN_PLACES = ("keys", "values", "indexer_keys", *FIXED_PLACES)


class UnreadableCache(Exception):
    """A layer keeps something that grows in a way we cannot describe; says what."""


def view(cache: Any) -> Views:
    """Every layer of a cache with the tensors it holds; a layer that was never used holds none."""
    import torch

    views: Views = []
    extra = getattr(cache, "linear_cache", None) or []
    for index in range(max(len(cache.layers), len(extra))):
        layer = cache.layers[index] if index < len(cache.layers) else None
        seen: set[int] = set()
        tensors: View = {}
        inside = dict(vars(layer)) if layer is not None else {}
        if index < len(extra):
            inside["linear_cache"] = extra[index]
        for place, tensor in _tensors(inside):
            if tensor.ndim < 2 or tensor.numel() == 0 or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            tensors[place] = (tuple(tensor.shape), tensor.element_size(), tensor.dtype == torch.bfloat16)
        views.append((layer, tensors))
    return views


def needs_lengths(views: Views) -> tuple[int, ...]:
    """Lengths of further prefills without which this cache cannot be described; none for the usual kinds."""
    odd = [layer for layer, tensors in views if any(not place.startswith(KNOWN_PLACES) for place in tensors)]
    if not odd:
        return ()
    longest = max(getattr(layer, "compress_rate", 1) for layer in odd)
    return (2 * longest + 3, 3 * longest + 5) if longest > 1 else (11,)


def footprints(observed: Sequence[tuple[int, Views]], layer_types: Sequence[str], config: Any) -> list[LayerFootprint]:
    """One footprint per layer from what was seen after each length; the first observation is the short one."""
    num_tokens, views = observed[0]
    found: list[LayerFootprint] = []
    for index, (layer, tensors) in enumerate(views):
        seen = [(length, other[index][1]) for length, other in observed]
        layer_type = layer_types[index] if index < len(layer_types) else ""
        found.append(_footprint(index, layer, tensors, num_tokens, seen, layer_type, config))
    return found


def _footprint(
    index: int, layer: Any, tensors: View, num_tokens: int, seen: list[tuple[int, View]], layer_type: str, config: Any
) -> LayerFootprint:
    fixed = [_state(tensors[place]) for place in tensors if place.startswith(FIXED_PLACES)]
    streams: list[TokenStream] = []
    places = {place for _, view in seen for place in view if not place.startswith(KNOWN_PLACES)}
    for place in sorted(places):
        entry = _fit(place, [(n, view[place]) for n, view in seen if place in view], seen, layer)
        if isinstance(entry, FixedState):
            fixed.append(entry)
        else:
            streams.append(entry)
    fields: dict[str, Any] = {"fixed": tuple(fixed), "streams": tuple(streams)}
    window = getattr(layer, "sliding_window", None)
    if "keys" in tensors:
        keys = tensors["keys"][0]
        values = tensors["values"][0] if "values" in tensors else (keys[0], 0, keys[2], 0)
        fields |= {"kv_heads": keys[1], "key_dim": keys[3], "value_heads": values[1], "value_dim": values[3]}
        if window is not None:
            # a growing cache keeps window - 1 tokens; its slice [-window + 1:] keeps all of them when the window is 1
            fields |= {"window": window, "held_window": window - 1 if window > 1 else None}
        else:
            fields["lead_tokens"] = keys[2] - num_tokens
    if "indexer_keys" in tensors:
        shape, bytes_each, follows = tensors["indexer_keys"]
        if follows:
            fields["extra_elements"] = shape[-1]
        else:
            fields["streams"] = (*streams, TokenStream(shape[-1], bytes_each=bytes_each))
    return LayerFootprint(index=index, kind=_kind(layer, tensors, fields, layer_type, config), **fields)


def _kind(layer: Any, tensors: View, fields: dict[str, Any], layer_type: str, config: Any) -> LayerKind:
    """The word for what a layer keeps, from its tensors first and the config's fields second."""
    if "keys" not in tensors:
        return "state" if fields["fixed"] else "none"
    if fields["fixed"] and not hasattr(layer, "compress_rate"):
        return "hybrid"
    if hasattr(layer, "compress_rate"):
        return "compressed"
    if "indexer_keys" in tensors or fields["streams"]:
        return "indexed"
    if fields.get("window") is not None:
        return "chunked" if layer_type == "chunked_attention" else "sliding"
    rank = getattr(config, "kv_lora_rank", None)
    if rank is not None and fields["kv_heads"] == 1 and rank in (fields["key_dim"], fields["value_dim"]):
        return "latent"
    return "full"


def _state(tensor: tuple[tuple[int, ...], int, bool]) -> FixedState:
    """A state of one sequence; one that is float32 in a bfloat16 model keeps its own size."""
    shape, bytes_each, follows = tensor
    return FixedState(_product(shape), None if follows else bytes_each)


def _fit(
    place: str, points: list[tuple[int, Any]], seen: list[tuple[int, View]], layer: Any
) -> FixedState | TokenStream:
    """How a tensor grows, from its shapes at the two longest lengths (and its absence at the shortest)."""
    if len(points) < 2:
        raise UnreadableCache(f"{type(layer).__name__} keeps {place!r} at one length only")
    (n1, (shape1, size, follows)), (n2, (shape2, _, _)) = points[-2:]
    every = getattr(layer, "compress_rate", None)
    bytes_each = None if follows else size
    if shape1 == shape2:
        if every and len(points) < len(seen):
            return TokenStream(_product(shape1), every=every, once=True, bytes_each=bytes_each)
        return FixedState(_product(shape1), bytes_each)
    axes = [axis for axis, (a, b) in enumerate(zip(shape1, shape2, strict=True)) if a != b]
    if len(axes) == 1:
        a, b = shape1[axes[0]], shape2[axes[0]]
        elements = _product(shape1) // a
        if (a, b) == (n1, n2):
            return TokenStream(elements, bytes_each=bytes_each)
        if every and (a, b) == (n1 // every, n2 // every):
            return TokenStream(elements, every=every, bytes_each=bytes_each)
        if every and (a, b) == (n1 % every, n2 % every):
            return TokenStream(elements, every=every, remainder=True, bytes_each=bytes_each)
    raise UnreadableCache(
        f"{type(layer).__name__} keeps {place!r} of {shape1} after {n1} tokens and {shape2} after {n2}"
    )


def _tensors(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor inside dicts, lists and tuples, with a name for its place."""
    import torch

    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _tensors(inner, f"{place}.{position}")


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
