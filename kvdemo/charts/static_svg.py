"""Our own figures as plain SVG: for a report of one small file that needs no script, opens offline and prints.

It draws what our charts use and nothing more: lines, markers, horizontal bars, cells, upright and level rules, text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from kvdemo.charts.look import FONT_PX, GREY, TEXT_PX
from kvdemo.charts.svg_marks import Box, clipped, holds, line_svg, markers_svg, paint, rule_svg

__all__ = ["figure_svg"]


@dataclass(frozen=True, slots=True)
class Scale:
    """A value's place in px between two ends, linear or logarithmic."""

    low: float
    high: float
    start_px: float
    end_px: float
    log: bool

    def px(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return self.place(at)

    def place(self, at: float) -> float:
        """Of a place as plotly's ranges and annotations give it: the logarithm on a logarithmic axis."""
        return self.start_px + (at - self.low) / ((self.high - self.low) or 1) * (self.end_px - self.start_px)


def figure_svg(figure: go.Figure, width: int) -> str:
    """The chart without its title, `width` px wide, as an element that may stand in an HTML page."""
    layout = figure.layout
    margin, height = layout.margin, float(layout.height)
    box = (float(margin.l), float(margin.t), width - float(margin.r), height - float(margin.b))
    numbers = sorted(name.removeprefix("xaxis") for name in layout.to_plotly_json() if name.startswith("xaxis"))
    parts = [axes(figure, number, box) for number in numbers]
    parts += [rule(shape, figure, box) for shape in layout.shapes]
    parts += [trace_svg(trace, figure, box) for trace in figure.data]
    parts += [text_svg(note, figure, box) for note in layout.annotations]
    crop = 30  # the room of the title, which stands above the chart as a heading
    question = str(layout.meta["question"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {crop} {width} {height - crop:g}" role="img" '
        f'aria-label="{question}" font-size="{FONT_PX}" fill="{GREY}">{"".join(parts)}</svg>'
    )


def scales(figure: go.Figure, x_name: str, y_name: str, box: Box) -> tuple[Scale, Scale]:
    """The scales of the axes "x2" and "y2" (or "x" and "y")."""
    x_axis = figure.layout[f"xaxis{x_name[1:]}"]
    y_axis = figure.layout[f"yaxis{y_name[1:]}"]
    left, top, right, bottom = box
    x_low, x_high = domain(x_axis)
    y_low, y_high = domain(y_axis)
    wide, tall = right - left, bottom - top
    x_range, y_range = extent(figure, x_axis, x_name, "x"), extent(figure, y_axis, y_name, "y")
    return (
        Scale(*x_range, left + x_low * wide, left + x_high * wide, x_axis.type == "log"),
        Scale(*y_range, bottom - y_low * tall, bottom - y_high * tall, y_axis.type == "log"),
    )


def plot_of(x: Scale, y: Scale) -> Box:
    """The place that these two scales span."""
    (left, right), (top, bottom) = sorted((x.start_px, x.end_px)), sorted((y.start_px, y.end_px))
    return left, top, right, bottom


def domain(axis: Any) -> tuple[float, float]:
    return (0.0, 1.0) if axis.domain is None else (float(axis.domain[0]), float(axis.domain[1]))


def extent(figure: go.Figure, axis: Any, name: str, which: str) -> tuple[float, float]:
    """The axis' own range; that of the cells on it where it has none. ValueError where it has neither."""
    if axis.range is not None:
        return float(axis.range[0]), float(axis.range[1])
    drawn = [trace for trace in figure.data if (trace[f"{which}axis"] or which) == name]
    cells = [trace for trace in drawn if trace.type == "heatmap"]
    if drawn and not cells:  # a browser would work one out; here what is drawn would lie anywhere
        raise ValueError(f"the axis {name} of {figure.layout.title.text!r} has no range")
    values = [float(value) for trace in cells for value in trace[which]]
    step = values[1] - values[0] if len(values) > 1 else 1.0
    low, high = min(values, default=0.0) - step / 2, max(values, default=1.0) + step / 2
    return (high, low) if axis.autorange == "reversed" else (low, high)


def axes(figure: go.Figure, number: str, box: Box) -> str:
    """Rules, ticks and titles of a pair of axes."""
    x_axis, y_axis = figure.layout[f"xaxis{number}"], figure.layout[f"yaxis{number}"]
    x, y = scales(figure, f"x{number}", f"y{number}", box)
    parts = []
    bottom, left = max(y.start_px, y.end_px), min(x.start_px, x.end_px)
    if x_axis.visible is not False:
        for value, words in ticks(x_axis, x, 80):
            at = x.px(value)
            if x_axis.showgrid:
                parts.append(rule_svg(at, y.start_px, at, y.end_px))
            if x_axis.showticklabels is not False:
                parts.append(f'<text x="{at:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{words}</text>')
        title_px = bottom + (18 if x_axis.showticklabels is False else 38)
        middle = (x.start_px + x.end_px) / 2
        parts.append(f'<text x="{middle:.1f}" y="{title_px:.1f}" text-anchor="middle">{x_axis.title.text or ""}</text>')
    if y_axis.visible is not False:
        for value, words in ticks(y_axis, y, 50):
            at = y.px(value)
            if y_axis.showgrid:
                parts.append(rule_svg(x.start_px, at, x.end_px, at))
            if y_axis.showticklabels is not False:
                parts.append(f'<text x="{left - 5:.1f}" y="{at + 5:.1f}" text-anchor="end">{words}</text>')
        middle = (y.start_px + y.end_px) / 2
        turned = f'transform="rotate(-90 {left - 8:.1f} {middle:.1f})" text-anchor="middle"'
        parts.append(f'<text x="{left - 8:.1f}" y="{middle:.1f}" {turned}>{y_axis.title.text or ""}</text>')
    return "".join(parts)


def ticks(axis: Any, scale: Scale, apart_px: float) -> list[tuple[float, str]]:
    """The axis' own ticks, else round values some px apart."""
    if axis.tickvals is not None:
        values = list(zip((float(value) for value in axis.tickvals), axis.ticktext, strict=True))
        ends = sorted((scale.low, scale.high))
        return [
            (value, words)
            for value, words in values
            if ends[0] <= (math.log10(value) if scale.log else value) <= ends[1]
        ]
    low, high = sorted((scale.low, scale.high))
    count = min(axis.nticks or 99, max(2, int(abs(scale.end_px - scale.start_px) / apart_px) + 1))
    step = next(s for s in steps((high - low) / count) if (high - low) / s <= count)
    first = math.ceil(low / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [(at * step, f"{at * step:,.{digits}f}") for at in range(first, math.floor(high / step + 1e-9) + 1)]


def steps(least: float) -> list[float]:
    power = math.floor(math.log10(least)) if least > 0 else 0
    return [factor * 10.0 ** (power + more) for more in (0, 1) for factor in (1, 2, 5)] + [10.0 ** (power + 2)]


def trace_svg(trace: Any, figure: go.Figure, box: Box) -> str:
    x, y = scales(figure, trace.xaxis or "x", trace.yaxis or "y", box)
    opacity = f' opacity="{trace.opacity:g}"' if trace.opacity is not None else ""
    if trace.type == "bar":
        return f"<g{opacity}>{bars_svg(trace, figure, x, y)}</g>"
    if trace.type == "heatmap":
        return cells_svg(trace, x, y)
    points = [
        None if at is None or up is None else (x.px(at), y.px(up)) for at, up in zip(trace.x, trace.y, strict=True)
    ]
    plot = plot_of(x, y)
    if trace.mode == "lines":
        return f"<g{opacity}>{line_svg(trace.line, clipped(points, plot))}</g>"
    whole = trace.cliponaxis is False
    shown = [point for point in points if point is not None and (whole or holds(plot, point))]
    return f"<g{opacity}>{markers_svg(trace.marker, shown)}</g>"


def bars_svg(trace: Any, figure: go.Figure, x: Scale, y: Scale) -> str:
    """Horizontal bars; stacked ones begin where the traces before them end."""
    parts = []
    colours = (
        trace.marker.color if isinstance(trace.marker.color, tuple | list) else [trace.marker.color] * len(trace.x)
    )
    for at, (length, row) in enumerate(zip(trace.x, trace.y, strict=True)):
        if trace.base is not None:
            start = float(trace.base[at])
        else:
            before = figure.data[: [one is trace for one in figure.data].index(True)]
            start = sum(float(one.x[at]) for one in before if one.type == "bar" and figure.layout.barmode == "stack")
        left, right = x.px(start), x.px(start + float(length))
        top, bottom = sorted((y.px(row - trace.width / 2), y.px(row + trace.width / 2)))
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.5, right - left):.1f}" height="{bottom - top:.1f}" '
            f"{paint('fill', colours[at])}/>"
        )
    return "".join(parts)


def cells_svg(trace: Any, x: Scale, y: Scale) -> str:
    """The cells of a heatmap as one path per value."""
    wide = abs(x.px(trace.x[1]) - x.px(trace.x[0])) if len(trace.x) > 1 else abs(x.end_px - x.start_px)
    tall = abs(y.px(trace.y[1]) - y.px(trace.y[0])) if len(trace.y) > 1 else abs(y.end_px - y.start_px)
    paths: dict[int, list[str]] = {}
    for row, values in zip(trace.y, trace.z, strict=True):
        for column, value in zip(trace.x, values, strict=True):
            if value is not None:
                left, top = x.px(column) - wide / 2, y.px(row) - tall / 2
                cell = f"M{left:.1f} {top:.1f}h{wide - 1:.1f}v{tall - 1:.1f}h{1 - wide:.1f}z"
                paths.setdefault(int(value), []).append(cell)
    colours = {0: trace.colorscale[0][1], 1: trace.colorscale[-1][1]}
    return "".join(f'<path d="{"".join(cells)}" {paint("fill", colours[value])}/>' for value, cells in paths.items())


def rule(shape: Any, figure: go.Figure, box: Box) -> str:
    """An upright or level line over the whole chart."""
    x, y = scales(figure, "x", "y", box)
    if shape.yref.endswith("domain"):
        at = x.px(float(shape.x0))
        ends = [(at, y.start_px), (at, y.end_px)]
    else:
        at = y.px(float(shape.y0))
        ends = [(x.start_px, at), (x.end_px, at)]
    return line_svg(shape.line, clipped(ends, plot_of(x, y)))


def text_svg(note: Any, figure: go.Figure, box: Box) -> str:
    """An annotation; its text is escaped already and has no marks but <b> and <br>."""
    left, top, right, bottom = box
    x, y = scales(figure, "x", "y", box)
    at = x.place(float(note.x)) if note.xref == "x" else left + float(note.x) * (right - left)
    up = y.place(float(note.y)) if note.yref == "y" else bottom - float(note.y) * (bottom - top)
    at, up = at + (note.xshift or 0), up - (note.yshift or 0)
    lines = str(note.text).split("<br>")
    first = {"top": up + 14, "bottom": up - TEXT_PX * (len(lines) - 1) - 4}.get(
        note.yanchor, up + 5 - TEXT_PX * (len(lines) - 1) / 2
    )
    anchor = {"left": "start", "right": "end"}.get(note.xanchor, "middle")
    spans, bold = [], False
    for row, line in enumerate(lines):
        bold = bold or line.startswith("<b>")
        words = re.sub("</?b>", "", line)
        weight = ' font-weight="700"' if bold else ""
        spans.append(f'<tspan x="{at:.1f}" y="{first + row * TEXT_PX:.1f}"{weight}>{words}</tspan>')
        bold = bold and "</b>" not in line
    return f'<text text-anchor="{anchor}" {paint("fill", note.font.color)}>{"".join(spans)}</text>'
