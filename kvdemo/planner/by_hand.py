"""A geometry that somebody typed: for a model that transformers does not know. Nothing is checked against any code."""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import Architecture, LayerFootprint
from kvdemo.facts.requests import checked_int

__all__ = ["by_hand"]

MAX_LAYERS = 1024


def by_hand(
    layers: int,
    kv_heads: int | Sequence[int],
    head_dim: int,
    *,
    value_dim: int | None = None,
    num_parameters: int | None = None,
    window: int | None = None,
    attention_heads: int | None = None,
    context_limit: int | None = None,
    dtype: str = "bfloat16",
    name: str = "typed by hand",
) -> Architecture:
    """The architecture of a model that transformers does not know; kv_heads is one number or one per layer."""
    checked_int("layers", layers, 1, MAX_LAYERS)
    heads = [kv_heads] * layers if isinstance(kv_heads, int) else list(kv_heads)
    if len(heads) != layers:
        raise InvalidRequest("kv_heads", f"lists {len(heads)} numbers for {layers} layers")
    for count in heads:
        checked_int("kv_heads", count, 1, 65_536)
    checked_int("head_dim", head_dim, 1, 65_536)
    value_dim = head_dim if value_dim is None else checked_int("value_dim", value_dim, 1, 65_536)
    if num_parameters is not None:
        checked_int("num_parameters", num_parameters, 1, 10**15)
    if window is not None:
        checked_int("window", window, 1, 100_000_000)
    footprints = tuple(
        LayerFootprint(
            index=index,
            kind="full" if window is None else "sliding",
            kv_heads=count,
            key_dim=head_dim,
            value_heads=count,
            value_dim=value_dim,
            window=window,
            held_window=window - 1 if window is not None and window > 1 else None,
        )
        for index, count in enumerate(heads)
    )
    return Architecture(
        name=name,
        model_type="by hand",
        layers=footprints,
        num_parameters=num_parameters,
        context_limit=context_limit,
        dtype=dtype,
        method="by hand",
        attention_heads=attention_heads,
        notes=("Typed by hand: nothing was checked against a model's code.",),
    )
