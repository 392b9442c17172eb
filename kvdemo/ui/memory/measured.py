"""Caches of the loaded model, really filled and weighed: how it goes, what was found, in words and as a table."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import table, text
from kvdemo.components.wiring import MEASURING
from kvdemo.errors import KvdemoError
from kvdemo.experiments.tables import Table
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.plans import Architecture, MeasuredPoint
from kvdemo.facts.requests import MeasureSpec
from kvdemo.facts.units import format_count
from kvdemo.ui.memory.measured_tables import differences_table, measured_table

__all__ = ["Weighing", "lengths_of", "measure", "measured_card"]

LENGTHS = (32, 256, 1024)
LONGEST_TRIED = 2048
"""A length of the form up to this one is measured, too; beyond it a prefill takes too long for a press of a button."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """How far the measuring is: a line for the form, a card for the results (None: as it is), the points at the end."""

    line: str
    card: str | None = None
    points: tuple[MeasuredPoint, ...] | None = None
    done: bool = False


def measure(backend: Backend, owner: str, seq_len: object = None) -> Generator[Weighing, None, None]:
    """Fill caches of the loaded model and weigh them, with every strategy that can be used and makes its own cache."""
    points: list[MeasuredPoint] = []
    total = 0
    try:
        rows = {row.key: row for row in backend.strategies()}
        keys = tuple(key for key, row in rows.items() if row.unavailable_reason is None and _own_cache(row))
        lengths = lengths_of(backend.architecture(), backend.describe().context_limit, seq_len)
        total = len(lengths) * len(keys)
        yield Weighing(_going(0, total))
        found = backend.measure_memory(MeasureSpec(lengths, keys), owner=owner, reader=MEASURING)
        try:
            for step in found:
                if isinstance(step, MeasuredPoint):
                    points.append(step)
                yield Weighing(_going(len(points), total))
        finally:
            found.close()
    except KvdemoError as error:
        line = Markup('<div class="kv-notice" role="alert">{}</div>').format(text(error))
        yield Weighing(line, measured_card(points, total, rows) if points else None, tuple(points) or None, done=True)
        return
    if not points:
        line = Markup('<div class="kv-small" role="status">Stopped before anything was measured.</div>')
        yield Weighing(line, Markup('<div class="kv-card kv-measured">{}</div>').format(line), done=True)
        return
    yield Weighing(
        Markup('<div class="kv-small" role="status">{}</div>').format(text(_found(points))),
        measured_card(points, total, rows),
        tuple(points),
        done=True,
    )


def lengths_of(geometry: Architecture, limit: int | None, seq_len: object = None) -> tuple[int, ...]:
    """Lengths to measure: short, middle, long, the asked one, and below, at and above the shortest window."""
    windows = [layer.window for layer in geometry.layers if layer.window and layer.window <= LONGEST_TRIED // 2]
    around = (min(windows) - 1, min(windows), 2 * min(windows)) if windows else ()
    asked = (
        (seq_len,) if isinstance(seq_len, int) and not isinstance(seq_len, bool) and seq_len <= LONGEST_TRIED else ()
    )
    most = LONGEST_TRIED if limit is None else limit - 1
    return tuple(sorted({length for length in (*LENGTHS, *around, *asked) if 2 <= length <= most})) or (2,)


def measured_card(points: Sequence[MeasuredPoint], planned: int, rows: Mapping[str, StrategyRow]) -> str:
    """Predicted and measured beside each other: what was found, where it differs and why, and every cache on demand."""
    labels = {key: row.label for key, row in rows.items()}
    stopped = "" if len(points) == planned else f" Stopped after {len(points)} of {planned} caches."
    differing = differences_table(points, labels)
    tables = _table(differing, "Where they differ, and why") if len(differing) else ""
    tables += Markup("<details><summary>Every cache that was weighed ({})</summary>{}</details>").format(
        len(points),
        _table(measured_table(points, labels), "Predicted and measured, one row per cache and kind of layer"),
    )
    said = Markup("").join(
        Markup('<p class="kv-small">{}</p>').format(text(sentence)) for sentence in _explained(points, rows)
    )
    return Markup(
        '<div class="kv-card kv-measured"><h2 class="kv-card-title">Measured on the loaded model'
        '</h2><p class="kv-said"><strong>{}</strong>{}</p>{}{}</div>'
    ).format(text(_found(points)), text(stopped), tables, said)


def _own_cache(row: StrategyRow) -> bool:
    """Does it make a cache that no other strategy makes? Compiling changes the steps, not the cache."""
    return row.key != "none" and not row.compiles


def _found(points: Sequence[MeasuredPoint]) -> str:
    layers = [layer for point in points for layer in point.layers]
    exact = sum(layer.held_bytes == layer.predicted_bytes for layer in layers)
    caches = f"{len(points)} measured {'cache' if len(points) == 1 else 'caches'}"
    if exact == len(layers):
        each = len(points[0].layers)
        return f"{each} of {each} layers hold exactly what was predicted, in {caches}: 0 bytes difference."
    apart = sum(abs(layer.held_bytes - layer.predicted_bytes) for layer in layers)
    return (
        f"{format_count(exact)} of {format_count(len(layers))} layers in {caches} hold exactly what was predicted; "
        f"the others differ by {format_count(apart)} bytes."
    )


def _explained(points: Sequence[MeasuredPoint], rows: Mapping[str, StrategyRow]) -> Iterator[str]:
    """What the columns mean, and what was left out."""
    yield "Held: the bytes of the cache's tensors. Storage: all memory that stays allocated for them."
    kinds = {point.process_kind for point in points if point.process_bytes is not None}
    if kinds:
        whose = "the process (resident)" if "resident" in kinds else "the device (its allocator)"
        yield f"Peak memory: how far {whose} rose during the run; it also holds activations and is no measure of the cache."
    same = [row.label for row in rows.values() if row.unavailable_reason is None and row.compiles]
    if same:
        yield f"Not filled again: {', '.join(same)}, which makes the same cache as without compiling."
    missing = [row.label for row in rows.values() if row.unavailable_reason is not None]
    if missing:
        yield f"Not available here: {', '.join(missing)}."


def _going(done: int, total: int) -> str:
    return Markup('<div class="kv-small" role="status">Filling caches and weighing them: {} of {} done.</div>').format(
        done, total
    )


def _table(cells: Table, caption: str) -> str:
    return table([text(name) for name in cells.names], [map(text, row) for row in cells.rows], caption=caption)
