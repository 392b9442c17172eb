"""Tables of results as data frames: for the screen in words with units, for arithmetic in plain numbers.

Every figure comes from the summary of the experiments or from a record's own properties; nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.documents import run_document
from kvdemo.facts.plans import MeasuredLayer, MeasuredPoint, MemoryPlan
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_bytes, format_count

__all__ = [
    "differences_frame",
    "fits_frame",
    "measured_frame",
    "run_numbers",
    "runs_frame",
]


def run_numbers(run: RunRecord) -> dict[str, Any]:
    """One run as plain values, units in the names; lists are told by their sums, the raw times stay in the JSON."""
    values = run_document(run)
    by_device = values.pop("cache_bytes_by_device")
    numbers = {name: value for name, value in values.items() if not isinstance(value, list)}
    return {
        **numbers,
        "positions_computed_total": run.total_computed,
        "positions_read_total": run.total_read,
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
