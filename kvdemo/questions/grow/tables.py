"""The table of growth: what was measured at each point."""

from __future__ import annotations

from kvdemo.experiments.comparison import ArmSummary
from kvdemo.experiments.summary import arms
from kvdemo.experiments.tables import Table, ratio_cell
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count, format_seconds
from kvdemo.questions.grow.spec import GrowthResult

__all__ = ["growth_table"]


def growth_table(result: GrowthResult) -> Table:
    """What was measured at each point? One row per request size and arm; the baseline's ratio is left empty."""
    rows = []
    for point in result.points:
        for arm in arms(point.result):
            comparison = point.result.comparison(arm.strategy)
            rows.append(
                {
                    "Prompt tokens": format_count(point.prompt_tokens),
                    "New tokens": format_count(point.new_tokens),
                    "Strategy": arm.label,
                    "Times faster": ratio_cell(comparison) if comparison else "",
                    "Total, median": format_seconds(arm.generation_s.median if arm.generation_s else None),
                    "Per token": format_seconds(arm.tpot_s.median if arm.tpot_s else None),
                    "Added per token of context": slope_cell(arm),
                    "Cache held": format_bytes(arm.cache_bytes),
                    "Peak memory": format_bytes(arm.peak_bytes.median if arm.peak_bytes else None),
                    "Runs": format_count(arm.n),
                }
            )
    return Table.of(rows)


def slope_cell(arm: ArmSummary) -> str:
    """The slope of the step time with its interval."""
    line = arm.step_line
    if line is None or line.low is None or line.high is None:
        return "no slope seen" if arm.step_s else NOT_AVAILABLE
    return f"{line.slope * 1000:.2g} ms ({line.low * 1000:.2g} to {line.high * 1000:.2g})"
