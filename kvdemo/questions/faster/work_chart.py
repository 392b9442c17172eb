"""The chart of the work: which positions each forward computed and which it took from the cache. Counts, no clock."""

from __future__ import annotations

from textwrap import wrap

import plotly.graph_objects as go

from kvdemo.charts.arms import Arm, arms_of
from kvdemo.charts.colours import faint
from kvdemo.charts.lines import line_label
from kvdemo.charts.look import TEXT_PX, Spot, blank, note
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_bytes, format_count, format_ratio
from kvdemo.palette import MEANINGS

__all__ = ["COMPUTED", "READ", "panels_of", "work_cells", "work_chart", "work_words"]

MOST_CELLS = 36
READ, COMPUTED = 0, 1
PANEL_PX = 200


def work_chart(result: ComparisonResult) -> go.Figure:
    """How much was computed? Position by step, computed now or read from the cache: a triangle against a diagonal.

    Arms whose forwards were given the same positions share a panel. At most MOST_CELLS cells a side.
    """
    panels = panels_of(arms_of(result))
    head_px = 8 + TEXT_PX * max((1 + words.count("<br>") for _, words, _ in panels), default=1)
    rows = max(1, -(-len(panels) // 2))
    row_px = head_px + PANEL_PX + 30
    figure = blank("How much was computed?", height=42 + rows * row_px + 70, left=22, right=4, top=42, bottom=70)
    figure.update_layout(xaxis={"visible": False}, yaxis={"visible": False})
    for at, (arm, words, run) in enumerate(panels):
        row, column = divmod(at, 2)
        across = ((0.0, 0.475), (0.525, 1.0))[column] if len(panels) > 1 else (0.0, 1.0)
        top = 1 - (row * row_px + head_px) / (rows * row_px)
        panel(figure, at + 1, run, across, (top - PANEL_PX / (rows * row_px), top))
        line_label(figure, arm.meaning, words, Spot(across[0], top, (0, 6), stand="bottom"))
    computed, read = MEANINGS["prefill"].text, MEANINGS["reused"].text
    note(figure, "■ computed now", Spot(0, 0, (-18, -10)), colour=computed)
    note(figure, "■ read from the cache", Spot(1, 0, (0, -10), anchor="right"), colour=read)
    if sentence := work_words(result):
        note(figure, "<br>".join(wrap(sentence, 38)), Spot(0, 0, (-18, -24), stand="top"))
    return figure


def panels_of(arms: tuple[Arm, ...]) -> list[tuple[Arm, str, RunRecord]]:
    """One panel per distinct work: an arm to colour it, its heading, a run."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[Arm]] = {}
    for arm in arms:
        run = arm.runs[-1]
        if can_be_drawn(run):
            alike.setdefault((run.positions_computed or (), run.positions_read or ()), []).append(arm)
    panels = []
    for group in alike.values():
        names = [*wrap(group[0].label, 15), *([f"and {len(group) - 1} more"] if len(group) > 1 else [])]
        run = group[0].runs[-1]
        panels.append((group[0], "<br>".join([*names, f"{format_count(run.total_computed)} computed"]), run))
    return panels


def can_be_drawn(run: RunRecord) -> bool:
    """Does the run say for every forward what it computed and read? A record from elsewhere may not."""
    read, computed = run.positions_read or (), run.positions_computed or ()
    return bool(computed) and len(read) == len(computed) and min(read) >= 0 and min(computed) > 0


def panel(figure: go.Figure, number: int, run: RunRecord, across: tuple[float, float], up: tuple[float, float]) -> None:
    """One run's cells on axes of their own."""
    cells, step_px, position_px = work_cells(run)
    steps = [f"step {1 + row * step_px:,}" for row in range(len(cells))]
    figure.add_heatmap(
        z=cells,
        x=[column * position_px for column in range(len(cells[0]))],
        y=[row * step_px for row in range(len(cells))],
        text=[
            [f"{step}: {'computed now' if cell == COMPUTED else 'read from the cache'}" for cell in row]
            for step, row in zip(steps, cells, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
        hoverongaps=False,
        showscale=False,
        zmin=READ,
        zmax=COMPUTED,
        colorscale=[
            [0, faint(MEANINGS["reused"].fill, 0.4)],
            [0.5, faint(MEANINGS["reused"].fill, 0.4)],
            [0.5, MEANINGS["prefill"].fill],
            [1, MEANINGS["prefill"].fill],
        ],
        xgap=1,
        ygap=1,
        xaxis=f"x{number + 1}",
        yaxis=f"y{number + 1}",
    )
    style = {"showgrid": False, "zeroline": False, "fixedrange": True, "showticklabels": False, "ticks": ""}
    title = {"font": {"size": 14}, "standoff": 4}
    figure.update_layout(
        {
            f"xaxis{number + 1}": {
                **style,
                "domain": across,
                "anchor": f"y{number + 1}",
                "title": {**title, "text": "position →"},
            },
            f"yaxis{number + 1}": {
                **style,
                "domain": up,
                "anchor": f"x{number + 1}",
                "autorange": "reversed",
                "title": {**title, "text": "← step" if across[0] == 0 else ""},
            },
        }
    )


def work_cells(run: RunRecord) -> tuple[list[list[int | None]], int, int]:
    """The run's work on a coarse grid: rows are forwards, columns positions; None where there was nothing yet.

    Also how many forwards a row and how many positions a column stands for. A cell that holds a computed position is
    COMPUTED, so that the diagonal of a cached run stays whole.
    """
    forwards = list(zip(run.positions_read or (), run.positions_computed or (), strict=True))
    length = max(read + computed for read, computed in forwards)
    per_row = -(-len(forwards) // MOST_CELLS)
    per_column = -(-length // MOST_CELLS)
    cells: list[list[int | None]] = []
    for first in range(0, len(forwards), per_row):
        group = forwards[first : first + per_row]
        row: list[int | None] = [None] * -(-length // per_column)
        for column in range(len(row)):
            low, high = column * per_column, (column + 1) * per_column
            if any(read < high and low < read + computed for read, computed in group):
                row[column] = COMPUTED
            elif any(low < read for read, _ in group):
                row[column] = READ
        cells.append(row)
    return cells, per_row, per_column


def work_words(result: ComparisonResult) -> str:
    """The two sums in one sentence, and what stays the same: every step reads all weights."""
    sums = {run.total_computed or 0 for _, _, run in panels_of(arms_of(result))}
    weights = f"every step still reads all {format_bytes(result.model.weight_bytes)} of weights."
    if not sums:
        return ""
    if len(sums) == 1 or not min(sums):
        return f"The same work in each; {weights}"
    return f"{format_ratio(max(sums) / min(sums))} times less work; {weights}"
