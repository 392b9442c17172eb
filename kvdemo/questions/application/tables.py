"""The calls of a watched program: one row per place for a person, one per call for files; and the ways of running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdemo.experiments.statistics import median
from kvdemo.experiments.tables import Table
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count, format_ratio, format_seconds
from kvdemo.questions.application.spec import PYTHON, ApplicationResult, ArmOfProgram, Ratio
from kvdemo.watching.record import Call
from kvdemo.watching.words import cache_words, places

__all__ = ["application_table", "call_rows"]

COLUMNS = ("Where", "Calls", "Cache", "Computed", "Read", "Prompt", "New", "Reused", "First token", "Per token", "Held")


def application_table(result: ApplicationResult) -> Table:
    """Where does it generate, with which cache? Of a comparison: how did each way of running it do?"""
    if result.comparisons:
        rows = [_arm_row(result, key) for key in result.spec.compare]
        if any(key.startswith(PYTHON) for key in result.spec.compare):
            rows = [{**row, "With": _versions(result, key)} for row, key in zip(rows, result.spec.compare, strict=True)]
        return Table.of(rows)
    return Table.of((_place_row(calls) for calls in places(result.watched)), COLUMNS)


def _place_row(calls: list[Call]) -> dict[str, str]:
    first = calls[0]
    return {
        "Where": first.where,
        "Calls": format_count(len(calls)),
        "Cache": cache_words(first),
        "Computed": format_count(_sum(calls, "positions_computed")),
        "Read": format_count(_sum(calls, "positions_read")),
        "Prompt": _middle(calls, "prompt_tokens"),
        "New": _middle(calls, "new_tokens"),
        "Reused": _middle(calls, "reused_tokens"),
        "First token": format_seconds(median(call.ttft_s for call in calls)),
        "Per token": format_seconds(median(call.tpot_s for call in calls)),
        "Held": format_bytes(max((call.peak_cache_bytes or 0 for call in calls), default=0) or first.peak_cache_bytes),
    }


def _sum(calls: list[Call], name: str) -> int | None:
    known = [getattr(call, name) for call in calls]
    return None if None in known else sum(map(sum, known))


def _middle(calls: list[Call], name: str) -> str:
    return format_count(median(getattr(call, name) for call in calls))


def _arm_row(result: ApplicationResult, key: str) -> dict[str, str]:
    runs = [run for run in result.runs if run.arm == key and run.counts]
    arm = next((one for one in result.arms if one.key == key), None)
    held = [run.peak_cache_bytes for run in runs if run.peak_cache_bytes is not None]
    return {
        "Run with": result.label(key),
        "Cache": _cache_cell(arm),
        "Generation": format_seconds(median(run.generation_s for run in runs)),
        "Whole application": format_seconds(median(run.wall_s for run in runs)),
        "Generation, times faster": _ratio_cell(result.compared(key, "generation_s")),
        "Whole, times faster": _ratio_cell(result.compared(key, "wall_s")),
        "Runs": format_count(len(runs)),
        "Computed": format_count(median(run.positions_computed for run in runs)),
        "Cache held": format_bytes(max(held, default=None)),
    }


def _versions(result: ApplicationResult, key: str) -> str:
    arm = next((one for one in result.arms if one.key == key), None)
    return f"transformers {arm.transformers}, torch {arm.torch}" if arm is not None and arm.torch else NOT_AVAILABLE


def _cache_cell(arm: ArmOfProgram | None) -> str:
    """What its calls used."""
    if arm is None or arm.cached is None:
        return NOT_AVAILABLE
    return (", ".join(arm.cache_classes) or "the model's own") if arm.cached else "none"


def _ratio_cell(one: Ratio | None) -> str:
    if one is None:
        return ""
    if one.ratio is None or one.low is None or one.high is None:
        return format_ratio(one.ratio)
    return f"{format_ratio(one.ratio)} ({format_ratio(one.low)} to {format_ratio(one.high)})"


def call_rows(result: ApplicationResult) -> Iterator[Mapping[str, object]]:
    """One row per call, units in the names."""
    for number, call in enumerate(result.watched.calls, 1):
        yield {
            "call": number,
            "where": call.where,
            "how": call.how,
            "model": call.model,
            "batch_size": call.batch_size,
            "use_cache": call.use_cache.value,
            "decided_by": call.use_cache.source,
            "cache_class": call.cache_class,
            "cached": call.cached,
            "prompt_tokens": call.prompt_tokens,
            "new_tokens": call.new_tokens,
            "reused_tokens": call.reused_tokens,
            "positions_computed_total": None if call.positions_computed is None else sum(call.positions_computed),
            "positions_read_total": None if call.positions_read is None else sum(call.positions_read),
            "generation_s": call.generation_s,
            "ttft_s": call.ttft_s,
            "tpot_s": call.tpot_s,
            "peak_cache_bytes": call.peak_cache_bytes,
            "finish_reason": call.finish_reason,
            "error": call.error,
        }
