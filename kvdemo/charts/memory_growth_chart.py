"""How a cache grows with length, users, layers or KV heads, on axes that are both logarithmic.

Sizes and crossings come from the planner by way of growth_lines.py; this file only draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from kvdemo.charts.lines import banner, banner_px, line_label, strong_line
from kvdemo.charts.look import GREY, TEXT_PX, Spot, blank, note
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
from kvdemo.charts.placing import Label, Sheet, text_px
from kvdemo.charts.plain_text import clean
from kvdemo.facts.plans import MeasuredPoint, MemoryPlan
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count
from kvdemo.palette import MEANINGS, Meaning, of_strategy

__all__ = ["GROWS_WITH", "growth_chart"]

PLOT_PX = 260
NAME_PX = 32  # above the largest size

Pixels = Callable[[float], float]
"""Bytes -> pixels above the plot's lower edge."""


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
    corner = corner_words(found, far, bool(shown))
    low, high = y_range(lines, levels, PLOT_PX, TEXT_PX * sum(len(words) for words, _ in corner) + 12)
    sizes = {clean(one.architecture.name, max_chars=24): format_bytes(one.held_bytes) for one in (plan, *others)}
    labels = (
        [(line.meaning, f"{line.label}: {sizes.get(line.label, NOT_AVAILABLE)} as asked") for line in lines]
        if others
        else []
    )
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
    sheet = Sheet(PLOT_PX, [])

    def pixels(size: float) -> float:
        return (math.log10(max(size, 1)) - low) / (high - low) * PLOT_PX

    sheet.lines += [[(0, pixels(level.size)), (1, pixels(level.size))] for level in levels]
    limit = plan.architecture.context_limit if by == "length" else None
    if limit is not None and limit < max(xs):
        place = (math.log10(limit) - left) / (right - left)
        free = sum(TEXT_PX * len(words) + 2 for words, _ in corner) + 8
        sheet.lines.append([(place, free), (place, PLOT_PX)])
        figure.add_shape(
            type="line",
            x0=limit,
            x1=limit,
            y0=free / PLOT_PX,
            y1=1,
            yref="paper",
            line={"color": GREY, "width": 1, "dash": "dot"},
        )
        figure.update_xaxes(title_text=f"length, tokens; limit {format_count(limit)} dotted")
    sheet.lines += [
        [((math.log10(x) - left) / (right - left), pixels(size)) for x, size in line.points] for line in lines
    ]
    draw_corner(figure, sheet, corner)
    for level, at, _ in found:
        mark = Label((math.log10(at) - left) / (right - left), pixels(level.size) - 9, 18, 18, shift_px=-9)
        sheet.labels.append(mark)
    draw_levels(figure, levels, (left, right), sheet, pixels)
    if not others:
        label_lines(figure, lines, sheet, pixels)
    for line in lines:
        line_xs, line_ys = zip(*line.points, strict=True)
        hover = f"{line.label}: %{{customdata}} at %{{x:,}}"
        strong_line(figure, line.meaning, line_xs, line_ys, hover, name=line.label, words=format_bytes)
    banner(figure, labels, left=62)
    draw_crossings(figure, found, lines[0].meaning)
    draw_measured(figure, shown)
    return figure


def y_range(lines: Sequence[GrowthLine], levels: Sequence[Level], plot_px: int, free_px: int) -> tuple[float, float]:
    """Decades that hold everything, with room for a name on top and free_px under most of the lines for the corner."""
    sizes = [size for line in lines for _, size in line.points if size] + [level.size for level in levels]
    bottom, top = math.log10(min(sizes) * 0.6), math.log10(max(sizes))
    most = [sorted(size for _, size in line.points if size)[len(line.points) // 8] for line in lines]
    quarter = math.log10(min([*most, *(level.size for level in levels)]))
    above, below = NAME_PX / plot_px, free_px / plot_px
    low = min(bottom, (quarter * (1 - above) - top * below) / (1 - above - below))
    return low, (top - low * above) / (1 - above)


def draw_levels(
    figure: go.Figure, levels: Sequence[Level], across: tuple[float, float], sheet: Sheet, pixels: Pixels
) -> None:
    """Each size as a line over the whole chart, named on the side, above or below, where there is room."""
    for at, level in enumerate(levels):
        figure.add_scatter(
            x=[10 ** across[0], 10 ** across[1]],
            y=[level.size, level.size],
            mode="lines",
            line={"color": level.meaning.fill, "width": 1.5, "dash": level.meaning.dash},
            name=level.words,
            hovertemplate=f"{level.words}: {format_bytes(level.size)}<extra></extra>",
        )
        height, width = pixels(level.size), text_px(level.words)
        label = sheet.place(
            [
                Label(share, height + up, width, shift_px=shift, anchor=anchor)
                for share, shift, anchor in ((0, 6, "left"), (1, -2, "right"), (0.6, 0, "right"), (0.4, 0, "left"))
                for up in (3, -TEXT_PX - 3)
            ]
        )
        put(figure, level.words, label, colour=level.meaning.text, name=f"level {at}")


def label_lines(figure: go.Figure, lines: Sequence[GrowthLine], sheet: Sheet, pixels: Pixels) -> None:
    """Each line's name at its end, else along it: above the largest line, below the others, where no other line is near."""
    for row, line in enumerate(sorted(lines, key=lambda line: -line.points[-1][1])):
        width = text_px(f"o {line.label}")
        above = (8, 16, 28, 44, 60)
        below = tuple(-TEXT_PX - gap for gap in (8, 18, 30, 46, 64))
        places = [(1.0, line.points[-1][1])]
        places += [(share, line.points[round(share * (len(line.points) - 1))][1]) for share in (0.85, 0.7, 0.55, 0.4)]
        candidates = [
            Label(share, pixels(size) + up, width, anchor="right")
            for ups in ((above, below) if row == 0 else (below, above))
            for share, size in places
            for up in ups
        ]
        label = sheet.place(candidates)
        spot = Spot(label.share, 0, (label.shift_px, label.bottom), label.anchor, "bottom")
        line_label(figure, line.meaning, line.label, spot)


def corner_words(found: Sequence[Crossing], far: Sequence[Level], measured: bool) -> list[tuple[list[str], str]]:
    """What stands in the lower right corner, from below: (lines of text, name of the note) of each."""
    words = [([f"<b>{head}</b>", rest], "crossing") for _, _, text in found for head, rest in [text.split("<br>")]]
    words += [([f"{level.words}: far above"], "far") for level in far]
    return [*words, (["<b>□ measured</b>"], "measured")] if measured else words


def draw_corner(figure: go.Figure, sheet: Sheet, corner: Sequence[tuple[list[str], str]]) -> None:
    """The words in the corner that a growing line leaves free."""
    colours = {"crossing": of_strategy("dynamic").text, "measured": MEANINGS["reused"].text, "far": GREY}
    bottom = 8
    for words, name in corner:
        text = "<br>".join(words)
        label = Label(1, bottom, text_px(text), TEXT_PX * len(words), anchor="right")
        sheet.labels.append(label)
        put(figure, text, label, colour=colours[name], name=name if name != "measured" else "note")
        bottom += TEXT_PX * len(words) + 2


def put(figure: go.Figure, text: str, label: Label, *, colour: str, name: str) -> None:
    """A text where its label was placed."""
    spot = Spot(label.share, 0, (label.shift_px, label.bottom), label.anchor, "bottom")
    note(figure, text, spot, colour=colour, name=name)


def draw_crossings(figure: go.Figure, found: Sequence[Crossing], meaning: Meaning) -> None:
    """A mark on each crossing; its words stand in the corner."""
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
