"""A look into a kept cache, drawn: the positions that a layer holds, the map of layers and heads, the norms of one head."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from markupsafe import Markup

from kvdemo.experiments.step_words import recent_words
from kvdemo.facts.steps import CacheLook
from kvdemo.facts.units import format_count

__all__ = ["NORMS", "look_card"]

MOST_BARS = 96
MOST_ROWS = 128
MOST_CELLS = 16
NORMS = (
    "The length (L2 norm) of the stored vector at each position. It says how large the numbers are, not what they mean."
)


def look_card(found: CacheLook) -> Markup:
    """What the cache holds now."""
    return Markup("{}{}{}").format(strip(found), layer_map(found), norms(found))


def strip(found: CacheLook) -> Markup:
    """The positions of the text in the chosen layer: forgotten, or held; the newest token is not in the cache yet."""
    held = found.held[found.layer]
    if held is None:
        return Markup('<p class="kv-small">{}</p>').format(
            f"Layer {found.layer}: how many positions it holds cannot be read off its data."
        )
    gone = found.tokens - held
    parts = [("forgotten", gone, "forgotten"), ("reused", held, "held")]
    bars = Markup("").join(
        Markup('<span class="kv-part kv-part-{}" style="flex:{} 1 0"></span>').format(kind, count)
        for kind, count, _ in (*parts, ("newest", 1, ""))
        if count
    )
    words = ", ".join(f"{format_count(count)} {name}" for _, count, name in parts if count)
    layer = f"Layer {found.layer}: {words}; the newest token is not in the cache yet."
    return Markup('<div class="kv-bar" role="img" title="{}">{}</div><p class="kv-small">{}</p>').format(
        layer, bars, layer
    )


def layer_map(found: CacheLook) -> Markup:
    """Layers by KV heads: which part of the text each holds. What a window holds is the end of it."""
    rows = []
    most_heads = 1
    for index, (layer, held) in enumerate(list(zip(found.layers, found.held, strict=True))[:MOST_ROWS]):
        heads = layer.keys_shape[1] if layer.keys_shape is not None and len(layer.keys_shape) == 4 else 1
        most_heads = max(most_heads, heads)
        share = 100.0 if held is None else 100 * held / max(1, found.tokens)
        words = f"Layer {index}: {'not known how much' if held is None else f'{format_count(held)} positions'}, {heads} KV heads"
        cells = Markup("").join(
            Markup('<span class="kv-cell{}{}"><span style="width:{:.1f}%"></span></span>').format(
                " kv-cell-unknown" if held is None else "",
                " kv-cell-chosen" if (index, head) == (found.layer, found.head) else "",
                share,
            )
            for head in range(min(heads, MOST_CELLS))
        )
        rows.append(Markup('<div class="kv-map-row" title="{}">{}</div>').format(words, cells))
    said = ["One row per layer, one cell per KV head: the text from left to right, filled where it is held."]
    said += [recent] if (recent := recent_words(found.layers, found.tokens)) else []
    said += ["Hatched: not known how much."] if None in found.held[:MOST_ROWS] else []
    said += [f"The first {MOST_ROWS} layers."] if len(found.layers) > MOST_ROWS else []
    said += [f"The first {MOST_CELLS} heads."] if most_heads > MOST_CELLS else []
    caption = " ".join(said)
    return Markup(
        '<h3 class="kv-card-title">Layers and heads</h3><div class="kv-map" role="img" title="{}">{}</div>'
        '<p class="kv-small">{}</p>'
    ).format(caption, Markup("").join(rows), caption)


def norms(found: CacheLook) -> Markup:
    """The norms of keys and values of the chosen head, as two rows of bars."""
    if not found.key_norms:
        return Markup('<p class="kv-small">{}</p>').format(
            "The vectors of a cache of this kind cannot be read one by one."
        )
    title = f"Layer {found.layer}, KV head {found.head}"
    return Markup('<h3 class="kv-card-title">{}</h3>{}{}<p class="kv-small">{}</p>').format(
        title, bars("Keys", found.key_norms, found.first), bars("Values", found.value_norms, found.first), NORMS
    )


def bars(name: str, values: Sequence[float], first: int) -> Markup:
    """One bar per position, or per few positions where there are very many."""
    each = -(-len(values) // MOST_BARS)
    means = [fmean(values[at : at + each]) for at in range(0, len(values), each)]
    top = max(means) or 1.0
    drawn_bars = Markup("").join(
        Markup('<span style="height:{:.1f}%"></span>').format(max(2.0, 100 * value / top)) for value in means
    )
    last = first + len(values)
    words = (
        f"{name}: {min(values):.2f} to {max(values):.2f}, positions {format_count(first + 1)} to {format_count(last)}"
    )
    return Markup('<p class="kv-small">{}</p><div class="kv-norms" role="img" title="{}">{}</div>').format(
        words, words, drawn_bars
    )
