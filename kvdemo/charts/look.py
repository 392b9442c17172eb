"""How every chart looks: the empty figure, text sizes, faint and strong lines, labels that do not collide.

Colours, dashes and markers come from the palette alone. Knows nothing about records or plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from kvdemo.charts.colours import faint
from kvdemo.palette import PAPER, Meaning

__all__ = [
    "FONT_PX",
    "GREY",
    "GRID",
    "TEXT_PX",
    "Spot",
    "blank",
    "glyph",
    "note",
    "thin",
]

FONT_PX = 14
TEXT_PX = 18  # height of one line of text as plotly sets it
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
GREY = PAPER["light"].faint_text
_GLYPHS = {
    "square": "■",
    "circle": "●",
    "triangle-up": "▲",
    "diamond": "◆",
    "x": "✖",
    "cross": "✚",
}
_BUTTONS = [
    *("zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d"),
    *("toImage", "hoverClosestCartesian", "hoverCompareCartesian", "toggleSpikelines"),
]


GRID = faint(GREY, 0.2)


def glyph(meaning: Meaning) -> str:
    """The marker of a line as a character, so that a label is tied to its line without colour."""
    return _GLYPHS[meaning.marker]


def thin(count: int, most: int) -> list[int]:
    """At most `most` indices of `count` points, first and last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(at * (count - 1) / (most - 1)) for at in range(most)})


def blank(
    question: str,
    *,
    height: int,
    x: Mapping[str, Any] | None = None,
    y: Mapping[str, Any] | None = None,
    y_title: str = "",
    left: int = 48,
    right: int = 14,
    top: int = 66,
    bottom: int = 48,
) -> go.Figure:
    """An empty chart whose title is the question it answers; sizes in px, the y title lies above its axis."""
    axis = {
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": False,
        "separatethousands": True,
        "tickfont": {"size": FONT_PX, "color": GREY},
        "gridcolor": GRID,
        "linecolor": GRID,
        "title": {"font": {"size": FONT_PX, "color": GREY}, "standoff": 6},
    }
    figure = go.Figure(
        layout={
            "template": go.layout.Template(),
            "height": height,
            "margin": {"l": left, "r": right, "t": top, "b": bottom, "pad": 0},
            "title": {
                "text": f"<b>{question}</b>",
                "x": 0,
                "y": 1,
                "xref": "container",
                "yref": "container",
                "xanchor": "left",
                "yanchor": "top",
                "pad": {"t": 12, "l": 4},
                "font": {"size": FONT_PX + 2, "color": GREY},
            },
            "meta": {"question": question},
            "font": {"family": FONT, "size": FONT_PX, "color": GREY},
            "paper_bgcolor": "rgba(0, 0, 0, 0)",
            "plot_bgcolor": "rgba(0, 0, 0, 0)",
            "showlegend": False,
            "dragmode": False,
            "hovermode": "closest",
            "hoverlabel": {"font": {"family": FONT, "size": FONT_PX}, "align": "left"},
            "modebar": {"remove": _BUTTONS, "bgcolor": "rgba(0, 0, 0, 0)"},
            "xaxis": axis,
            "yaxis": {**axis, "showgrid": True},
        }
    )
    figure.update_xaxes(**(x or {}))
    figure.update_yaxes(**(y or {}))
    if y_title:
        note(figure, y_title, Spot(0, 1, (4 - left, 8), stand="bottom"), name="y title")
    return figure


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for text: paper shares or, by `refs`, axis values, moved by px (right and up are positive)."""

    x: float
    y: float
    shift: tuple[float, float] = (0, 0)
    anchor: str = "left"
    stand: str = "middle"
    refs: tuple[str, str] = ("paper", "paper")


def note(figure: go.Figure, text: str, spot: Spot, *, colour: str = GREY, name: str = "note") -> None:
    """Text on the chart; `text` is escaped already."""
    figure.add_annotation(
        text=text,
        x=spot.x,
        y=spot.y,
        xref=spot.refs[0],
        yref=spot.refs[1],
        xshift=spot.shift[0],
        yshift=spot.shift[1],
        xanchor=spot.anchor,
        yanchor=spot.stand,
        align=spot.anchor,
        showarrow=False,
        borderpad=0,
        name=name,
        font={"size": FONT_PX, "color": colour},
    )
