"""The marks of a static chart: lines, markers and rules as SVG paths, colours as attributes that style rules override."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from kvdemo.charts.look import GREY

__all__ = ["Box", "clipped", "holds", "line_svg", "markers_svg", "paint", "rule_svg"]

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, px."""

DASHES = {"dash": "7 5", "dot": "2 4", "longdash": "12 6", "dashdot": "8 4 2 4", "longdashdot": "12 4 2 4"}
STROKED = ("x", "cross")  # bare strokes: they have no inside to fill
# Around the place of the point, by half the marker's size.
SHAPES: dict[str, Callable[[float], str]] = {
    "circle": lambda r: f"m{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z",
    "square": lambda r: f"m{-r:g} {-r:g}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z",
    "diamond": lambda r: f"m0 {-1.3 * r:g}l{1.3 * r:g} {1.3 * r:g}l{-1.3 * r:g} {1.3 * r:g}l{-1.3 * r:g} {-1.3 * r:g}z",
    "triangle-up": lambda r: f"m0 {-1.2 * r:g}l{1.2 * r:g} {2 * r:g}h{-2.4 * r:g}z",
    "cross": lambda r: f"m{-r:g} 0h{2 * r:g}m{-r:g} {-r:g}v{2 * r:g}",
    "x": lambda r: f"m{-r:g} {-r:g}l{2 * r:g} {2 * r:g}m0 {-2 * r:g}l{-2 * r:g} {2 * r:g}",
}


def holds(box: Box, point: Point) -> bool:
    left, top, right, bottom = box
    return left <= point[0] <= right and top <= point[1] <= bottom


def clipped(points: Sequence[Point | None], box: Box) -> list[Point | None]:
    """The parts of a line inside the box, parted by None. Not by a clip path: it would be looked up by an address."""
    parts: list[Point | None] = []
    for one, other in pairwise(points):
        inside = None if one is None or other is None else _inside(one, other, box)
        if inside is None:
            parts.append(None)
            continue
        if not parts or parts[-1] != inside[0]:
            parts += [None, inside[0]]
        parts.append(inside[1])
    return parts


def _inside(one: Point, other: Point, box: Box) -> tuple[Point, Point] | None:
    """The part of a straight line inside the box, None where it passes by. Source: Liang and Barsky, 1984."""
    across, up = other[0] - one[0], other[1] - one[1]
    left, top, right, bottom = box
    first, last = 0.0, 1.0
    for length, room in (
        (-across, one[0] - left),
        (across, right - one[0]),
        (-up, one[1] - top),
        (up, bottom - one[1]),
    ):
        if length == 0:
            if room < 0:
                return None
        elif length < 0:
            first = max(first, room / length)
        else:
            last = min(last, room / length)
    if first > last:
        return None
    return (
        one if first == 0 else (one[0] + first * across, one[1] + first * up),
        other if last == 1 else (one[0] + last * across, one[1] + last * up),
    )


def line_svg(line: Any, points: Sequence[Point | None]) -> str:
    path, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        path.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
        pen = "L"
    dash = f' stroke-dasharray="{DASHES[line.dash]}"' if line.dash in DASHES else ""
    return f'<path d="{"".join(path)}" fill="none" {paint("stroke", line.color)} stroke-width="{line.width or 2:g}"{dash}/>'


def markers_svg(marker: Any, points: Sequence[Point]) -> str:
    """All markers of a trace as one path; open ones are drawn as outlines."""
    size, symbol = float(marker.size) / 2, str(marker.symbol or "circle")
    shape = SHAPES[symbol.removesuffix("-open")](size)
    path = "".join(f"M{at:.1f} {up:.1f}{shape}" for at, up in points)
    if symbol.endswith("-open") or symbol in STROKED:
        width = 0.7 * size if symbol in STROKED else marker.line.width or 1
        return f'<path d="{path}" fill="none" {paint("stroke", marker.color)} stroke-width="{width:g}"/>'
    return f'<path d="{path}" {paint("fill", marker.color)}/>'


def rule_svg(x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{GREY}" stroke-opacity="0.2"/>'


def paint(part: str, colour: str) -> str:
    """A fill or a stroke as attributes that style rules may override; "rgba(...)" as colour and opacity."""
    found = re.fullmatch(r"rgba\((\d+), (\d+), (\d+), ([\d.]+)\)", colour)
    if found is None:
        return f'{part}="{colour}"'
    red, green, blue, opacity = found.groups()
    return f'{part}="#{int(red):02X}{int(green):02X}{int(blue):02X}" {part}-opacity="{opacity}"'
