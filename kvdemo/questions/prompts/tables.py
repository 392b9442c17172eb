"""The table of a set of prompts: what each of them gained."""

from __future__ import annotations

from kvdemo.experiments.tables import Table, ratio_cell, same_cell
from kvdemo.facts.units import format_count
from kvdemo.questions.prompts.spec import PromptSetResult

__all__ = ["prompt_set_table"]


def prompt_set_table(result: PromptSetResult) -> Table:
    """What did each prompt gain? One row per prompt and arm beside the baseline, in the order of the set."""
    rows = []
    for item in result.prompts:
        for candidate in result.spec.strategies[1:]:
            comparison = item.result.comparison(candidate)
            counted = item.result.counted(candidate)
            rows.append(
                {
                    "Prompt": item.row.id,
                    "Strategy": item.result.row(candidate).label,
                    "Prompt tokens": format_count(counted[-1].prompt_tokens if counted else None),
                    "New tokens": format_count(counted[-1].new_tokens if counted else None),
                    "Times faster": ratio_cell(comparison),
                    "Same tokens": same_cell(comparison.verdict.same_output if comparison else None),
                }
            )
    return Table.of(rows)
