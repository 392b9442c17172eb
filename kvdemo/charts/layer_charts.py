"""Where a cache sits, layer by layer and KV head by KV head, and what sharing heads saves. Draws the planner's numbers."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from kvdemo.charts.colours import faint
from kvdemo.charts.look import TEXT_PX, Spot, blank, note
from kvdemo.facts.plans import LayerFootprint, LayerPlan, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count
from kvdemo.palette import MEANINGS, PAPER
from kvdemo.planner.plan import by_kv_heads
from kvdemo.planner.sizes import Sizes

__all__ = ["arithmetic", "kind_words", "layer_chart", "sharing_chart"]

MOST_BARS = 1600
LAYER_PX = 9
MOST_PX = 300
SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
# The palette's meaning and plotly's pattern of each kind of layer: told apart without colour, too.
KINDS = {
    "full": ("dynamic", ""),
    "sliding": ("static", "/"),
    "chunked": ("static", "x"),
    "latent": ("static-compiled", ""),
    "indexed": ("static-compiled", "/"),
    "compressed": ("static-compiled", "x"),
    "hybrid": ("quantised", "/"),
    "state": ("quantised", ""),
    "cross": ("offloaded", ""),
    "shared": ("weights", ""),
    "none": ("weights", ""),
}


def kind_words(layer: LayerFootprint) -> str:
    """A layer's kind as people name it: "full", "sliding 1,024", "latent", "shared with layer 14"."""
    if layer.kind == "shared":
        return "shared" if layer.shares is None else f"shared with layer {layer.shares}"
    if layer.kind == "none":
        return "no cache"
    words = {"state": "linear state", "cross": "cross-attention"}.get(layer.kind, layer.kind)
    return f"{words} {format_count(layer.window)}" if layer.window is not None else words


def arithmetic(plan: MemoryPlan, layer: LayerPlan) -> str:
    """How do a layer's bytes come about? Heads, dims, tokens and bytes; the sum is the planner's."""
    parts = terms(plan, layer.footprint)
    words = " + ".join(words for words, _ in parts) or "stores nothing"
    batch = plan.request.batch_size
    if batch > 1 and parts:
        words = f"({words})" if len(parts) > 1 else words
        words += f" × {format_count(batch)} requests"
    return f"{words}:<br>{format_count(layer.held_bytes)} bytes"


def terms(plan: MemoryPlan, layer: LayerFootprint) -> list[tuple[str, int]]:
    """What one request keeps in a layer on one device, as (multiplication in words, bytes); they add up to what it holds."""
    request = plan.request
    sizes = Sizes.of(request, plan.architecture.encoder_len)
    each = f"{sizes.bytes_each} {'byte' if sizes.bytes_each == 1 else 'bytes'}"
    found = []
    if position := sizes.bytes_per_position(layer):
        tokens = sizes.encoder_len if layer.kind == "cross" else request.seq_len + layer.lead_tokens
        held = tokens if layer.held_window is None else min(tokens, layer.held_window)
        elements = (
            f"{format_count(position // sizes.bytes_each)} elements on each device"
            if request.tensor_parallel > 1
            else elements_words(layer)
        )
        found.append((f"{elements} × {format_count(held)} tokens × {each}", position * held))
    for state in layer.fixed:
        size = state.bytes_each or sizes.state_bytes_each
        found.append((f"a state of {format_count(state.elements)} × {size} bytes", state.elements * size))
    for stream in layer.streams:
        elements_held = stream.elements_at(request.seq_len)
        size = stream.bytes_each or sizes.bytes_each
        found.append((f"{format_count(elements_held)} elements of their own growth × {size}", elements_held * size))
    return found


def elements_words(layer: LayerFootprint) -> str:
    """The elements that one token leaves in a layer, as a multiplication."""
    if not layer.value_heads * layer.value_dim:
        words = f"{layer.kv_heads} × {layer.key_dim}"
    elif (layer.kv_heads, layer.key_dim) == (layer.value_heads, layer.value_dim):
        words = f"2 (K, V) × {layer.kv_heads} {'head' if layer.kv_heads == 1 else 'heads'} × {layer.key_dim}"
    else:
        words = f"({layer.kv_heads} × {layer.key_dim} + {layer.value_heads} × {layer.value_dim})"
    if layer.extra_elements and layer.kv_heads:
        return f"({words} + {format_count(layer.extra_elements)})"
    return words if layer.kv_heads else format_count(layer.extra_elements)


@dataclass(frozen=True, slots=True)
class Row:
    """A bar: a layer, or every layer of a kind where all of a kind are alike."""

    layer: LayerPlan
    name: str


def layer_chart(plan: MemoryPlan) -> go.Figure:
    """Where does it sit? Layers by KV heads: a bar per layer, as long as its bytes, cut into its heads.

    A model whose layers all hold the same folds to one row per kind; its bars are one layer long.
    """
    kinds = kinds_of(plan)
    storing = {layer.held_bytes for layer in plan.layers if layer.held_bytes}
    folded = len(storing) <= 1
    rows = (
        [Row(layers[0], words) for words, layers in kinds.items()]
        if folded
        else [Row(layer, f"layer {layer.footprint.index}") for layer in plan.layers]
    )
    longest = max(storing, default=1)
    unit, unit_name = next((size, name) for size, name in SIZES if longest >= size or size == 1)
    legend_px = 0 if folded else len(kinds) * (TEXT_PX + 2) + 6
    height = max(62 * len(rows), 60) if folded else min(LAYER_PX * len(rows), MOST_PX)
    users = "1 request" if plan.request.batch_size == 1 else f"{format_count(plan.request.batch_size)} requests"
    figure = blank(
        "Where does it sit?",
        height=52 + legend_px + height + 48,
        left=8 if folded else 44,
        top=52 + legend_px,
        x={
            "title_text": f"one layer, {users}, {unit_name}",
            "range": [0, longest / unit * 1.02],
            "nticks": 5,
            "showgrid": True,
        },
        y={"range": [len(rows) - 0.5, -0.5], "showgrid": False} | layer_ticks(len(rows), folded),
    )
    figure.update_layout(barmode="overlay", bargap=0)
    bars(figure, plan, rows, unit, folded)
    for at, (words, layers) in enumerate(kinds.items()):
        meaning = MEANINGS[KINDS[layers[0].footprint.kind][0]]
        size = format_bytes(layers[0].held_bytes)
        if folded:
            text = f"{words}: {count_words(len(layers))} of {size}"
            note(figure, f"<b>{text}</b>", Spot(0, at - 0.32, refs=("x", "y")), colour=meaning.text, name="kind")
        else:
            sign = "▨" if KINDS[layers[0].footprint.kind][1] else "■"
            text = f"<b>{sign} {words}</b>: {len(layers)} of {len(plan.layers)} layers"
            y_shift = legend_px - at * (TEXT_PX + 2)
            note(figure, text, Spot(0, 1, (-40, y_shift), stand="top"), colour=meaning.text, name="kind")
    return figure


def kinds_of(plan: MemoryPlan) -> dict[str, list[LayerPlan]]:
    """The layers by kind; layers that read another's cache are one kind, whichever they read.

    The number of KV heads is said where all layers are alike, or where layers of a kind differ in it.
    """
    groups: dict[tuple[str, int], list[LayerPlan]] = {}
    for layer in plan.layers:
        words = "shared" if layer.footprint.kind == "shared" else kind_words(layer.footprint)
        groups.setdefault((words, layer.footprint.kv_heads), []).append(layer)
    names = [words for words, _ in groups]
    return {
        f"{words}, {heads} heads" if heads > 1 and (len(groups) == 1 or names.count(words) > 1) else words: layers
        for (words, heads), layers in groups.items()
    }


def count_words(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def layer_ticks(count: int, folded: bool) -> dict[str, object]:
    """The first layer, the last, and few between."""
    if folded:
        return {"showticklabels": False}
    step = max(1, round(count / 6))
    ticks = [*range(0, count - step // 2, step), count - 1]
    return {"tickvals": ticks, "ticktext": [str(tick) for tick in ticks]}


def bars(figure: go.Figure, plan: MemoryPlan, rows: list[Row], unit: int, folded: bool) -> None:
    """One trace per kind; a layer's bar is cut into its heads while there are not too many to see."""
    longest = max((row.layer.held_bytes for row in rows), default=0)
    few = sum(max(1, row.layer.footprint.kv_heads) for row in rows) <= MOST_BARS
    by_kind: dict[str, list[tuple[int, Row]]] = {}
    for at, row in enumerate(rows):
        by_kind.setdefault(row.layer.footprint.kind, []).append((at, row))
    for kind, members in by_kind.items():
        meaning, pattern = KINDS[kind]
        xs, ys, bases, words = [], [], [], []
        for at, row in members:
            heads = max(1, row.layer.footprint.kv_heads)
            parts = heads if few and row.layer.held_bytes / heads > 0.02 * longest else 1
            piece = row.layer.held_bytes / unit / parts
            for part in range(parts):
                xs.append(piece - (0.004 * longest / unit if parts > 1 else 0))
                bases.append(part * piece)
                ys.append(at + (0.12 if folded else 0))
                head = f", KV head {part + 1} of {parts}" if parts > 1 else ""
                what = kind_words(row.layer.footprint)
                words.append(f"{row.name}{head}: {what}<br>{arithmetic(plan, row.layer)}")
        figure.add_bar(
            x=xs,
            y=ys,
            base=bases,
            orientation="h",
            width=0.4 if folded else 0.8,
            name=kind,
            marker={
                "color": MEANINGS[meaning].fill,
                "line": {"width": 0},
                "pattern": {
                    "shape": pattern,
                    "fillmode": "overlay",
                    "fgcolor": faint(PAPER["light"].card, 0.75),
                    "size": 6,
                },
            },
            customdata=words,
            hovertemplate="%{customdata}<extra></extra>",
        )


def sharing_chart(plan: MemoryPlan) -> go.Figure:
    """What does sharing heads save? The same request with every head its own keys, as built, and one shared head."""
    built = sorted({layer.kv_heads for layer in plan.architecture.layers if layer.kv_heads})
    heads = plan.architecture.attention_heads
    sizes = {count: held for count, held, _ in by_kv_heads(plan.architecture, plan.request, None if heads else (1,))}
    meaning = MEANINGS["dynamic"]
    rows: list[tuple[str, int, float]] = []
    if sizes and built:
        as_built = f"as built ({built[0] if len(built) == 1 else f'{built[0]} to {built[-1]}'})"
        rows = [
            *([(f"every head its own keys ({heads})", sizes[max(sizes)], 0.45)] if heads else []),
            (as_built, plan.held_bytes, 1),
            ("one shared head (1)", sizes[min(sizes)], 0.45),
        ]
    longest = max((size for _, size, _ in rows), default=1)
    unit, unit_name = next((size, name) for size, name in SIZES if longest >= size or size == 1)
    figure = blank(
        "What does sharing heads save?",
        height=52 + 62 * max(1, len(rows)) + 48,
        left=8,
        top=52,
        x={
            "title_text": f"cache, {unit_name}",
            "range": [0, longest / unit * 1.34],
            "nticks": 5,
            "showgrid": bool(rows),
        },
        y={"range": [max(1, len(rows)) - 0.5, -0.5], "showticklabels": False, "showgrid": False},
    )
    if not rows:
        figure.update_layout(xaxis={"visible": False}, yaxis={"visible": False}, height=130)
        note(
            figure,
            "This model does not keep keys and<br>values by head: nothing to share.",
            Spot(0, 1, (4, 0), stand="top"),
        )
        return figure
    figure.add_bar(
        x=[size / unit for _, size, _ in rows],
        y=[at + 0.12 for at in range(len(rows))],
        orientation="h",
        width=0.4,
        marker={"color": [faint(meaning.fill, strength) for *_, strength in rows], "line": {"width": 0}},
        customdata=[f"{words}: {format_count(size)} bytes" for words, size, _ in rows],
        hovertemplate="%{customdata}<extra></extra>",
        name="held",
    )
    for at, (words, size, _) in enumerate(rows):
        note(figure, f"<b>{words}</b>", Spot(0, at - 0.3, refs=("x", "y")), colour=meaning.text)
        note(figure, f"<b>{format_bytes(size)}</b>", Spot(size / unit, at + 0.12, (6, 0), refs=("x", "y")))
    return figure
