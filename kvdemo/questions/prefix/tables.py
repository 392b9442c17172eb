"""The table of a shared prefix: how soon each answer began."""

from __future__ import annotations

from kvdemo.experiments.tables import Table, as_reported, same_cell
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import NOT_AVAILABLE, format_count, format_seconds
from kvdemo.questions.prefix.spec import PrefixResult

__all__ = ["prefix_table"]


def reused(run: RunRecord) -> str:
    """ "500 of 520"."""
    if run.reused_tokens is None:
        return NOT_AVAILABLE
    return f"{format_count(run.reused_tokens)} of {format_count(run.prompt_tokens)}"


def prefix_table(result: PrefixResult) -> Table:
    """How soon did each answer begin? One row per question, the prefix processed every time and kept."""
    return Table.of(
        as_reported(
            {
                "Question": pair.question,
                "First token, every time": format_seconds(pair.fresh.ttft_s),
                "First token, kept": format_seconds(pair.kept.ttft_s),
                "Saved": format_seconds(pair.saved_s),
                "Tokens reused": reused(pair.kept),
                "Same tokens": same_cell(pair.verdict.same_output),
            },
            served=pair.kept.reported is not None,
        )
        for pair in result.pairs
    )
