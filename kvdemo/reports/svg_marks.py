"""The marks of a static chart: lines, markers and rules as SVG paths, colours as attributes that style rules override."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from kvdemo.reports.look import GREY

__all__ = ["line_svg", "markers_svg", "paint", "rule_svg"]

DASHES = {"dash": "7 5", "dot": "2 4", "longdash": "12 6", "dashdot": "8 4 2 4", "longdashdot": "12 4 2 4"}
STROKED = ("x", "cross")
# Around the place of the point, by half the marker's size.
SHAPES: dict[str, Callable[[float], str]] = {
    "circle": lambda r: f"m{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z",
    "square": lambda r: f"m{-r:g} {-r:g}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z",
    "diamond": lambda r: f"m0 {-1.3 * r:g}l{1.3 * r:g} {1.3 * r:g}l{-1.3 * r:g} {1.3 * r:g}l{-1.3 * r:g} {-1.3 * r:g}z",
    "triangle-up": lambda r: f"m0 {-1.2 * r:g}l{1.2 * r:g} {2 * r:g}h{-2.4 * r:g}z",
    "cross": lambda r: f"m{-r:g} 0h{2 * r:g}m{-r:g} {-r:g}v{2 * r:g}",
    "x": lambda r: f"m{-r:g} {-r:g}l{2 * r:g} {2 * r:g}m0 {-2 * r:g}l{-2 * r:g} {2 * r:g}",
}


def line_svg(line: Any, points: Sequence[tuple[float, float] | None]) -> str:
    path, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        path.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
        pen = "L"
    dash = f' stroke-dasharray="{DASHES[line.dash]}"' if line.dash in DASHES else ""
    return f'<path d="{"".join(path)}" fill="none" {paint("stroke", line.color)} stroke-width="{line.width or 2:g}"{dash}/>'


def markers_svg(marker: Any, points: Sequence[tuple[float, float]]) -> str:
    """All markers of a trace as one path; open ones are drawn as outlines."""
    size, symbol = float(marker.size) / 2, str(marker.symbol or "circle")
    shape = SHAPES[symbol.removesuffix("-open")](size)
    path = "".join(f"M{at:.1f} {up:.1f}{shape}" for at, up in points)
    if symbol.endswith("-open"):
        return (
            f'<path d="{path}" fill="none" {paint("stroke", marker.color)} stroke-width="{marker.line.width or 1:g}"/>'
        )
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
