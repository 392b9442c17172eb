"""The marks of a static chart by their attributes: strokes where a marker has no inside, and nothing beyond its plot."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.charts.look import blank
from kvdemo.charts.static_svg import figure_svg
from kvdemo.charts.svg_marks import clipped, holds, markers_svg
from kvdemo.palette import MEANINGS

BOX = (0.0, 0.0, 100.0, 50.0)
SYMBOLS = sorted({meaning.marker for meaning in MEANINGS.values()} | {"circle-open", "diamond-open"})
COLOUR = "#CC79A7"


def path_of(symbol: str) -> dict[str, str]:
    marker = go.scatter.Marker(symbol=symbol, size=8, color=COLOUR, line={"width": 2})
    return ElementTree.fromstring(markers_svg(marker, [(10, 10), (20, 20)])).attrib


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_marker_of_the_palette_has_paint_where_it_has_a_shape(symbol: str) -> None:
    attributes = path_of(symbol)
    if symbol in ("x", "cross") or symbol.endswith("-open"):
        assert (attributes["fill"], attributes["stroke"]) == ("none", COLOUR)
        assert float(attributes["stroke-width"]) >= 2
    else:
        assert attributes["fill"] == COLOUR
        assert attributes["d"].count("z") == 2  # closed shapes have an inside to fill


def test_a_line_is_cut_where_it_leaves_and_where_it_comes_back() -> None:
    inside = clipped([(-10, 25), (50, 25), (50, 100), None, (90, 10), (110, 30)], BOX)
    assert [point for point in inside if point is not None] == [(0, 25), (50, 25), (50, 50), (90, 10), (100, 20)]
    assert inside[inside.index((90, 10)) - 1] is None


def test_a_line_that_passes_by_is_not_drawn() -> None:
    assert [point for point in clipped([(-10, 25), (-10, 30), (-5, 60), (60, 60)], BOX) if point] == []


def test_a_line_inside_stays_as_it_is() -> None:
    line = [(0.0, 0.0), (100.0, 50.0), (40.0, 0.0)]
    assert clipped(line, BOX) == [None, *line]


places = st.floats(-300, 300)


@given(st.lists(st.one_of(st.none(), st.tuples(places, places)), max_size=12))
def test_nothing_of_any_line_is_outside(line: list[tuple[float, float] | None]) -> None:
    left, top, right, bottom = BOX
    around = (left - 1e-6, top - 1e-6, right + 1e-6, bottom + 1e-6)
    assert all(point is None or holds(around, point) for point in clipped(line, BOX))


def paths_of(figure: go.Figure, part: str, colour: str) -> list[str]:
    """The paths that are painted in this colour."""
    drawn = ElementTree.fromstring(figure_svg(figure, 311))
    return [path.attrib["d"] for path in drawn.iter("{http://www.w3.org/2000/svg}path") if path.get(part) == colour]


def test_lines_and_rules_end_where_the_axes_do() -> None:
    figure = blank("Where?", height=200, x={"range": [0, 10]}, y={"range": [0, 10]})
    figure.add_scatter(x=[0, 15], y=[15, 0], mode="lines", line={"color": COLOUR, "dash": "longdash"})
    figure.add_vline(x=12, line={"color": "#009E73", "width": 1})
    # the plot lies between 48 and 297 px across, and between 66 and 152 px down
    assert paths_of(figure, "stroke", COLOUR) == ["M172.5 66.0L297.0 109.0"]
    assert paths_of(figure, "stroke", "#009E73") == [""]


@pytest.mark.parametrize(("kept_whole", "drawn"), [(None, 1), (False, 2)])
def test_a_marker_beyond_the_axes_is_left_out_unless_it_may_stand_there(kept_whole: bool | None, drawn: int) -> None:
    figure = blank("Where?", height=200, x={"range": [0, 10]}, y={"range": [0, 10]})
    marker = {"color": COLOUR, "size": 8, "symbol": "square"}
    figure.add_scatter(x=[5, 11], y=[5, 5], mode="markers", marker=marker, cliponaxis=kept_whole)
    (path,) = paths_of(figure, "fill", COLOUR)
    assert path.count("M") == drawn
