"""What will your user notice? A complete request in its parts: what is spent elsewhere, prefill, decode, and the target."""

from __future__ import annotations

import plotly.graph_objects as go

from kvdemo.charts.arms import meaning_of
from kvdemo.charts.lines import line_label
from kvdemo.charts.look import GREY, Spot, blank, note
from kvdemo.charts.plain_text import clean
from kvdemo.experiments.complete_request import CompleteRequest
from kvdemo.facts.units import format_seconds
from kvdemo.palette import MEANINGS

__all__ = ["request_chart"]


def request_chart(request: CompleteRequest, target_s: float | None = None) -> go.Figure:
    """Seconds of a complete request without a cache and with one, stacked; the target as a dashed line."""
    found = [times for times in (request.without, request.cached) if times is not None]
    rows = [len(found) - 1 - at for at in range(len(found))]
    longest_s = max((times.request_s for times in found), default=1.0)
    figure = blank(
        "What will your user notice?",
        height=96 + 64 * max(1, len(found)) + 48,
        left=8,
        top=96,
        x={
            "title_text": "time of the complete request, s",
            "range": [0, max(longest_s * 1.24, (target_s or 0.0) * 1.1) or 1.0],
            "showgrid": True,
            "nticks": 6,
        },
        y={"range": [-0.5, max(1, len(found)) - 0.5], "showticklabels": False, "showgrid": False},
    )
    figure.update_layout(barmode="stack", bargap=0.5)
    decode = [meaning_of(times.strategy).fill for times in found]
    apart = any(times.prefill_s is not None for times in found)
    rest = "decode" if apart else "generation"
    for name, values, colours in (
        ("elsewhere", [times.other_s for times in found], [GREY] * len(found)),
        ("prefill", [times.prefill_s or 0.0 for times in found], [MEANINGS["prefill"].fill] * len(found)),
        (rest, [times.decode_s for times in found], decode),
    ):
        figure.add_bar(
            y=[row - 0.14 for row in rows],
            x=values,
            orientation="h",
            width=0.42,
            name=name,
            marker={"color": colours, "line": {"width": 0}},
            customdata=[f"{name} {format_seconds(value)}" for value in values],
            hovertemplate="%{customdata}<extra></extra>",
        )
    note(figure, "<b>elsewhere</b>", Spot(0, 1, (0, 8), stand="bottom"))
    if apart:
        note(figure, "<b>prefill</b>", Spot(0, 1, (88, 8), stand="bottom"), colour=MEANINGS["prefill"].text)
    note(figure, f"<b>{rest}</b>", Spot(0, 1, (146 if apart else 88, 8), stand="bottom"))
    for times, row in zip(found, rows, strict=True):
        label = clean(times.label, max_chars=32)
        line_label(figure, meaning_of(times.strategy), label, Spot(0, row + 0.26, refs=("x", "y")))
        whole = f"<b>{format_seconds(times.request_s)}</b>"
        note(figure, whole, Spot(times.request_s, row - 0.14, (6, 0), refs=("x", "y")), name="whole")
    if target_s is not None:
        line = {"color": MEANINGS["budget"].fill, "width": 2, "dash": "longdash"}
        figure.add_scatter(
            x=[target_s] * 2,
            y=[-0.5, max(1, len(found)) - 0.5],
            mode="lines",
            line=line,
            name="target",
            hoverinfo="skip",
        )
        words = f"<b>- - your target: {format_seconds(target_s)}</b>"
        note(figure, words, Spot(0, 1, (0, 28), stand="bottom"), colour=MEANINGS["budget"].text, name="target")
    return figure
