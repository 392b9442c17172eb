"""One forward in words: what was computed, read and appended, with the real shapes and bytes. Pure."""

from __future__ import annotations

from kvdemo.facts.records import LayerBytes
from kvdemo.facts.units import format_bytes, format_count

__all__ = ["step_words"]


def step_words(
    said: str,
    computed: int,
    read: int,
    *,
    more_bytes: int | None,
    layers: tuple[LayerBytes, ...] = (),
    again: bool = False,
) -> str:
    """ "With it: computed 1, read 9, appended 1. Layer 0 keys [1, 3, 9, 64] to [1, 3, 10, 64]; 45.0 KiB more over 30 layers."

    more_bytes   that the cache holds more after it; None: there is no cache, or nobody looked
    layers       of the cache afterwards, or at the end of the run
    again        positions that were computed before are computed once more
    """
    if not read:
        words = f"{said}: computed {format_count(computed)} of {format_count(computed)} positions"
        words += " again" if again else ""
    else:
        words = (
            f"{said}: computed {format_count(computed)}, read {format_count(read)}, appended {format_count(computed)}"
        )
    if more_bytes is None:
        return f"{words}."
    over = f" over {format_count(len(layers))} layers" if layers else ""
    grown = f"{format_bytes(more_bytes)} more{over}" if more_bytes > 0 else f"no more bytes{over}"
    shapes = _shapes(layers[0], read, read + computed) if layers else ""
    return f"{words}. {shapes}; {grown}." if shapes else f"{words}, {grown}."


def _shapes(first: LayerBytes, before: int, after: int) -> str:
    """The keys of the first layer before and after; "" unless that layer simply grows with every position."""
    if first.keys_shape is None or first.layer_class != "DynamicLayer":
        return ""
    batch, heads, _, dim = first.keys_shape
    grown = f"[{batch}, {heads}, {after}, {dim}]"
    return f"Layer 0 keys [{batch}, {heads}, {before}, {dim}] to {grown}" if before else f"Layer 0 keys {grown}"
