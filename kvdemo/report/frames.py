"""Tables of results as data frames: for the screen in words with units, for arithmetic in plain numbers.

Every figure comes from the summary of the experiments or from a record's own properties; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from kvdemo.experiments.documents import run_document
from kvdemo.experiments.summary import arms
from kvdemo.facts.plans import MeasuredLayer, MeasuredPoint, MemoryPlan
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ArmSummary, ComparisonResult, Spread
from kvdemo.facts.units import format_bytes, format_count, format_seconds, format_speed

__all__ = [
    "arms_frame",
    "differences_frame",
    "fits_frame",
    "measured_frame",
    "run_numbers",
    "run_row",
    "runs_frame",
    "runs_table",
]


def arms_frame(result: ComparisonResult) -> pd.DataFrame:
    """How did each arm do? One row per arm: medians, spread and count, in words; rows without a counted run say why."""
    return pd.DataFrame([arm_row(arm, result) for arm in arms(result)])


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
        "Tokens": "n/a" if arm.tokens is None else " to ".join(format_count(n) for n in dict.fromkeys(arm.tokens)),
        "Cache held": format_bytes(arm.cache_bytes) if arm.cache_bytes else "nothing kept" if arm.n else "n/a",
    }
    if by_device:
        row["By device"] = ", ".join(f"{name} {format_bytes(size)}" for name, size in arm.cache_bytes_by_device.items())
    if compiled:
        row["Compiling, once"] = format_seconds(arm.compile_s)
    return row


def middle(spread: Spread | None) -> str:
    return format_seconds(spread.median if spread else None)


def span(spread: Spread | None) -> str:
    if spread is None:
        return "n/a"
    return f"{format_seconds(spread.low)} to {format_seconds(spread.high)}" if spread.n > 1 else "one run"


def runs_table(result: ComparisonResult) -> pd.DataFrame:
    """What did each run do? One row per run, warm-ups and unfinished ones marked, in words.

    Queue wait, preparing (template and tokenising), first token (prefill) and decode stand apart.
    """
    return pd.DataFrame([run_row(run, result.row(run.strategy).label) for run in result.runs])


def run_row(run: RunRecord, label: str) -> dict[str, str]:
    """One run in words, under its strategy's label."""
    return {
        "Strategy": label,
        "Round": "warm-up" if run.warmup else "" if run.round is None else f"{run.round}",
        "Status": run.status.replace("_", " "),
        "Ended by": (run.finish_reason or "").replace("_", " "),
        "Queue wait": format_seconds(run.queue_s),
        "Preparing": format_seconds(run.prepare_s),
        "First token": format_seconds(run.ttft_s),
        "Decode": format_seconds(run.decode_s),
        "Total": format_seconds(run.generation_s),
        "Complete request": format_seconds(run.request_s),
        "Per token": format_seconds(run.tpot_s),
        "Speed": format_speed(run.decode_tokens_per_s),
        "Tokens": format_count(run.new_tokens),
        "Computed": format_count(run.total_computed),
        "Cache held": format_bytes(run.cache_bytes),
        "Peak memory": format_bytes(run.peak_bytes) + (f", {run.peak_kind}" if run.peak_kind else ""),
    }


def run_numbers(run: RunRecord) -> dict[str, Any]:
    """One run as plain values, units in the names; lists are told by their sums, the raw times stay in the JSON."""
    values = run_document(run)
    by_device = values.pop("cache_bytes_by_device")
    numbers = {name: value for name, value in values.items() if not isinstance(value, list)}
    return {
        **numbers,
        "positions_computed_total": run.total_computed,
        "positions_read_total": sum(run.positions_read),
        "notices": " ".join(run.notices),
        "cache_bytes_by_device": "; ".join(f"{name}: {size} bytes" for name, size in by_device.items()),
    }


def runs_frame(result: ComparisonResult) -> pd.DataFrame:
    """The runs for arithmetic: one row per run, numbers as numbers, missing ones missing."""
    return pd.DataFrame([run_numbers(run) for run in result.runs])


def fits_frame(plan: MemoryPlan) -> pd.DataFrame:
    """What fits? The longest request for 1, 2, 4 ... at once; empty without a budget. "*": the model's own limit."""
    rows = plan.capacity.longest_by_batch if plan.capacity else ()
    return pd.DataFrame(
        {
            "Requests at once": [format_count(batch) for batch, _, _ in rows],
            "Longest request, tokens": [
                f"{format_count(length)}{'*' if capped else ''}" if length else "does not fit"
                for _, length, capped in rows
            ],
        }
    )


def measured_frame(points: Sequence[MeasuredPoint], labels: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Does the loaded model hold what was predicted? One row per measured cache and kind of layer.

    labels   names of the strategies by key
    """
    rows = []
    for point in points:
        kinds: dict[str, list[MeasuredLayer]] = {}
        for layer in point.layers:
            kinds.setdefault(layer.kind, []).append(layer)
        for kind, layers in kinds.items():
            predicted, held = (sum(getattr(one, name) for one in layers) for name in ("predicted_bytes", "held_bytes"))
            rows.append(
                {
                    "Strategy": (labels or {}).get(point.strategy, point.strategy),
                    "Tokens": format_count(point.seq_len),
                    "Layers": f"{len(layers)} {kind}",
                    "Predicted, bytes": format_count(predicted),
                    "Held, bytes": format_count(held),
                    "Difference, bytes": format_count(held - predicted),
                    "Storage, bytes": format_count(sum(one.storage_bytes for one in layers)),
                    "Peak memory": format_bytes(point.process_bytes)
                    + (f", {point.process_kind}" if point.process_bytes is not None else ""),
                }
            )
    return pd.DataFrame(rows)


def differences_frame(points: Sequence[MeasuredPoint], labels: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Where does a measured cache differ from the prediction, or hold on to more, and why? Equal layers in one row."""
    groups: dict[tuple[MeasuredLayer, str, int], int] = {}
    for point in points:
        for layer in point.layers:
            if len({layer.predicted_bytes, layer.held_bytes, layer.storage_bytes}) > 1:
                key = (replace(layer, index=0), point.strategy, point.seq_len)
                groups[key] = groups.get(key, 0) + 1
    rows = [
        {
            "Strategy": (labels or {}).get(strategy, strategy),
            "Tokens": format_count(seq_len),
            "Layers": f"{count} {layer.kind}",
            "Predicted, bytes each": format_count(layer.predicted_bytes),
            "Held": format_count(layer.held_bytes),
            "Difference": format_count(layer.held_bytes - layer.predicted_bytes),
            "Storage": format_count(layer.storage_bytes),
            "Cause": layer.cause,
        }
        for (layer, strategy, seq_len), count in groups.items()
    ]
    columns = ("Strategy", "Tokens", "Layers", "Predicted, bytes each", "Held", "Difference", "Storage", "Cause")
    return pd.DataFrame(rows, columns=columns)
