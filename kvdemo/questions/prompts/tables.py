"""The table of a set of prompts: what each of them gained."""

from __future__ import annotations

from kvdemo.experiments.tables import Table, ratio_cell, same_cell
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.questions.prompts.spec import PromptResult, PromptSetResult

__all__ = ["prompt_set_table"]


def prompt_set_table(result: PromptSetResult) -> Table:
    """What did each prompt gain? One row per prompt and arm beside the baseline, in the order of the set."""
    if len(result.spec.strategies) == 1:
        return Table.of([_alone(item) for item in result.prompts])
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


def _alone(item: PromptResult) -> dict[str, str]:
    """A prompt that only one arm ran: its own times."""
    arm = item.result.arm_summaries[0]
    return {
        "Prompt": item.row.id,
        "Prompt tokens": format_count(arm.prompt_tokens),
        "New tokens": format_count(arm.tokens[1] if arm.tokens else None),
        "First token": format_seconds(arm.ttft_s.median if arm.ttft_s else None),
        "Per token": format_seconds(arm.tpot_s.median if arm.tpot_s else None),
        "Complete request": format_seconds(arm.request_s.median if arm.request_s else None),
    }
