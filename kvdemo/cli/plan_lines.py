"""What a cache weighs: predicted layer by layer, and measured beside predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvdemo.cli.table import print_table
from kvdemo.facts.plans import MeasuredPoint, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count

__all__ = ["print_measured", "print_plan"]


def print_plan(plan: MemoryPlan) -> None:
    """The plan's figures, then one row per run of layers that are alike."""
    architecture, request = plan.architecture, plan.request
    name = architecture.name or architecture.model_type
    print(f"{name}: {request.batch_size:,} x {request.seq_len:,} tokens in {request.cache_dtype}")
    for name, num_bytes in (
        ("held (a growing cache)", plan.held_bytes),
        ("reserved (a static cache)", plan.reserved_bytes),
        ("uniform (every layer at full length)", plan.uniform_bytes),
        ("fixed state, in all of them", plan.fixed_state_bytes),
        ("per token, one request", plan.bytes_per_token),
        (f"weights {plan.weights_how}" if plan.weights_how else "weights", plan.weight_bytes),
    ):
        print(f"  {name:38} {format_bytes(num_bytes):>12}  {format_count(num_bytes):>20} bytes")
    crossing = plan.crossover_tokens
    print(
        f"  the cache passes the weights at {format_count(crossing)} tokens per request"
        if crossing
        else "  the cache never passes the weights"
    )
    if plan.capacity is not None:
        verdict = "it fits" if plan.capacity.fits else "it does not fit"
        budget, most = format_bytes(plan.capacity.budget_bytes), format_count(plan.capacity.most_at_once)
        whose = "" if request.budget_source == "given" else f" ({request.budget_source})"
        print(f"  budget {budget}{whose}: {verdict}; {most} such requests fit at once")
    if (found := plan.paged) is not None:
        print(
            f"  an engine with pages of {format_count(found.page_tokens)} tokens: {format_count(found.num_pages)} pages, "
            f"{format_count(found.tokens)} tokens, {found.at_once:.2f} requests of {format_count(found.seq_len)} at once"
        )
        for engine, command in found.commands[:1]:
            print(f"  {engine}: {command}")
        for note in found.notes:
            print(f"  {note}")
    print()
    rows = [("Layers", "Kind", "KV heads", "Key dim", "Value dim", "Window", "Held", "Reserved")]
    start = 0
    for index, layer in enumerate(plan.layers):
        following = plan.layers[index + 1] if index + 1 < len(plan.layers) else None
        if following is not None and _shape(following) == _shape(layer):
            continue
        footprint = layer.footprint
        name = str(start) if start == index else f"{start} to {index}"
        window = "" if footprint.window is None else format_count(footprint.window)
        rows.append(
            (
                name,
                footprint.kind,
                str(footprint.kv_heads),
                str(footprint.key_dim),
                str(footprint.value_dim),
                window,
                format_bytes(layer.held_bytes),
                format_bytes(layer.reserved_bytes),
            )
        )
        start = index + 1
    print_table(rows)
    for note in dict.fromkeys((*architecture.notes, *plan.notes)):
        print(note)


def print_measured(points: Sequence[MeasuredPoint]) -> None:
    """One row per cache that was filled, and the cause of every difference from the prediction."""
    if not points:
        print("Nothing was measured.")
        return
    rows = [
        (
            point.strategy,
            format_count(point.seq_len),
            format_bytes(point.held_bytes),
            format_bytes(point.predicted_bytes),
            format_count(point.held_bytes - point.predicted_bytes),
            format_bytes(point.storage_bytes),
            f"{format_bytes(point.process_bytes)} ({point.process_kind})",
        )
        for point in points
    ]
    head = ("Strategy", "Tokens", "Held", "Predicted", "Difference, bytes", "Allocated", "Peak")
    print_table([head, *rows])
    for cause in dict.fromkeys(layer.cause for point in points for layer in point.layers if layer.cause):
        print(f"Note: {cause}.")


def _shape(layer: Any) -> tuple[Any, ...]:
    footprint = layer.footprint
    return (
        footprint.kind,
        footprint.kv_heads,
        footprint.key_dim,
        footprint.value_dim,
        footprint.window,
        layer.held_bytes,
    )
