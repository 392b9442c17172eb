"""Tables of words: what a result says row by row, before a page, a report or a terminal gives it its form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kvdemo.experiments.comparison import Comparison
from kvdemo.facts.endpoint import NOT_REPORTED
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count, format_ratio, format_seconds, format_speed

__all__ = ["PlacedRuns", "Table", "as_reported", "ratio_cell", "runs_table", "same_cell"]

OF_THE_SERVER = frozenset(
    {
        *("Computed", "Computed for each forward", "Read", "Padding", "Reused", "Tokens reused"),
        *("Cache held", "Cache reserved", "Cache used", "Peak memory"),
    }
)
"""Columns that only whoever runs the model can fill."""

PlacedRuns = Iterable[tuple[Mapping[str, object], RunRecord]]
"""(where the run stands in its result, by name; the run)"""


@dataclass(frozen=True, slots=True)
class Table:
    """names: of the columns; rows: one cell per column, words with their units."""

    names: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str]], names: tuple[str, ...] = ()) -> Table:
        """Rows by column name; a name that only some rows have is empty in the others. names: where there may be no row."""
        known = list(rows)
        every = names or tuple(dict.fromkeys(name for row in known for name in row))
        return cls(every, tuple(tuple(row.get(name, "") for name in every) for row in known))

    def __getitem__(self, name: str) -> tuple[str, ...]:
        """A column, top to bottom."""
        at = self.names.index(name)
        return tuple(row[at] for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def runs_table(runs: PlacedRuns, labels: Mapping[str, str]) -> Table:
    """What did each run do? One row per run, its place in front, warm-ups and unfinished ones marked.

    Queue wait, preparing (template and tokenising), first token (prefill) and decode stand apart. labels: of the arms.
    """
    return Table.of(_row(place, run, labels.get(run.arm_key, run.arm_key)) for place, run in runs)


def _row(place: Mapping[str, object], run: RunRecord, label: str) -> dict[str, str]:
    cells = as_reported(dict(_cells(run, label)), served=run.reported is not None)
    return {name.replace("_", " ").capitalize(): str(value) for name, value in place.items()} | cells


def as_reported(row: Mapping[str, str], *, served: bool) -> dict[str, str]:
    """The row of a server's runs: what only the server can know, and does not say, is "not reported"."""
    return {
        name: NOT_REPORTED if served and name in OF_THE_SERVER and words == NOT_AVAILABLE else words
        for name, words in row.items()
    }


def _cells(run: RunRecord, label: str) -> Iterator[tuple[str, str]]:
    yield "Strategy", label
    yield "Round", "warm-up" if run.warmup else "" if run.round is None else f"{run.round}"
    yield "Status", run.status.replace("_", " ")
    yield "Ended by", (run.finish_reason or "").replace("_", " ")
    yield "Queue wait", format_seconds(run.queue_s)
    yield "Preparing", format_seconds(run.prepare_s)
    yield "First token", format_seconds(run.ttft_s)
    yield "Decode", format_seconds(run.decode_s)
    yield "Total", format_seconds(run.generation_s)
    yield "Complete request", format_seconds(run.request_s)
    yield "Per token", format_seconds(run.tpot_s)
    yield "Speed", format_speed(run.decode_tokens_per_s)
    yield "Tokens", format_count(run.new_tokens)
    yield "Computed", format_count(run.total_computed)
    yield "Cache held", format_bytes(run.cache_bytes)
    yield "Peak memory", format_bytes(run.peak_bytes) + (f", {run.peak_kind}" if run.peak_kind else "")


def ratio_cell(comparison: Comparison | None) -> str:
    """ "4.2 (4.0 to 4.5)"."""
    if comparison is None or comparison.ratio is None:
        return NOT_AVAILABLE
    if comparison.low is None or comparison.high is None:
        return format_ratio(comparison.ratio)
    return f"{format_ratio(comparison.ratio)} ({format_ratio(comparison.low)} to {format_ratio(comparison.high)})"


def same_cell(same: bool | None) -> str:
    """Are the tokens the same?"""
    return NOT_AVAILABLE if same is None else "yes" if same else "no"
