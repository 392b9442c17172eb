"""The charts of a watched program: where its time went, and what each forward of a call computed and read."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from kvdemo.charts.lines import banner, banner_px
from kvdemo.charts.look import blank
from kvdemo.charts.plain_text import clean
from kvdemo.experiments.statistics import median
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.palette import MEANINGS
from kvdemo.questions.application.spec import ApplicationResult
from kvdemo.watching.record import Call

__all__ = ["draw", "drawings", "telling_call"]

ROW_PX, LEFT_PX = 34, 128
MOST_FORWARDS, MOST_APART = 120, 40


def draw(result: ApplicationResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order."""
    call = telling_call(result)
    return [time_chart(result), forwards_chart(call) if call is not None else None]


def drawings(result: ApplicationResult) -> list[go.Figure]:
    """The same for a report."""
    return [figure for figure in draw(result, {}) if figure is not None]


def telling_call(result: ApplicationResult) -> Call | None:
    """The longest call that goes without a cache, else the longest of all; None where no forward was counted."""
    counted = [call for call in result.watched.calls if call.positions_computed and call.positions_read is not None]
    without = [call for call in counted if call.cached is False]
    return max(without or counted, key=lambda call: call.generation_s or 0.0, default=None)


def time_chart(result: ApplicationResult) -> go.Figure:
    """Where did the time go? One bar, or one for each way of running it."""
    rows = _times(result)
    parts = (("dynamic", "generation"), ("weights", "other"))
    total = (sum(times[at] for _, times in rows) for at in (0, 1))
    words = [
        (MEANINGS[meaning], f"{name}: {format_seconds(seconds)}" if len(rows) == 1 else name)
        for (meaning, name), seconds in zip(parts, total, strict=True)
    ]
    top = 66 + banner_px([text for _, text in words])
    figure = blank(
        "Where did the time go?",
        height=top + max(60, ROW_PX * len(rows)) + 48,
        top=top,
        left=LEFT_PX,
        x={
            "title_text": "median time, s",
            "range": [0, 1.04 * max(sum(times) for _, times in rows) or 1],
            "showgrid": True,
        },
        y={
            "range": [len(rows) - 0.5, -0.5],
            "showgrid": False,
            "tickvals": list(range(len(rows))),
            "ticktext": [clean(name, max_chars=16) for name, _ in rows],
        },
    )
    figure.update_layout(barmode="stack")
    for at, (meaning, name) in enumerate(parts):
        figure.add_bar(
            x=[times[at] for _, times in rows],
            y=list(range(len(rows))),
            base=[sum(times[:at]) for _, times in rows],
            width=0.6,
            orientation="h",
            marker={"color": MEANINGS[meaning].fill},
            name=name,
            hovertemplate=f"{name}: %{{x:.2f}} s<extra></extra>",
        )
    banner(figure, words, left=LEFT_PX)
    return figure


def _times(result: ApplicationResult) -> list[tuple[str, tuple[float, float]]]:
    """(name, (generation, other)) s; medians of the runs that count."""
    found = []
    for key in result.spec.compare:
        runs = [run for run in result.runs if run.arm == key and run.counts]
        generation, wall = median(run.generation_s for run in runs), median(run.wall_s for run in runs)
        if generation is not None and wall is not None:
            found.append((result.label(key), (generation, max(0.0, wall - generation))))
    script = result.watched.script
    return found or [(result.spec.program, (script.generation_s, script.other_s))]


def forwards_chart(call: Call) -> go.Figure:
    """What did each forward compute, and what did it read from a cache?"""
    computed, read = call.positions_computed or (), call.positions_read or ()
    shown = min(len(computed), MOST_FORWARDS)
    more = f", the first {shown}" if shown < len(computed) else ""
    words = [
        (MEANINGS["prefill"], f"computed: {format_count(sum(computed))} positions"),
        (MEANINGS["reused"], f"read from the cache: {format_count(sum(read))}"),
    ]
    top = 66 + banner_px([text for _, text in words])
    figure = blank(
        "What did each forward compute?",
        height=top + 240,
        top=top,
        left=72,
        x={
            "title_text": f"positions, {clean(call.where, max_chars=28)}",
            "range": [0, 1.04 * max(map(sum, zip(computed, read, strict=True)), default=1) or 1],
            "showgrid": True,
        },
        y={"range": [shown + 0.6, 0.4], "showgrid": False},
        y_title=f"forward{more}",
    )
    figure.update_layout(barmode="stack")
    bases = ([0] * shown, list(computed[:shown]))
    for (meaning, text), values, base in zip(words, (computed, read), bases, strict=True):
        figure.add_bar(
            x=list(values[:shown]),
            y=list(range(1, shown + 1)),
            base=base,
            width=0.8 if shown <= MOST_APART else 1,  # thinner gaps would be drawn unevenly
            orientation="h",
            marker={"color": meaning.fill},
            name=text.partition(":")[0],
            hovertemplate="forward %{y}: %{x:,}<extra></extra>",
        )
    banner(figure, words, left=72)
    return figure
