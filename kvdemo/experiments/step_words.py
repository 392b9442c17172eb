"""One forward in words: what was computed, read and appended, with the real shapes and bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.facts.records import LayerBytes
from kvdemo.facts.units import format_bytes, format_count

__all__ = ["recent_words", "step_words"]


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
    shapes = _shapes(layers, read, read + computed)
    did = f"{words}. {shapes}; {grown}." if shapes else f"{words}, {grown}."
    return f"{did} {recent_words(layers, read + computed)}".rstrip()


def recent_words(layers: Sequence[LayerBytes], positions: int) -> str:
    """ "4 of 6 layers keep only the newest 15 of 37 positions."; "" where no layer has forgotten any of so many.

    layers   of the cache then, or later: a window that is full stays as long as it is
    """
    held = [layer.keys_shape[2] for layer in layers if layer.keys_shape is not None and "Sliding" in layer.layer_class]
    recent = sorted({count for count in held if count < positions})
    if not recent:
        return ""
    number = sum(count < positions for count in held)
    few = f"{format_count(recent[0])} to {format_count(recent[-1])}" if len(recent) > 1 else format_count(recent[0])
    keep = f"{format_count(number)} of {format_count(len(layers))} layers {'keeps' if number == 1 else 'keep'}"
    return f"{keep} only the newest {few} of {format_count(positions)} positions."


def _shapes(layers: Sequence[LayerBytes], before: int, after: int) -> str:
    """The keys of the first layer that simply grows with every position, before and after; "" where none does."""
    for layer in layers:
        if layer.keys_shape is not None and layer.layer_class == "DynamicLayer":
            batch, heads, _, dim = layer.keys_shape
            named, grown = f"Layer {layer.index} keys", f"[{batch}, {heads}, {after}, {dim}]"
            return f"{named} [{batch}, {heads}, {before}, {dim}] to {grown}" if before else f"{named} {grown}"
    return ""
