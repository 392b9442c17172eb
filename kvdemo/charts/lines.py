"""The lines of an arm: every round faint, the median strong with dash and markers, its label in words and marker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from kvdemo.charts.look import TEXT_PX, Spot, glyph, note, thin
from kvdemo.palette import Meaning

__all__ = ["Named", "banner", "banner_px", "dots", "faint_lines", "line_label", "strong_line"]

STRONG_PX = 2.5
FAINT = 0.28
MOST_POINTS = 400
MOST_FAINT_POINTS = 150
MOST_DOTS = 900
MARKERS = 6  # on a strong line: enough to tell it from its neighbours without colour

Numbers = Sequence[float]


def faint_lines(figure: go.Figure, meaning: Meaning, rounds: Iterable[tuple[Numbers, Numbers]]) -> None:
    """All rounds of an arm as one trace, parted by gaps."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for round_xs, round_ys in rounds:
        at = thin(len(round_xs), MOST_FAINT_POINTS)
        xs += [*(round_xs[i] for i in at), None]
        ys += [*(round_ys[i] for i in at), None]
    line = {"color": meaning.fill, "width": 1}
    figure.add_scatter(x=xs, y=ys, mode="lines", line=line, opacity=FAINT, hoverinfo="skip", name="rounds")


def strong_line(
    figure: go.Figure,
    meaning: Meaning,
    xs: Numbers,
    ys: Numbers,
    hover: str,
    *,
    name: str,
    words: Callable[[float], str] | None = None,
) -> None:
    """The median of an arm (or its fit): solid or dashed as the palette says, with a few markers.

    `hover` is a template; where `words` is given, customdata is the y value in words.
    """
    at = thin(len(xs), MOST_POINTS)
    line = {"color": meaning.fill, "width": STRONG_PX, "dash": meaning.dash}
    hover = f"{hover}<extra></extra>"
    figure.add_scatter(**points(xs, ys, at, words), mode="lines", line=line, name=name, hovertemplate=hover)
    at = thin(len(xs), MARKERS)
    marker = {"color": meaning.fill, "size": 8, "symbol": meaning.marker}
    figure.add_scatter(
        **points(xs, ys, at, words),
        mode="markers",
        marker=marker,
        cliponaxis=False,
        name=f"{name} markers",
        hovertemplate=hover,
    )


def points(
    xs: Numbers, ys: Numbers, at: Sequence[int], words: Callable[[float], str] | None = None
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"x": [xs[i] for i in at], "y": [ys[i] for i in at]}
    return found if words is None else {**found, "customdata": [words(ys[i]) for i in at]}


def dots(figure: go.Figure, meaning: Meaning, rounds: Sequence[tuple[Numbers, Numbers]]) -> None:
    """All rounds of an arm as faint points, thinned evenly."""
    xs = [x for round_xs, _ in rounds for x in round_xs]
    ys = [y for _, round_ys in rounds for y in round_ys]
    at = thin(len(xs), MOST_DOTS)
    marker = {"color": meaning.fill, "size": 4, "symbol": meaning.marker}
    figure.add_scatter(
        **points(xs, ys, at), mode="markers", marker=marker, opacity=FAINT, hoverinfo="skip", name="rounds"
    )


def line_label(figure: go.Figure, meaning: Meaning, text: str, spot: Spot) -> None:
    """A line's name in its text colour, with the character of its marker; `text` is escaped already."""
    head, _, rest = text.partition("<br>")
    words = f"<b>{glyph(meaning)} {head}</b>" + (f"<br>{rest}" if rest else "")
    note(figure, words, spot, colour=meaning.text, name="label")


@dataclass(frozen=True, slots=True)
class Named:
    """A text of the banner that has no line of its own: a size, a crossing. `text` is escaped already."""

    text: str
    colour: str
    name: str


def banner_px(texts: Sequence[str]) -> int:
    """Height of these labels stacked above the plot."""
    return sum(TEXT_PX * (1 + text.count("<br>")) + 2 for text in texts) + 12 if texts else 0


def banner(
    figure: go.Figure, labels: Sequence[tuple[Meaning, str]], *, left: int = 48, more: Sequence[Named] = ()
) -> None:
    """Labels stacked between title and plot, where the lines leave no room for them; top margin: 66 + banner_px."""
    rest = banner_px([*(text for _, text in labels), *(one.text for one in more)]) + 22
    for meaning, text in labels:
        line_label(figure, meaning, text, Spot(0, 1, (4 - left, rest), stand="top"))
        rest -= TEXT_PX * (1 + text.count("<br>")) + 2
    for one in more:
        note(figure, one.text, Spot(0, 1, (4 - left, rest), stand="top"), colour=one.colour, name=one.name)
        rest -= TEXT_PX * (1 + one.text.count("<br>")) + 2
