"""The table of a comparison: how each arm did."""

from __future__ import annotations

from kvdemo.experiments.comparison import ArmSummary, ComparisonResult
from kvdemo.experiments.summary import arms
from kvdemo.experiments.tables import Table, as_reported
from kvdemo.facts.results import Spread
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count, format_seconds, format_speed

__all__ = ["arms_table"]


def arms_table(result: ComparisonResult) -> Table:
    """How did each arm do? One row per arm: medians, spread and count, in words; rows without a counted run say why."""
    return Table.of([arm_row(arm, result) for arm in arms(result)])


def arm_row(arm: ArmSummary, result: ComparisonResult) -> dict[str, str]:
    compiled = any(run.compile_s is not None for run in result.runs)
    by_device = any(len(run.cache_bytes_by_device) > 1 for run in result.runs)
    row = {
        "Strategy": arm.label,
        "First token": middle(arm.ttft_s),
        "Per token": middle(arm.tpot_s),
        "Speed": format_speed(arm.decode_tokens_per_s),
        "Total, median": middle(arm.generation_s),
        "Range": span(arm.generation_s),
        "Complete request": middle(arm.request_s),
        "Runs": f"{arm.n}" + (f", {arm.left_out} left out" if arm.left_out else ""),
        "Tokens": NOT_AVAILABLE
        if arm.tokens is None
        else " to ".join(format_count(n) for n in dict.fromkeys(arm.tokens)),
        "Cache held": "nothing kept" if arm.cache_bytes == 0 else format_bytes(arm.cache_bytes),
    }
    if by_device:
        row["By device"] = ", ".join(f"{name} {format_bytes(size)}" for name, size in arm.cache_bytes_by_device.items())
    if compiled:
        row["Compiling, once"] = format_seconds(arm.compile_s)
    return as_reported(row, served=any(run.reported is not None for run in result.runs))


def middle(spread: Spread | None) -> str:
    return format_seconds(spread.median if spread else None)


def span(spread: Spread | None) -> str:
    if spread is None:
        return NOT_AVAILABLE
    return f"{format_seconds(spread.low)} to {format_seconds(spread.high)}" if spread.n > 1 else "one run"
