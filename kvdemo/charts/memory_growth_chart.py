"""How a cache grows with length, users, layers or KV heads, on axes that are both logarithmic.

Sizes and crossings come from the planner by way of growth_lines.py; this file only draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from kvdemo.charts.lines import Named, banner, banner_px, strong_line
from kvdemo.charts.look import GREY, Spot, blank, note
from kvdemo.charts.memory_growth_lines import (
    GROWS_WITH,
    Crossing,
    GrowthLine,
    Level,
    crossings,
    levels_near,
    levels_of,
    lines_of,
    longest,
)
from kvdemo.charts.plain_text import clean
from kvdemo.facts.plans import MeasuredPoint, MemoryPlan
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count
from kvdemo.palette import MEANINGS, Meaning, of_strategy

__all__ = ["GROWS_WITH", "growth_chart"]

PLOT_PX, LEFT_PX = 260, 62
DASHES = {"solid": "──", "longdash": "─ ─"}  # as the line of a size is drawn


def growth_chart(
    plan: MemoryPlan,
    by: str = "length",
    *,
    measured: Sequence[MeasuredPoint] = (),
    others: Sequence[MemoryPlan] = (),
    kept: str = "",
) -> go.Figure:
    """How does it grow with length, users, layers or KV heads? One line per strategy, weights and budget as lines.

    by         a key of GROWS_WITH
    measured   points of the loaded model (one request), drawn where the plan is for one request and grows by length
    others     up to three further models, one line each
    kept       what the cache is called where it is neither dynamic nor static
    """
    axis = GROWS_WITH[by]
    most = longest(plan, others) if by == "length" else max(64, 4 * plan.request.batch_size)
    lines = lines_of(plan, axis, most, others, kept)
    if not lines:
        figure = blank(f"How does it grow with {axis.title}?", height=140, x={"visible": False}, y={"visible": False})
        note(figure, "This model does not keep keys<br>and values by head.", Spot(0, 1, (-40, 0), stand="top"))
        return figure
    levels, far = levels_near(levels_of(plan, several=bool(others)), lines)
    xs = [x for line in lines for x, _ in line.points]
    left, right = math.log10(min(xs)), math.log10(max(max(xs), min(xs) + 1))
    found = crossings(plan, by, lines[0], levels, max(xs))
    # Measured caches were filled by one request.
    shown = [point for point in measured if by == "length" and plan.request.batch_size == 1 and point.held_bytes]
    low, high = y_range(lines, levels)
    sizes = {clean(one.architecture.name, max_chars=24): format_bytes(one.held_bytes) for one in (plan, *others)}
    labels = [
        (line.meaning, f"{line.label}: {sizes.get(line.label, NOT_AVAILABLE)} as asked" if others else line.label)
        for line in lines
    ]
    more = named_sizes(levels, found, far, measured=bool(shown))
    top = 66 + banner_px([*(text for _, text in labels), *(one.text for one in more)])
    figure = blank(
        f"How does it grow with {axis.title}?",
        height=top + PLOT_PX + 48,
        left=LEFT_PX,
        right=32,
        top=top,
        x={"title_text": axis.axis, "type": "log", "range": [left, right]} | x_ticks(xs),
        y={"type": "log", "range": [low, high]} | y_ticks(low, high),
        y_title=axis.held_fixed(plan),
    )
    limit = plan.architecture.context_limit if by == "length" else None
    if limit is not None and limit < max(xs):
        dotted = {"color": GREY, "width": 1, "dash": "dot"}
        figure.add_shape(type="line", x0=limit, x1=limit, y0=0, y1=1, yref="y domain", line=dotted)
        figure.update_xaxes(title_text=f"length, tokens; limit {format_count(limit)} dotted")
    draw_levels(figure, levels, (left, right))
    for line in lines:
        line_xs, line_ys = zip(*line.points, strict=True)
        hover = f"{line.label}: %{{customdata}} at %{{x:,}}"
        strong_line(figure, line.meaning, line_xs, line_ys, hover, name=line.label, words=format_bytes)
    banner(figure, labels, left=LEFT_PX, more=more)
    draw_crossings(figure, found, lines[0].meaning)
    draw_measured(figure, shown)
    return figure


def y_range(lines: Sequence[GrowthLine], levels: Sequence[Level]) -> tuple[float, float]:
    """Decades that hold everything, with a little room above and below."""
    sizes = [size for line in lines for _, size in line.points if size] + [level.size for level in levels]
    return math.log10(min(sizes) * 0.6), math.log10(max(sizes) * 1.6)


def named_sizes(
    levels: Sequence[Level], found: Sequence[Crossing], far: Sequence[Level], *, measured: bool
) -> list[Named]:
    """What stands in the banner below the lines' names: each fixed size, where the cache reaches it, what is far off."""
    rows = [
        Named(f"{DASHES[level.meaning.dash]} {level.words}", level.meaning.text, f"level {at}")
        for at, level in enumerate(levels)
    ]
    rows += [
        Named(f"<b>{head}</b><br>{rest}", of_strategy("dynamic").text, "crossing")
        for _, _, text in found
        for head, rest in [text.split("<br>")]
    ]
    rows += [Named(f"{level.words}: far above", GREY, "far") for level in far]
    return [*rows, *([Named("<b>□ measured</b>", MEANINGS["reused"].text, "note")] if measured else [])]


def draw_levels(figure: go.Figure, levels: Sequence[Level], across: tuple[float, float]) -> None:
    """Each size as a line over the whole chart."""
    for level in levels:
        figure.add_scatter(
            x=[10 ** across[0], 10 ** across[1]],
            y=[level.size, level.size],
            mode="lines",
            line={"color": level.meaning.fill, "width": 1.5, "dash": level.meaning.dash},
            name=level.words,
            hovertemplate=f"{level.words}: {format_bytes(level.size)}<extra></extra>",
        )


def draw_crossings(figure: go.Figure, found: Sequence[Crossing], meaning: Meaning) -> None:
    """A mark on each crossing; its words stand in the banner."""
    for level, at, text in found:
        figure.add_scatter(
            x=[at],
            y=[level.size],
            mode="markers",
            name="crossing",
            marker={"symbol": level.mark, "size": 13, "color": meaning.fill, "line": {"width": 2.5}},
            cliponaxis=False,
            hovertemplate=text.replace("<br>", " ") + "<extra></extra>",
        )


def draw_measured(figure: go.Figure, shown: Sequence[MeasuredPoint]) -> None:
    """What caches of the loaded model really held."""
    if not shown:
        return
    figure.add_scatter(
        x=[point.seq_len for point in shown],
        y=[point.held_bytes for point in shown],
        mode="markers",
        name="measured",
        marker={"symbol": "square-open", "size": 14, "color": MEANINGS["reused"].fill, "line": {"width": 2.5}},
        customdata=[f"measured, {clean(point.strategy)}: {format_bytes(point.held_bytes)}" for point in shown],
        hovertemplate="%{customdata} at %{x:,} tokens<extra></extra>",
    )


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
