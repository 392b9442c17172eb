"""How a cache grows with length, users, layers or KV heads, on axes that are both logarithmic.

Sizes and crossings come from the planner by way of growth_lines.py; this file only draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from kvdemo.facts.plans import MeasuredPoint, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count
from kvdemo.palette import MEANINGS, Meaning
from kvdemo.reports.growth_lines import GROWS_WITH, GrowthLine, Level, crossings, levels_of, lines_of, longest
from kvdemo.reports.lines import banner, banner_px, line_label, strong_line
from kvdemo.reports.look import GREY, TEXT_PX, Spot, blank, clean, note

__all__ = ["GROWS_WITH", "growth_chart"]

PLOT_PX = 260


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
            if row and at - TEXT_PX < level_px < at + 2:
                at = level_px - 4
        floor = end - 24 if row == 0 else at - TEXT_PX
        spot = Spot(1, at * decades_per_px, anchor="right", stand="bottom" if row == 0 else "top", refs=("paper", "y"))
        line_label(figure, line.meaning, line.label, spot)


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
