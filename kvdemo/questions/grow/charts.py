"""The charts of growth and of a shared prefix: what becomes of a comparison as requests get longer, or begin alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from kvdemo.charts.arms import arms_of, meaning_of
from kvdemo.charts.lines import banner, banner_px, strong_line
from kvdemo.charts.look import GREY, Spot, blank, note
from kvdemo.experiments.comparison import ArmSummary, Comparison
from kvdemo.facts.units import format_count, format_ratio
from kvdemo.palette import Meaning, of_strategy
from kvdemo.questions.grow.spec import GrowthResult

__all__ = [
    "GROWTH_FIGURES",
    "draw",
    "drawings",
    "growth_figure_chart",
    "growth_ratio_chart",
]

MIB = 2**20
PLOT_PX = 220
MARKED = ("dynamic", "none", "static", "static-compiled", "fp8", "offloaded")
AXES = {"new_tokens": "new tokens", "prompt_tokens": "prompt tokens"}

GROWTH_FIGURES: dict[str, tuple[str, str, Callable[[ArmSummary], float | None]]] = {
    "step": (
        "How does a step's cost grow?",
        "time per token, median, ms",
        lambda arm: arm.tpot_s.median * 1000 if arm.tpot_s else None,
    ),
    "held": (
        "How much does the cache hold?",
        "held at the end, MiB",
        lambda arm: None if arm.cache_bytes is None else arm.cache_bytes / MIB,
    ),
    "peak": (
        "How high does memory peak?",
        "peak above the start, MiB",
        lambda arm: arm.peak_bytes.median / MIB if arm.peak_bytes else None,
    ),
}


def growth_ratio_chart(result: GrowthResult, along: str = "new_tokens", candidate: str | None = None) -> go.Figure:
    """How does the gain grow with the answer (new_tokens) or the prompt (prompt_tokens)? Ratio, with its interval.

    One line per length of the other kind. candidate None: the first arm beside the baseline.
    """
    candidate = candidate or result.spec.strategies[1]
    other = "prompt_tokens" if along == "new_tokens" else "new_tokens"
    series: dict[int, list[tuple[int, Comparison]]] = {}
    for point in result.points:
        comparison = point.result.comparison(candidate)
        if comparison is not None and comparison.ratio is not None:
            series.setdefault(getattr(point, other), []).append((getattr(point, along), comparison))
    lines = {size: points for size, points in series.items() if len(points) > 1}
    series = lines or series  # a single point shows no growth
    drawn = [
        (replace(meaning_of(candidate), dash=of_strategy(key).dash, marker=of_strategy(key).marker), size, points)
        for key, (size, points) in zip(MARKED * len(series), sorted(series.items()), strict=False)
    ]
    labels = [(meaning, f"{format_count(size)} {AXES[other]}") for meaning, size, _ in drawn]
    highest = max((item.high or item.ratio or 1 for points in series.values() for _, item in points), default=1.0)
    figure = growth_blank("How does the gain grow?", along, labels, longest(result, along))
    figure.update_yaxes(range=[0, max(1.15, highest * 1.1)], nticks=5)
    note(figure, "times faster than the baseline", Spot(0, 1, (-44, 8), stand="bottom"), name="y title")
    figure.add_hline(y=1, line={"color": GREY, "width": 1, "dash": "dot"})
    for meaning, size, points in drawn:
        xs, items = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        ratios = [item.ratio for item in items]
        hover = f"{size:,} {AXES[other]}, %{{x:,}} {AXES[along]}: %{{customdata}} times"
        strong_line(figure, meaning, xs, ratios, hover, name=f"{size}", words=format_ratio)
        whiskers(figure, meaning, xs, items)
    return figure


def growth_figure_chart(result: GrowthResult, figure_name: str, along: str = "new_tokens") -> go.Figure:
    """How do step cost, bytes held or peak memory grow? One line per arm; figure_name is a key of GROWTH_FIGURES.

    The other length is the one with the most points, the largest of these.
    """
    title, y_title, value = GROWTH_FIGURES[figure_name]
    other = "prompt_tokens" if along == "new_tokens" else "new_tokens"
    sizes = [getattr(point, other) for point in result.points]
    largest = max(sizes, key=lambda size: (sizes.count(size), size), default=0)
    points = sorted((p for p in result.points if getattr(p, other) == largest), key=lambda p: getattr(p, along))
    series: dict[str, tuple[Meaning, str, list[tuple[int, float]]]] = {}
    for point in points:
        for arm in arms_of(point.result):
            measured = value(arm.summary)
            if measured is not None:
                entry = series.setdefault(arm.summary.strategy, (arm.meaning, arm.label, []))
                entry[2].append((getattr(point, along), measured))
    labels = [(meaning, label) for meaning, label, _ in series.values()]
    figure = growth_blank(title, along, labels, longest(result, along))
    note(figure, y_title, Spot(0, 1, (-44, 8), stand="bottom"), name="y title")
    figure.update_xaxes(title_text=f"{AXES[along]} ({format_count(largest)} {AXES[other]})")
    if not series:
        note(figure, "Not measured.", Spot(0, 0.5, (8, 0)))
    for meaning, label, values in series.values():
        xs, ys = zip(*values, strict=True)
        strong_line(figure, meaning, xs, ys, "%{x:,}: %{y:.3g}", name=label)
    highest = max((y for *_, values in series.values() for _, y in values), default=1.0)
    lowest = min((y for *_, values in series.values() for _, y in values), default=0.0)
    figure.update_yaxes(range=[min(0.0, lowest * 1.1), (highest or 1) * 1.1], nticks=5)
    return figure


def longest(result: GrowthResult, along: str) -> int:
    return max((getattr(point, along) for point in result.points), default=1)


def growth_blank(title: str, along: str, labels: Sequence[tuple[Meaning, str]], longest: int) -> go.Figure:
    top = 66 + banner_px([text for _, text in labels])
    axis = {"title_text": AXES[along], "range": [0, longest * 1.06]}
    figure = blank(title, height=top + PLOT_PX + 48, top=top, x=axis)
    banner(figure, labels)
    return figure


def whiskers(figure: go.Figure, meaning: Meaning, xs: Sequence[int], items: Sequence[Comparison]) -> None:
    """The interval (or range) of each ratio as a thin upright line."""
    lines_x: list[float | None] = []
    lines_y: list[float | None] = []
    for x, item in zip(xs, items, strict=True):
        if item.low is not None and item.high is not None:
            lines_x += [x, x, None]
            lines_y += [item.low, item.high, None]
    line = {"color": meaning.fill, "width": 1.5}
    figure.add_scatter(x=lines_x, y=lines_y, mode="lines", line=line, hoverinfo="skip", name="interval")


def nothing_measured(result: GrowthResult) -> bool:
    return not any(point.result.comparisons for point in result.points)


def draw(result: GrowthResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order; picked: along ("new_tokens", "prompt_tokens") and candidate (an arm)."""
    if nothing_measured(result):
        return [None] * (1 + len(GROWTH_FIGURES))
    along = picked.get("along", "new_tokens")
    others = [growth_figure_chart(result, name, along) for name in GROWTH_FIGURES]
    return [growth_ratio_chart(result, along, picked.get("candidate")), *others]


def drawings(result: GrowthResult) -> list[go.Figure]:
    """All figures, for a report: along whatever grew, for every arm."""
    if nothing_measured(result):
        return []
    along = [name for name in ("new_tokens", "prompt_tokens") if len({getattr(p, name) for p in result.points}) > 1]
    return [
        figure
        for name in along or ["new_tokens"]
        for figure in (
            *(growth_ratio_chart(result, name, candidate) for candidate in result.spec.strategies[1:]),
            *(growth_figure_chart(result, which, name) for which in GROWTH_FIGURES),
        )
    ]
