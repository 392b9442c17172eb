"""Footprints x batch x length x dtype (x budget) -> bytes, crossings and what fits. Pure arithmetic, no torch.

Counted: weights and cache. Not counted: activations, the runtime, fragmentation; a share of the budget stays free for
them. With tensor parallelism every figure is that of one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from kvdemo.facts.plans import Architecture, LayerFootprint, LayerPlan, MemoryPlan, MemoryRequest
from kvdemo.planner.fitting import Groups, capacity_of, crossing
from kvdemo.planner.notes import notes_of
from kvdemo.planner.paging import paged
from kvdemo.planner.sizes import FLOAT8_SCALES_BYTES, Sizes, grouped, weights_dtype_bits

__all__ = [
    "as_document",
    "by_kv_heads",
    "by_layers",
    "growth",
    "growth_by_users",
    "lengths_up_to",
    "make_plan",
    "predict_layer",
    "with_kv_heads",
]


def make_plan(architecture: Architecture, request: MemoryRequest) -> MemoryPlan:
    """What does the cache of this model take for this request?"""
    sizes, groups = Sizes.of(request, architecture.encoder_len), grouped(architecture.layers)
    length, batch = request.seq_len, request.batch_size
    layers = tuple(
        LayerPlan(layer, batch * sizes.held(layer, length), batch * _reserved(architecture, sizes, layer, length))
        for layer in architecture.layers
    )
    fixed = batch * sum(count * sizes.fixed(layer) for layer, count in groups)
    reserved = sum(layer.reserved_bytes for layer in layers)
    weights = weight_bytes(architecture, request)
    capacity = None
    budget_crossover = None
    if request.budget_gib is not None:
        one = _totals(architecture, replace(request, batch_size=1))[1]
        capacity = capacity_of(groups, sizes, request, weights or 0, one, architecture.context_limit)
        budget_crossover = crossing(groups, sizes, batch, capacity.budget_bytes - (weights or 0))
    return MemoryPlan(
        architecture=architecture,
        request=request,
        layers=layers,
        weight_bytes=weights,
        weights_how=_weights_how(architecture, request),
        held_bytes=sum(layer.held_bytes for layer in layers),
        reserved_bytes=reserved,
        uniform_bytes=batch * sum(count * sizes.uniform(layer, length) for layer, count in groups),
        reserved_attention_bytes=reserved - fixed,
        fixed_state_bytes=fixed,
        bytes_per_token=sum(count * sizes.per_token(layer, length) for layer, count in groups),
        crossover_tokens=None if weights is None else crossing(groups, sizes, batch, weights),
        budget_crossover_tokens=budget_crossover,
        capacity=capacity,
        notes=notes_of(architecture, request),
        paged=paged(architecture, request, None if capacity is None else capacity.usable_bytes),
    )


def weight_bytes(architecture: Architecture, request: MemoryRequest) -> int | None:
    """Bytes of the weights on one device, every expert among them; None when the parameters are not known."""
    if architecture.num_parameters is None:
        return None
    if architecture.weights is not None and request.weights_dtype is None:
        return -(-architecture.weights.num_bytes // request.tensor_parallel)
    bits = architecture.num_parameters * weights_dtype_bits(request.weights_dtype or architecture.dtype)
    return -(-bits // (8 * request.tensor_parallel))


def _weights_how(architecture: Architecture, request: MemoryRequest) -> str | None:
    """How the counted weights are stored, in words that follow "weights"; None when they are not known."""
    if architecture.num_parameters is None:
        return None
    if request.weights_dtype is not None or architecture.method == "by hand":
        return f"in {request.weights_dtype or architecture.dtype}"
    if architecture.weights is not None:
        return architecture.weights.how
    return f"as {'loaded' if architecture.loaded else 'published'}: {architecture.dtype}"


def predict_layer(footprint: LayerFootprint, strategy_kind: str, seq_len: int, batch: int, bytes_each: int) -> int:
    """What one layer of a live cache must hold after seq_len tokens, bytes.

    strategy_kind is "dynamic" (it grows), "static" (a fixed size), or "fp8" (a byte per element whatever bytes_each is, and
    two float32 scales for the layer, however many sequences).
    """
    if strategy_kind == "fp8":
        sizes = Sizes(bytes_each=1, state_bytes_each=bytes_each, encoder_len=seq_len)
        return batch * sizes.held(footprint, seq_len) + (FLOAT8_SCALES_BYTES if footprint.kv_heads else 0)
    sizes = Sizes(bytes_each=bytes_each, state_bytes_each=bytes_each, encoder_len=seq_len)
    return batch * (sizes.reserved if strategy_kind == "static" else sizes.held)(footprint, seq_len)


def growth(architecture: Architecture, request: MemoryRequest, lengths: Iterable[int]) -> list[tuple[int, int, int]]:
    """(length, held bytes, reserved bytes) of the whole batch at each length in tokens."""
    groups = grouped(architecture.layers)
    return [(length, *_totals(architecture, replace(request, seq_len=length), groups)) for length in lengths]


def growth_by_users(
    architecture: Architecture, request: MemoryRequest, batches: Iterable[int]
) -> list[tuple[int, int, int]]:
    """(requests at once, held bytes, reserved bytes) at the asked length."""
    held, reserved = _totals(architecture, replace(request, batch_size=1))
    return [(batch, batch * held, batch * reserved) for batch in batches]


def by_layers(architecture: Architecture, request: MemoryRequest) -> list[tuple[int, int, int]]:
    """(layers, held bytes, reserved bytes) of the first 1, 2, 3 ... layers of the model, for the whole batch."""
    sizes, held, reserved = Sizes.of(request, architecture.encoder_len), 0, 0
    found = []
    for count, layer in enumerate(architecture.layers, start=1):
        held += request.batch_size * sizes.held(layer, request.seq_len)
        reserved += request.batch_size * _reserved(architecture, sizes, layer, request.seq_len)
        found.append((count, held, reserved))
    return found


def by_kv_heads(
    architecture: Architecture, request: MemoryRequest, heads: Iterable[int] | None = None
) -> list[tuple[int, int, int]]:
    """(KV heads, held bytes, reserved bytes) of the same model with 1, 2, 4 ... KV heads in every attention layer.

    The last one has a KV head for every attention head, as without sharing. Empty where heads are not what is stored
    (a latent cache, states only), or where the number of attention heads is not known and none are given.
    """
    if heads is None:
        most = architecture.attention_heads or 0
        built = {layer.kv_heads for layer in architecture.layers if _has_shared_heads(layer)}
        doubling = {2**power for power in range(most.bit_length()) if most % 2**power == 0}
        heads = sorted(doubling | built | {most}) if most else ()
    if not any(_has_shared_heads(layer) for layer in architecture.layers):
        return []
    return [(count, *_totals(with_kv_heads(architecture, count), request)) for count in heads]


def with_kv_heads(architecture: Architecture, kv_heads: int) -> Architecture:
    """The same model with another number of KV heads in every layer that keeps keys and values by head."""
    layers = tuple(
        replace(layer, kv_heads=kv_heads, value_heads=kv_heads if layer.value_heads else 0)
        if _has_shared_heads(layer)
        else layer
        for layer in architecture.layers
    )
    return replace(architecture, layers=layers)


def as_document(plan: MemoryPlan) -> dict[str, Any]:
    """A plan as the JSON of `python -m kvdemo memory`: plain values only, sizes in bytes for the whole batch."""
    architecture, request, capacity = plan.architecture, plan.request, plan.capacity
    return {
        "model": {
            "name": architecture.name,
            "model_type": architecture.model_type,
            "num_parameters": architecture.num_parameters,
            "weight_bytes": plan.weight_bytes,
        },
        "weights": {"bytes": plan.weight_bytes, "how": plan.weights_how},
        "request": {
            "batch_size": request.batch_size,
            "seq_len": request.seq_len,
            "cache_dtype": request.cache_dtype,
        },
        "cache": {
            "held_bytes": plan.held_bytes,
            "reserved_bytes": plan.reserved_bytes,
            "uniform_bytes": plan.uniform_bytes,
            "reserved_attention_bytes": plan.reserved_attention_bytes,
            "fixed_state_bytes": plan.fixed_state_bytes,
            "bytes_per_token": plan.bytes_per_token,
        },
        "engine": None
        if plan.paged is None
        else {**asdict(plan.paged), "notes": list(plan.paged.notes), "commands": dict(plan.paged.commands)},
        "layers": [
            {
                "index": layer.footprint.index,
                "kind": layer.footprint.kind,
                "kv_heads": layer.footprint.kv_heads,
                "key_dim": layer.footprint.key_dim,
                "value_dim": layer.footprint.value_dim,
                "window": layer.footprint.window,
                "held_bytes": layer.held_bytes,
                "reserved_bytes": layer.reserved_bytes,
            }
            for layer in plan.layers
        ],
        "crossover_tokens": plan.crossover_tokens,
        "capacity": None
        if capacity is None
        else {
            "budget_bytes": capacity.budget_bytes,
            "budget_source": request.budget_source,
            "usable_bytes": capacity.usable_bytes,
            "fits": capacity.fits,
            "most_at_once": capacity.most_at_once,
            "longest_by_batch": [
                {"batch_size": batch, "seq_len": length, "capped_by_model": capped}
                for batch, length, capped in capacity.longest_by_batch
            ],
        },
        "notes": list(plan.notes),
        "method": architecture.method,
    }


def _reserved(architecture: Architecture, sizes: Sizes, layer: LayerFootprint, length: int) -> int:
    """What a fixed-size cache of one sequence allocates; what a growing one holds where there is no fixed-size one."""
    return sizes.reserved(layer, length) if architecture.static else sizes.held(layer, length)


def _totals(architecture: Architecture, request: MemoryRequest, groups: Groups | None = None) -> tuple[int, int]:
    """(held, reserved) bytes of all layers for the whole batch; groups: of its layers, where they are at hand."""
    sizes, groups = Sizes.of(request, architecture.encoder_len), groups or grouped(architecture.layers)
    held = sum(count * sizes.held(layer, request.seq_len) for layer, count in groups)
    reserved = sum(count * _reserved(architecture, sizes, layer, request.seq_len) for layer, count in groups)
    return request.batch_size * held, request.batch_size * reserved


def _has_shared_heads(layer: LayerFootprint) -> bool:
    """Does the number of KV heads decide what this layer stores?"""
    return layer.kv_heads > 0 and layer.kind in ("full", "sliding", "chunked", "hybrid", "cross")


def lengths_up_to(longest: int, points: int = 24) -> Sequence[int]:
    """Lengths for a chart with a logarithmic axis, from 128 tokens (or 1) to the longest."""
    low = min(128, longest)
    ratio = (longest / low) ** (1 / max(1, points - 1))
    return sorted({*(round(low * ratio**step) for step in range(points)), longest})
