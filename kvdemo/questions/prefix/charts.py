"""The chart of a shared prefix: when the first token of each question came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import plotly.graph_objects as go

from kvdemo.charts.lines import banner, banner_px, strong_line
from kvdemo.charts.look import Spot, blank, note
from kvdemo.facts.units import format_bytes, format_count, format_seconds
from kvdemo.palette import MEANINGS, of_strategy
from kvdemo.questions.prefix.spec import PrefixResult

__all__ = ["draw", "drawings", "prefix_chart"]

PLOT_PX = 220


def prefix_chart(result: PrefixResult) -> go.Figure:
    """Does a shared prefix pay? First-token time of every question, s: the prefix processed every time, or kept."""
    fresh, kept = of_strategy("none"), MEANINGS["reused"]
    kept = replace(kept, marker="circle", dash="solid")
    series = []
    for meaning, words, which, spread in (
        (fresh, "processed every time", "fresh", result.fresh_ttft_s),
        (kept, "kept and copied", "kept", result.kept_ttft_s),
    ):
        times = [(at, getattr(pair, which).ttft_s) for at, pair in enumerate(result.pairs, start=1) if pair.counts]
        points = [(at, time) for at, time in times if time is not None]
        if points:
            series.append((meaning, words, points, spread))
    labels = [
        (meaning, f"{words}: {format_seconds(spread.median)}" if spread else words)
        for meaning, words, _, spread in series
    ]
    top = 66 + banner_px([text for _, text in labels])
    figure = blank(
        "Does a shared prefix pay?",
        height=top + PLOT_PX + 72,
        top=top,
        bottom=72,
        x={
            "title_text": "question",
            "range": [0.5, max(2, len(result.pairs)) + 0.5],
            "dtick": max(1, len(result.pairs) // 8),
        },
        y={
            "range": [0, 1.1 * max((time for _, _, points, _ in series for _, time in points), default=1.0)],
            "nticks": 5,
        },
        y_title="time to first token, s",
    )
    for meaning, words, points, _ in series:
        xs, ys = zip(*points, strict=True)
        strong_line(figure, meaning, xs, ys, "question %{x}: %{customdata}", name=words, words=format_seconds)
    banner(figure, labels)
    note(figure, price_words(result), Spot(0, 0, (-44, -50), stand="top"), name="price")
    return figure


def price_words(result: PrefixResult) -> str:
    """What is kept, and when it pays."""
    prefix = result.prefix
    kept = "kept bytes not known" if prefix.cache_bytes is None else f"{format_bytes(prefix.cache_bytes)} kept"
    if result.pays_after is not None:
        return f"{kept}; pays from question {format_count(result.pays_after)} on"
    return f"{kept}; " + ("when it pays is not known" if prefix.prepare_s is None else "no time saved")


def draw(result: PrefixResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figure; None where no question was answered both ways."""
    return [prefix_chart(result) if result.ratio is not None else None]


def drawings(result: PrefixResult) -> list[go.Figure]:
    """The same for a report."""
    return [figure for figure in draw(result, {}) if figure is not None]
