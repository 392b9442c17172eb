"""How a cache grows with length, users, layers or KV heads, on axes that are both logarithmic.

Sizes and crossings come from the planner; this file only draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from kvdemo.facts.plans import MeasuredPoint, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count
from kvdemo.palette import MEANINGS, Meaning, of_strategy
from kvdemo.planner.plan import by_kv_heads, by_layers, growth, growth_by_users, lengths_up_to
from kvdemo.reports.lines import banner, banner_px, line_label, strong_line
from kvdemo.reports.look import GREY, TEXT_PX, Spot, blank, clean, note

__all__ = ["GROWS_WITH", "growth_chart"]

PLOT_PX = 260
Points = list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows: words for the title, the axis, a crossing ("15,317 tokens per request") and the other sizes."""

    title: str
    axis: str
    unit: str
    points: Callable[[MemoryPlan, int], Points]
    held_fixed: Callable[[MemoryPlan], str]


def users_words(plan: MemoryPlan) -> str:
    batch = plan.request.batch_size
    return "cache size, 1 request" if batch == 1 else f"cache size, {format_count(batch)} requests at once"


def length_words(plan: MemoryPlan) -> str:
    return f"cache size, {format_count(plan.request.seq_len)} tokens each"


def both_words(plan: MemoryPlan) -> str:
    return f"cache size, {format_count(plan.request.batch_size)} × {format_count(plan.request.seq_len)} tokens"


GROWS_WITH = {
    "length": Axis(
        "length",
        "sequence length, tokens",
        "tokens per request",
        lambda plan, most: growth(plan.architecture, plan.request, lengths_up_to(most)),
        users_words,
    ),
    "users": Axis(
        "users",
        "requests at once",
        "requests at once",
        lambda plan, most: growth_by_users(plan.architecture, plan.request, lengths_from_one(most)),
        length_words,
    ),
    "layers": Axis(
        "layers",
        "layers of this model",
        "layers",
        lambda plan, _: by_layers(plan.architecture, plan.request),
        both_words,
    ),
    "heads": Axis(
        "KV heads",
        "KV heads per layer",
        "KV heads",
        lambda plan, _: by_kv_heads(plan.architecture, plan.request),
        both_words,
    ),
}


def growth_chart(
    plan: MemoryPlan,
    by: str = "length",
    *,
    measured: Sequence[MeasuredPoint] = (),
    others: Sequence[MemoryPlan] = (),
) -> go.Figure:
    """How does it grow with length, users, layers or KV heads? One line per strategy, weights and budget as lines.

    by         a key of GROWS_WITH
    measured   points of the loaded model (one request), drawn where the plan is for one request and grows by length
    others     up to three further models, one line each
    """
    axis = GROWS_WITH[by]
    most = longest(plan, others) if by == "length" else max(64, 4 * plan.request.batch_size)
    lines = lines_of(plan, axis, most, others)
    if not lines:
        figure = blank(f"How does it grow with {axis.title}?", height=140, x={"visible": False}, y={"visible": False})
        note(figure, "This model does not keep keys<br>and values by head.", Spot(0, 1, (-40, 0), stand="top"))
        return figure
    levels = levels_of(plan)
    xs = [x for line in lines for x, _ in line.points]
    left, right = math.log10(min(xs)), math.log10(max(max(xs), min(xs) + 1))
    found = crossings(plan, by, lines[0], levels, max(xs))
    # Measured caches were filled by one request.
    shown = [point for point in measured if by == "length" and plan.request.batch_size == 1 and point.held_bytes]
    low, high = y_range(lines, levels, PLOT_PX, (2 * len(found) + bool(shown)) * TEXT_PX + 12)
    labels = [(line.meaning, line.label) for line in lines] if others else []
    top = 66 + banner_px([text for _, text in labels])
    figure = blank(
        f"How does it grow with {axis.title}?",
        height=top + PLOT_PX + 48,
        left=62,
        right=32,
        top=top,
        x={"title_text": axis.axis, "type": "log", "range": [left, right]} | x_ticks(xs),
        y={"type": "log", "range": [low, high]} | y_ticks(low, high),
        y_title=axis.held_fixed(plan),
    )
    draw_levels(figure, levels, lines[0], (left, right), PLOT_PX / (high - low))
    for line in lines:
        line_xs, line_ys = zip(*line.points, strict=True)
        hover = f"{line.label}: %{{customdata}} at %{{x:,}}"
        strong_line(figure, line.meaning, line_xs, line_ys, hover, name=line.label, words=format_bytes)
    banner(figure, labels, left=62)
    if not labels:
        label_ends(figure, lines, levels, (high - low) / PLOT_PX)
    draw_crossings(figure, found, lines[0].meaning)
    limit = plan.architecture.context_limit
    if by == "length" and limit is not None and limit < max(xs):
        figure.add_vline(x=limit, line={"color": GREY, "width": 1, "dash": "dot"})
        figure.update_xaxes(title_text=f"length, tokens; limit {format_count(limit)} dotted")
    if shown:
        draw_measured(figure, shown, 8 + len(found) * (2 * TEXT_PX + 2))
    return figure


@dataclass(frozen=True, slots=True)
class GrowthLine:
    label: str
    meaning: Meaning
    points: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Level:
    """A size that does not grow: its name, how a crossing of it is said, and how that is marked."""

    words: str
    size: int
    meaning: Meaning
    crossing: str
    mark: str


def lines_of(plan: MemoryPlan, axis: Axis, most: int, others: Sequence[MemoryPlan]) -> list[GrowthLine]:
    """The growing cache (and the fixed one where it differs), 8-bit floats where they can be used, other models."""
    points = axis.points(plan, most)
    if not points:
        return []
    held, reserved = [(x, size) for x, size, _ in points], [(x, size) for x, _, size in points]
    apart = any(abs(more - less) > 0.03 * max(more, 1) for (_, less), (_, more) in zip(held, reserved, strict=True))
    name = clean(plan.architecture.name, max_chars=24) if others else ""
    lines = [GrowthLine(name or ("dynamic" if apart else "dynamic, static"), of_strategy("dynamic"), held)]
    if others:
        meanings = [of_strategy(key) for key in ("none", "static", "static-compiled")]
        for other, meaning in zip(others, meanings, strict=False):
            drawn = replace(of_strategy("dynamic"), dash=meaning.dash, marker=meaning.marker)
            other_points = [(x, size) for x, size, _ in axis.points(other, most)]
            lines.append(GrowthLine(clean(other.architecture.name, max_chars=24), drawn, other_points))
        return [line for line in lines if line.points]
    if apart:
        lines.append(GrowthLine("static", of_strategy("static"), reserved))
    if plan.request.cache_dtype != "float8" and all(layer.kind == "full" for layer in plan.architecture.layers):
        smaller = axis.points(replace(plan, request=replace(plan.request, cache_dtype="float8")), most)
        lines.append(GrowthLine("fp8", of_strategy("fp8"), [(x, size) for x, size, _ in smaller]))
    return lines


def longest(plan: MemoryPlan, others: Sequence[MemoryPlan]) -> int:
    """How far does the axis of lengths go? To the model's limit, the asked length, and a crossing that is not far off."""
    limit = max((one.architecture.context_limit or 0 for one in (plan, *others)), default=0)
    wanted = max(limit, plan.request.seq_len, 1024)
    near = [at for at in (plan.crossover_tokens, plan.budget_crossover_tokens) if at is not None and at <= 4 * wanted]
    return max(wanted, *(round(1.5 * at) for at in near), 0)


def lengths_from_one(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 ... up to `most`."""
    steps = {2**power for power in range(most.bit_length())} | {3 * 2**power for power in range(most.bit_length() - 1)}
    return sorted(step for step in steps if step <= most)


def levels_of(plan: MemoryPlan) -> list[Level]:
    """The sizes that do not grow: the weights, and what the budget leaves beside them."""
    levels = []
    weights = plan.weight_bytes
    if weights:
        words = f"weights {format_bytes(weights)}"
        levels.append(Level(words, weights, MEANINGS["weights"], "○ passes the weights at", "circle-open"))
    if plan.capacity is not None and plan.capacity.budget_bytes > (weights or 0):
        words = f"{plan.capacity.budget_bytes / 2**30:g} GiB" + (" less weights" if weights else "")
        beside = plan.capacity.budget_bytes - (weights or 0)
        levels.append(Level(words, beside, MEANINGS["budget"], "◇ fills the budget at", "diamond-open"))
    return levels


def y_range(lines: Sequence[GrowthLine], levels: Sequence[Level], plot_px: int, free_px: int) -> tuple[float, float]:
    """Decades that hold everything, with free_px under most of the lines for the crossings' words."""
    sizes = [size for line in lines for _, size in line.points if size] + [level.size for level in levels]
    low, high = math.log10(min(sizes) * 0.6), math.log10(max(sizes) * 3)
    quarter = [sorted(size for _, size in line.points if size)[len(line.points) // 8] for line in lines]
    share = free_px / plot_px
    return min(low, (math.log10(min(quarter)) - high * share) / (1 - share)), high


def draw_levels(
    figure: go.Figure, levels: Sequence[Level], line: GrowthLine, across: tuple[float, float], px_per_decade: float
) -> None:
    """Each size as a line over the whole chart, named on the side where the cache's line is not."""
    for at, level in enumerate(levels):
        figure.add_scatter(
            x=[10 ** across[0], 10 ** across[1]],
            y=[level.size, level.size],
            mode="lines",
            line={"color": level.meaning.fill, "width": 1.5, "dash": level.meaning.dash},
            name=level.words,
            hovertemplate=f"{level.words}: {format_bytes(level.size)}<extra></extra>",
        )
        reaching = next((x for x, size in line.points if size >= level.size), 10 ** across[1])
        to_left = (math.log10(reaching) - across[0]) / (across[1] - across[0]) > 0.55
        near = any(0 < math.log10(one.size / level.size) * px_per_decade < TEXT_PX + 4 for one in levels)
        spot = Spot(
            0 if to_left else 1,
            math.log10(level.size),
            (6 if to_left else -2, -2 if near else 2),
            anchor="left" if to_left else "right",
            stand="top" if near else "bottom",
            refs=("paper", "y"),
        )
        note(figure, level.words, spot, colour=level.meaning.text, name=f"level {at}")


def label_ends(figure: go.Figure, lines: Sequence[GrowthLine], levels: Sequence[Level], decades_per_px: float) -> None:
    """The largest line's name above its end and clear of the levels, every other name below its end."""
    floor = math.inf
    for row, line in enumerate(sorted(lines, key=lambda line: -line.points[-1][1])):
        end = math.log10(max(line.points[-1][1], 1)) / decades_per_px
        at = end + 8 if row == 0 else min(end - 24, floor)
        for level_px in sorted(math.log10(level.size) / decades_per_px for level in levels):
            if row == 0 and at - 4 < level_px < at + TEXT_PX:
                at = level_px + TEXT_PX + 4  # the level's own name stands on it
        floor = end - 24 if row == 0 else at - TEXT_PX
        spot = Spot(1, at * decades_per_px, anchor="right", stand="bottom" if row == 0 else "top", refs=("paper", "y"))
        line_label(figure, line.meaning, line.label, spot)


def crossings(
    plan: MemoryPlan, by: str, line: GrowthLine, levels: Sequence[Level], most: int
) -> list[tuple[Level, int, str]]:
    """Where the cache reaches the weights and fills the budget, as far as the chart goes, in words."""
    found = []
    for level in levels:
        if by == "length":
            at = plan.crossover_tokens if level.meaning is MEANINGS["weights"] else plan.budget_crossover_tokens
        else:
            at = first_reaching(by, line, level.size)
        if at is not None and line.points[0][0] <= at <= most:
            found.append((level, at, f"{level.crossing}<br>{format_count(at)} {GROWS_WITH[by].unit}"))
    return sorted(found, key=lambda item: item[1])


def draw_crossings(figure: go.Figure, found: Sequence[tuple[Level, int, str]], meaning: Meaning) -> None:
    """A mark on each crossing, and its words in the lower right corner, which a growing line leaves free."""
    for row, (level, at, text) in enumerate(found):
        figure.add_scatter(
            x=[at],
            y=[level.size],
            mode="markers",
            name="crossing",
            marker={"symbol": level.mark, "size": 13, "color": meaning.fill, "line": {"width": 2.5}},
            cliponaxis=False,
            hovertemplate=text.replace("<br>", " ") + "<extra></extra>",
        )
        spot = Spot(1, 0, (0, 8 + row * (2 * TEXT_PX + 2)), anchor="right", stand="bottom")
        head, rest = text.split("<br>")
        note(figure, f"<b>{head}</b><br>{rest}", spot, colour=meaning.text, name="crossing")


def draw_measured(figure: go.Figure, shown: Sequence[MeasuredPoint], above_px: int) -> None:
    """What caches of the loaded model really held, named in the lower right corner."""
    colour = MEANINGS["reused"]
    figure.add_scatter(
        x=[point.seq_len for point in shown],
        y=[point.held_bytes for point in shown],
        mode="markers",
        name="measured",
        marker={"symbol": "square-open", "size": 14, "color": colour.fill, "line": {"width": 2.5}},
        customdata=[f"measured, {clean(point.strategy)}: {format_bytes(point.held_bytes)}" for point in shown],
        hovertemplate="%{customdata} at %{x:,} tokens<extra></extra>",
    )
    note(figure, "<b>□ measured</b>", Spot(1, 0, (0, above_px), anchor="right", stand="bottom"), colour=colour.text)


def first_reaching(by: str, line: GrowthLine, size: int) -> int | None:
    """The smallest number of users, layers or heads at which the line reaches `size`."""
    if by == "users":
        one = line.points[0][1] // line.points[0][0]
        return -(-size // one) if one else None
    return next((x for x, reached in line.points if reached >= size), None)


def x_ticks(xs: Sequence[int]) -> dict[str, object]:
    """Powers of two, at most four, so that they fit a phone."""
    low, high = math.ceil(math.log2(max(min(xs), 1))), math.floor(math.log2(max(xs)))
    step = max(1, math.ceil((high - low) / 3))
    ticks = [2**power for power in range(high, low - 1, -step)]
    return {"tickvals": ticks, "ticktext": [format_count(tick) for tick in ticks]}


def y_ticks(low: float, high: float) -> dict[str, object]:
    """Sizes that have a round name, a factor of 4, 16 ... apart, at most six."""
    first, last = math.ceil(low / math.log10(2)), math.floor(high / math.log10(2))
    step = next(step for step in (2, 4, 5, 10, 20) if (last - first) / step <= 6 or step == 20)
    ticks = [2**power for power in range(-(-first // step) * step, last + 1, step)]
    return {
        "tickvals": ticks,
        "ticktext": [f"{format_bytes(tick).replace('.00', '').replace('.0', '')}" for tick in ticks],
    }
