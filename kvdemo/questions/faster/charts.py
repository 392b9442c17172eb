"""The charts of a comparison: arrival of tokens, cost of a step, where the time went, the cache over the run.

All rounds are drawn faint and their median strong. How much was computed is drawn in work_chart.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import plotly.graph_objects as go

from kvdemo.charts.arms import Arm, arms_of
from kvdemo.charts.lines import banner, banner_px, dots, faint_lines, line_label, strong_line
from kvdemo.charts.look import TEXT_PX, Spot, blank, note
from kvdemo.charts.step_lines import fitted_ms, level, slope_words
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.facts.units import format_bytes, format_seconds
from kvdemo.palette import MEANINGS
from kvdemo.questions.faster.work_chart import panels_of, work_chart

__all__ = ["arrival_chart", "cache_bytes_chart", "draw", "drawings", "step_cost_chart", "time_split_chart"]

MIB = 2**20
PLOT_PX = 206


def arrival_chart(result: ComparisonResult) -> go.Figure:
    """When did each token arrive? Tokens so far over the time since acceptance, s; one line per arm."""
    arms = [arm for arm in arms_of(result) if arm.token_times_s]
    by_end = sorted(arms, key=lambda arm: -arm.token_times_s[-1])
    stacked = [(arm.meaning, f"{arm.label} {last_s(arm)}") for arm in by_end] if len(arms) > 2 else []
    longest_s = max((run.token_times_s[-1] for arm in arms for run in arm.runs), default=1.0)
    most = max((run.new_tokens for arm in arms for run in arm.runs), default=1)
    top = 66 + banner_px([text for _, text in stacked])
    figure = blank(
        "When did each token arrive?",
        height=top + PLOT_PX + 48,
        top=top,
        x={"title_text": "time since the start, s", "range": [0, longest_s * 1.02]},
        y={"range": [0, most * 1.04], "nticks": 5},
        y_title="tokens",
    )
    for arm in arms:
        rounds = [((0.0, *run.token_times_s), range(run.new_tokens + 1)) for run in arm.runs]
        faint_lines(figure, arm.meaning, rounds)
    for arm in arms:
        times = (0.0, *arm.token_times_s)
        strong_line(figure, arm.meaning, times, range(len(times)), "%{y} tokens after %{x:.2f} s", name=arm.label)
    banner(figure, stacked)
    for row, arm in enumerate([] if stacked else reversed(by_end)):
        end_s = arm.token_times_s[-1]
        if row == 0 < len(arms) - 1 and end_s < 0.3 * longest_s:
            spot = Spot(end_s, 1, (8, -2), stand="top", refs=("x", "paper"))
            line_label(figure, arm.meaning, f"{arm.label}<br>{last_s(arm)}", spot)
        else:
            # Steps do not get faster: each line lies above its chord, and the lower right corner is free.
            spot = Spot(1, 0, (-4, 14 + (len(arms) - 1 - row) * (TEXT_PX + 2)), anchor="right")
            line_label(figure, arm.meaning, f"{arm.label} {last_s(arm)}", spot)
    return figure


def last_s(arm: Arm) -> str:
    """The median time of the last token that every round made, in words."""
    return format_seconds(arm.token_times_s[-1])


def step_cost_chart(result: ComparisonResult) -> go.Figure:
    """What does one more token cost? Time of each step, ms, by position in the answer, with its slope or its mean."""
    arms = [arm for arm in arms_of(result) if arm.summary.step_s]
    lines = [arm.summary.step_line or level(arm.summary.step_s) for arm in arms]
    ends = [fitted_ms(line, len(arm.summary.step_s)) for arm, line in zip(arms, lines, strict=True)]
    tops = [max(usual_ms(arm), *pair) for arm, pair in zip(arms, ends, strict=True)]
    top_ms = 1.3 * max(tops, default=1.0)
    above = sum(step * 1000 > top_ms for arm in arms for run in arm.runs for step in run.step_s)
    order = sorted(range(len(arms)), key=lambda at: -sum(ends[at]))
    words = [
        slope_words(line, rounds=arm.summary.n, steps=len(arm.summary.step_s))
        for arm, line in zip(arms, lines, strict=True)
    ]
    labels = [(arms[at].meaning, f"{arms[at].label}<br>{words[at]}") for at in order]
    on_lines = room_between(ends, tops, top_ms / PLOT_PX)
    top = 66 + (0 if on_lines else banner_px([text for _, text in labels]))
    figure = blank(
        "What does one more token cost?",
        height=top + PLOT_PX + 48,
        top=top,
        x={
            "title_text": "position in the answer, tokens",
            "range": [0, 1.02 * max((len(arm.summary.step_s) for arm in arms), default=1)],
        },
        y={"range": [0, top_ms], "nticks": 5},
        y_title="time of the step, ms" + (f" ({above:,} above {top_ms:.0f} ms)" if above else ""),
    )
    for arm in arms:
        rounds = [(range(1, len(run.step_s) + 1), [step * 1000 for step in run.step_s]) for run in arm.runs]
        dots(figure, arm.meaning, rounds)
    for arm, pair, hover in zip(arms, ends, words, strict=True):
        strong_line(figure, arm.meaning, (1, len(arm.summary.step_s)), pair, hover, name=arm.label)
    if not on_lines:
        banner(figure, labels)
        return figure
    for at, (meaning, text) in zip(order, labels, strict=True):
        spot = Spot(1, tops[at], (0, 3), anchor="right", stand="bottom", refs=("paper", "y"))
        line_label(figure, meaning, text, spot)
    return figure


def usual_ms(arm: Arm) -> float:
    """What all but one step in fifty stay below, ms: a single slow step must not flatten the chart."""
    steps = sorted(step * 1000 for run in arm.runs for step in run.step_s)
    return steps[int(0.98 * (len(steps) - 1))]


def room_between(ends: Sequence[tuple[float, float]], tops: Sequence[float], ms_per_px: float) -> bool:
    """Does a label fit between each arm's points and the next line above?

    Its second row is as wide as a narrow chart; the first reaches back to the middle at most.
    """
    order = sorted(range(len(ends)), key=lambda at: sum(ends[at]))
    return all(
        min(ends[high]) - tops[low] > (TEXT_PX + 4) * ms_per_px
        and min(sum(ends[high]) / 2, ends[high][1]) - tops[low] > (2 * TEXT_PX + 4) * ms_per_px
        for low, high in pairwise(order)
    )


def time_split_chart(result: ComparisonResult) -> go.Figure:
    """Where did the time go? Median first pass and median of all further passes of each arm, s, stacked."""
    arms = arms_of(result)
    rows = [len(arms) - 1 - at for at in range(len(arms))]
    first_s = [arm.summary.ttft_s.median if arm.summary.ttft_s else 0.0 for arm in arms]
    more_s = [arm.summary.decode_s.median if arm.summary.decode_s else 0.0 for arm in arms]
    totals = [first + more for first, more in zip(first_s, more_s, strict=True)]
    figure = blank(
        "Where did the time go?",
        height=76 + 64 * max(1, len(arms)) + 48,
        left=8,
        top=76,
        x={"title_text": "time, s", "range": [0, max(totals, default=1.0) * 1.24], "showgrid": True, "nticks": 6},
        y={"range": [-0.5, max(1, len(arms)) - 0.5], "showticklabels": False, "showgrid": False},
    )
    figure.update_layout(barmode="stack", bargap=0.5)
    for name, values, colours in (
        ("first pass", first_s, [MEANINGS["prefill"].fill] * len(arms)),
        ("more passes", more_s, [arm.meaning.fill for arm in arms]),
    ):
        figure.add_bar(
            y=[row - 0.14 for row in rows],
            x=values,
            orientation="h",
            width=0.42,
            name=name,
            marker={"color": colours, "line": {"width": 0}},
            customdata=[
                f"{arm.label}: {name} {format_seconds(value)}" for arm, value in zip(arms, values, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    note(figure, "<b>first pass</b>", Spot(0, 1, (0, 8), stand="bottom"), colour=MEANINGS["prefill"].text)
    note(figure, f"<b>{passes_words(arms)}</b>", Spot(0, 1, (80, 8), stand="bottom"))
    for arm, row, total in zip(arms, rows, totals, strict=True):
        line_label(figure, arm.meaning, arm.label, Spot(0, row + 0.26, refs=("x", "y")))
        note(figure, f"<b>{format_seconds(total)}</b>", Spot(total, row - 0.14, (6, 0), refs=("x", "y")))
    return figure


def passes_words(arms: Sequence[Arm]) -> str:
    """ "119 more passes", or the range where arms made different numbers of tokens."""
    counts = sorted({tokens - 1 for arm in arms for tokens in arm.summary.tokens or ()})
    if not counts:
        return "more passes"
    return f"{counts[0]:,} more passes" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} more passes"


def cache_bytes_chart(result: ComparisonResult) -> go.Figure:
    """How much does the cache hold? Logical MiB by new token, the last counted run; storage dotted where it is more."""
    arms = [arm for arm in arms_of(result) if any(run.cache_bytes_by_token for run in arm.runs)]
    series = [next(run.cache_bytes_by_token for run in reversed(arm.runs) if run.cache_bytes_by_token) for arm in arms]
    most = max((max(pair) for points in series for pair in points), default=0) / MIB
    held = [format_bytes(points[-1][0]) for points in series]
    labels = [(arm.meaning, f"{arm.label} {words}") for arm, words in zip(arms, held, strict=True)]
    top = 66 + (banner_px([text for _, text in labels]) if len(arms) > 1 else 0)
    figure = blank(
        "How much does the cache hold?",
        height=top + PLOT_PX + 48,
        top=top,
        x={"title_text": "position in the answer, tokens", "range": [0, 1.02 * max(map(len, series), default=1)]},
        y={"range": [0, (most or 1) * 1.2], "nticks": 5},
        y_title="held, MiB",
    )
    for arm, points in zip(arms, series, strict=True):
        xs = range(1, len(points) + 1)
        logical, storage = ([size / MIB for size in sizes] for sizes in zip(*points, strict=True))
        if storage != logical:
            figure.add_scatter(
                x=list(xs),
                y=storage,
                mode="lines",
                line={"color": arm.meaning.fill, "width": 1, "dash": "dot"},
                name=f"{arm.label}, storage",
                hovertemplate="%{y:.2f} MiB of storage at token %{x}<extra></extra>",
            )
        strong_line(figure, arm.meaning, xs, logical, "%{y:.2f} MiB at token %{x}", name=arm.label)
    if len(arms) > 1:
        banner(figure, labels)
    for meaning, text in labels[:1] if len(arms) == 1 else []:
        spot = Spot(1, series[0][-1][0] / MIB, (0, 14), anchor="right", refs=("paper", "y"))
        line_label(figure, meaning, text, spot)
    return figure


def draw(result: ComparisonResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order; None where there is nothing to draw."""
    arms = arms_of(result)
    held = [size for arm in arms for run in arm.runs for size, _ in run.cache_bytes_by_token]
    return [
        arrival_chart(result) if any(arm.token_times_s for arm in arms) else None,
        step_cost_chart(result) if any(arm.summary.step_s for arm in arms) else None,
        time_split_chart(result) if arms else None,
        work_chart(result) if panels_of(arms) else None,
        cache_bytes_chart(result) if any(held) else None,
    ]


def drawings(result: ComparisonResult) -> list[go.Figure]:
    """All figures for which there is something to draw, for a report."""
    return [figure for figure in draw(result, {}) if figure is not None]
