"""The table of a load: one row per number of requests and mode."""

from __future__ import annotations

from kvdemo.experiments.tables import Table, as_reported, ratio_cell, same_cell
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count, format_ratio, format_seconds, format_speed
from kvdemo.questions.load.spec import LoadPoint, LoadResult, mode_of
from kvdemo.questions.load.summary import ModeSummary, Quantiles, summarise_mode

__all__ = ["load_table"]


def load_table(result: LoadResult) -> Table:
    """How was it served, mode by mode? Times are p50 / p95 / max over the requests; work and bytes those of a round."""
    return Table.of(_row(result, point, key) for point in result.sweep for key in result.spec.modes)


def _row(result: LoadResult, point: LoadPoint, key: str) -> dict[str, str]:
    found = summarise_mode(result.spec, point, key)
    comparison = result.comparison(key) if point is result.main else None
    beside = {"Times the first": ratio_cell(comparison.comparison) if comparison else ""}
    goodput = found.goodput_requests_per_s
    met = NOT_AVAILABLE if goodput is None else f"{goodput:.2f} /s"
    served = any(run.reported is not None for one in point.of(key) for run in one.record.runs)
    row = {
        "Mode": mode_of(key).label,
        "Requests": format_count(point.requests),
        "Throughput": format_speed(found.throughput_tokens_per_s),
        **beside,
        "Queue wait": _quantiles(found.queue_s),
        "First token": _quantiles(found.ttft_s),
        "Per token": _quantiles(found.tpot_s),
        "Complete request": _quantiles(found.request_s),
        **({"Goodput": met} if result.spec.has_target else {}),
        "Computed": format_count(found.positions_computed),
        "Computed for each forward": _each(found),
        "Read": format_count(found.positions_read),
        "Padding": format_count(found.padding_positions),
        "Reused": format_count(found.reused_tokens),
        "Cache reserved": format_bytes(found.reserved_cache_bytes),
        "Cache used": _used(found),
        "Not counted": _left_out(found),
        "Same tokens": "" if key == result.spec.modes[0] else same_cell(found.same_output),
    }
    return as_reported(row, served=served)


def _each(found: ModeSummary) -> str:
    if found.positions_computed is None or not found.forwards:
        return NOT_AVAILABLE
    return f"{format_ratio(found.positions_computed / found.forwards)} in {format_count(found.forwards)}"


def _left_out(found: ModeSummary) -> str:
    """Requests that failed, and those whose times are incomplete."""
    counts = ((found.failed, "failed"), (found.preempted, "preempted, times incomplete"))
    return ", ".join(f"{format_count(count)} {what}" for count, what in counts if count)


def _used(found: ModeSummary) -> str:
    pages = (
        ""
        if found.num_pages is None
        else f", {format_count(found.peak_pages)} of {format_count(found.num_pages)} pages"
    )
    return f"{format_bytes(found.peak_cache_bytes)}{pages}"


def _quantiles(found: Quantiles | None) -> str:
    return NOT_AVAILABLE if found is None else " / ".join(map(format_seconds, (found.p50, found.p95, found.max)))
