"""What the command line prints: progress on stderr, tables and sentences on stdout. Draws facts, asks for none."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvdemo.experiments.summary import arms
from kvdemo.experiments.wording import headline, plain, scope_line
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.model import Loading
from kvdemo.facts.plans import MemoryPlan
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ComparisonResult, Progress
from kvdemo.facts.units import format_bytes, format_count, format_seconds, format_speed

__all__ = ["answer_line", "loading", "print_comparison", "print_decision", "print_plan", "progress"]

LOOK_S = 0.2


def answer_line(record: RunRecord) -> str:
    """The figures of one answer in one line."""
    return (
        f"{format_count(record.prompt_tokens)} prompt tokens, {format_count(record.new_tokens)} new "
        f"({record.finish_reason}); first token {format_seconds(record.ttft_s)}; "
        f"{format_speed(record.decode_tokens_per_s)}; cache {format_bytes(record.cache_bytes)}; "
        f"{format_count(record.total_computed)} positions computed"
    )


@contextmanager
def loading(backend: Any) -> Iterator[None]:
    """Tell each step of the loading on stderr, where a person is looking."""
    settled = threading.Event()

    def watch() -> None:
        told = ""
        while not settled.wait(LOOK_S):
            status = backend.status()
            line = f"Loading {status.name}: {status.step}" if isinstance(status, Loading) else ""
            if line and line != told:
                told = line
                print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield
        return
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        settled.set()
        watcher.join()


@contextmanager
def progress() -> Iterator[Callable[[object], None]]:
    """A function that shows each Progress on stderr: in place on a terminal, elsewhere one line for each new phase."""
    last = ""
    live = sys.stderr.isatty()

    def show(step: object) -> None:
        nonlocal last
        if not isinstance(step, Progress):
            return
        of = f" of {step.of}" if step.of is not None else ""
        left = f", about {format_seconds(step.left_s)} left" if step.left_s is not None else ""
        line = f"{step.phase} ({step.done}{of} runs done{left})"
        if live:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif step.phase != last:
            print(line, file=sys.stderr, flush=True)
        last = step.phase

    try:
        yield show
    finally:
        if live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def print_comparison(result: ComparisonResult) -> None:
    """Headline, scope line and one row per arm."""
    print(plain(headline(result)))
    print(scope_line(result))
    print()
    rows = [
        (
            "Strategy",
            "First token",
            "Per token",
            "Speed",
            "Total, median",
            "Range",
            "n",
            "Tokens",
            "Cache held",
            "Computed",
        )
    ]
    for arm in arms(result):
        total = arm.generation_s
        rows.append(
            (
                arm.label,
                format_seconds(arm.ttft_s.median if arm.ttft_s else None),
                format_seconds(arm.tpot_s.median if arm.tpot_s else None),
                format_speed(arm.decode_tokens_per_s),
                format_seconds(total.median if total else None),
                f"{format_seconds(total.low)} to {format_seconds(total.high)}" if total else "n/a",
                str(arm.n),
                "n/a" if arm.tokens is None else " to ".join(str(count) for count in dict.fromkeys(arm.tokens)),
                format_bytes(arm.cache_bytes) if arm.cache_bytes else "nothing kept",
                format_count(arm.positions_computed),
            )
        )
    _print_table(rows)


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
        ("weights", plan.weight_bytes),
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
        print(f"  budget {budget}: {verdict}; {most} such requests fit at once")
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
    _print_table(rows)
    for note in dict.fromkeys((*architecture.notes, *plan.notes)):
        print(note)


def print_decision(decision: CacheDecision) -> None:
    """Which cache is in force, and every conflict on its own line."""
    print(f"In force: {decision.sentence()}")
    if decision.cache_implementation is not None:
        print(f"cache_implementation: {decision.cache_implementation}")
    for conflict in decision.conflicts:
        print(f"Note: {conflict}")


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


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell, the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())
