"""Measured caches as tables: predicted and held beside each other, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvdemo.experiments.tables import Table
from kvdemo.facts.plans import MeasuredLayer, MeasuredPoint
from kvdemo.facts.units import format_bytes, format_count

__all__ = ["differences_table", "measured_table"]


def measured_table(points: Sequence[MeasuredPoint], labels: Mapping[str, str]) -> Table:
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
                    "Strategy": labels.get(point.strategy, point.strategy),
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
    return Table.of(rows)


def differences_table(points: Sequence[MeasuredPoint], labels: Mapping[str, str]) -> Table:
    """Where does a measured cache differ from the prediction, or hold on to more, and why? Equal layers in one row."""
    groups: dict[tuple[MeasuredLayer, str, int], int] = {}
    for point in points:
        for layer in point.layers:
            if len({layer.predicted_bytes, layer.held_bytes, layer.storage_bytes}) > 1:
                key = (replace(layer, index=0), point.strategy, point.seq_len)
                groups[key] = groups.get(key, 0) + 1
    rows = [
        {
            "Strategy": labels.get(strategy, strategy),
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
    return Table.of(rows)
