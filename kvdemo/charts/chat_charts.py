"""The charts of a conversation: the steps of one answer, and how soon each turn's answer began."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from kvdemo.charts.arms import meaning_of
from kvdemo.charts.lines import banner, banner_px, dots, line_label, strong_line
from kvdemo.charts.look import Spot, blank
from kvdemo.charts.step_lines import fitted_ms, level, slope_words
from kvdemo.experiments.statistics import line_of_one
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_seconds
from kvdemo.palette import of_strategy

__all__ = ["answer_steps_chart", "first_token_chart"]

PLOT_PX = 180


def answer_steps_chart(record: RunRecord) -> go.Figure:
    """What did each token cost? Time of each step, ms, by position, with its slope or its mean."""
    meaning, steps = meaning_of(record.strategy), record.step_s
    line = line_of_one(steps) or (level(steps) if steps else None)
    ends = fitted_ms(line, len(steps)) if line else (0.0, 0.0)
    steps_ms = [step * 1000 for step in steps]
    usual_ms = sorted(steps_ms)[int(0.98 * (len(steps) - 1))] if steps else 1.0
    top_ms = 1.4 * max(usual_ms, *ends)
    above = sum(step > top_ms for step in steps_ms)
    figure = blank(
        "What did each token cost?",
        height=66 + PLOT_PX + 48,
        x={"title_text": "position in the answer, tokens", "range": [0, 1.02 * max(1, len(steps))]},
        y={"range": [0, top_ms], "nticks": 4},
        y_title="time of the step, ms" + (f" ({above:,} above {top_ms:.0f} ms)" if above else ""),
    )
    if line is None:
        return figure
    dots(figure, meaning, [(range(1, len(steps) + 1), steps_ms)])
    words = slope_words(line, rounds=1, steps=len(steps))
    strong_line(figure, meaning, (1, len(steps)), ends, words, name="steps")
    spot = Spot(1, max(usual_ms, *ends), (0, 3), anchor="right", stand="bottom", refs=("paper", "y"))
    line_label(figure, meaning, f"this answer<br>{words}", spot)
    return figure


def first_token_chart(turns: Sequence[RunRecord], without_reuse_s: Sequence[float | None] = ()) -> go.Figure:
    """How soon did each answer begin? Time to first token, s, by turn; without reuse only where it was measured.

    turns             the answers of the conversation, first to last
    without_reuse_s   the first-token time of the same turns processed afresh; None where nobody measured it
    """
    kept, fresh = of_strategy("dynamic"), of_strategy("none")
    known = [(at, turn.ttft_s) for at, turn in enumerate(turns, start=1) if turn.ttft_s is not None]
    measured = [(at, time) for at, time in enumerate(without_reuse_s, start=1) if time is not None]
    labels = [(kept, f"cache kept: {format_seconds(known[-1][1])} at turn {known[-1][0]}")] if known else []
    if measured:
        labels.append((fresh, f"read again, measured: {format_seconds(measured[-1][1])}"))
    top = 66 + banner_px([text for _, text in labels])
    figure = blank(
        "How soon did each answer begin?",
        height=top + PLOT_PX + 48,
        top=top,
        x={
            "title_text": "turn",
            "range": [0.5, max(2, len(turns)) + 0.5],
            "tickformat": "d",
            **whole_ticks(len(turns)),
        },
        y={"range": [0, 1.1 * max((time for _, time in known + measured), default=1.0)], "nticks": 4},
        y_title="time to first token, s",
    )
    for points, meaning, name in ((measured, fresh, "read again"), (known, kept, "cache kept")):
        if points:
            xs, ys = zip(*points, strict=True)
            hover = "turn %{x}: %{customdata}"
            strong_line(figure, meaning, xs, ys, hover, name=name, words=format_seconds)
    banner(figure, labels)
    return figure


def whole_ticks(count: int) -> dict[str, object]:
    """Turns are whole: at most about eight of them are named."""
    return {"tick0": 1, "dtick": max(1, -(-count // 8))}
