"""Tables of the further questions: growth by point, a set by prompt, a shared prefix by question, in words with units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from kvdemo.experiments.summary import arms
from kvdemo.facts.questions import GrowthResult, PromptSetResult
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ArmSummary, Comparison, ComparisonResult
from kvdemo.facts.units import NOT_AVAILABLE, format_bytes, format_count, format_ratio, format_seconds
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.prefix.spec import PrefixResult
from kvdemo.report.frames import run_row

__all__ = ["any_runs_table", "growth_frame", "placed_runs", "prefix_frame", "prompt_set_frame"]


def growth_frame(result: GrowthResult) -> pd.DataFrame:
    """What was measured at each point? One row per request size and arm; the baseline's ratio is left empty."""
    rows = []
    for point in result.points:
        for arm in arms(point.result):
            comparison = point.result.comparison(arm.strategy)
            rows.append(
                {
                    "Prompt tokens": format_count(point.prompt_tokens),
                    "New tokens": format_count(point.new_tokens),
                    "Strategy": arm.label,
                    "Times faster": ratio_words(comparison) if comparison else "",
                    "Total, median": format_seconds(arm.generation_s.median if arm.generation_s else None),
                    "Per token": format_seconds(arm.tpot_s.median if arm.tpot_s else None),
                    "Added per token of context": slope_cell(arm),
                    "Cache held": format_bytes(arm.cache_bytes),
                    "Peak memory": format_bytes(arm.peak_bytes.median if arm.peak_bytes else None),
                    "Runs": format_count(arm.n),
                }
            )
    return pd.DataFrame(rows)


def prompt_set_frame(result: PromptSetResult) -> pd.DataFrame:
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
                    "Times faster": ratio_words(comparison),
                    "Same tokens": same_words(comparison.verdict.same_output if comparison else None),
                }
            )
    return pd.DataFrame(rows)


def prefix_frame(result: PrefixResult) -> pd.DataFrame:
    """How soon did each answer begin? One row per question, the prefix processed every time and kept."""
    return pd.DataFrame(
        [
            {
                "Question": pair.question,
                "First token, every time": format_seconds(pair.fresh.ttft_s),
                "First token, kept": format_seconds(pair.kept.ttft_s),
                "Saved": format_seconds(pair.saved_s),
                "Tokens reused": f"{format_count(pair.kept.reused_tokens)} of {format_count(pair.kept.prompt_tokens)}",
                "Same tokens": same_words(pair.verdict.same_output),
            }
            for pair in result.pairs
        ]
    )


def placed_runs(result: AnyResult) -> Iterator[tuple[dict[str, Any], RunRecord]]:
    """Every run of any result with its place in it: the point, the prompt, or the question; {} in a comparison."""
    if isinstance(result, ComparisonResult):
        yield from (({}, run) for run in result.runs)
    elif isinstance(result, GrowthResult):
        for point in result.points:
            place = {"point_prompt_tokens": point.prompt_tokens, "point_new_tokens": point.new_tokens}
            yield from ((place, run) for run in point.result.runs)
    elif isinstance(result, PromptSetResult):
        for item in result.prompts:
            yield from (({"prompt_id": item.row.id}, run) for run in item.result.runs)
    else:
        yield from (({"question": "", "prefix": "warm-up"}, run) for run in result.warmups)
        for pair in result.pairs:
            yield {"question": pair.question, "prefix": "processed"}, pair.fresh
            yield {"question": pair.question, "prefix": "kept"}, pair.kept


def any_runs_table(result: AnyResult) -> pd.DataFrame:
    """What did each run do? As runs_table, with the run's place in front."""
    rows = getattr(result, "strategies", ())
    labels = {row.key: row.label for row in rows}
    return pd.DataFrame(
        [
            {name.replace("_", " ").capitalize(): str(value) for name, value in place.items()}
            | run_row(run, labels.get(run.strategy, run.strategy))
            for place, run in placed_runs(result)
        ]
    )


def ratio_words(comparison: Comparison | None) -> str:
    if comparison is None or comparison.ratio is None:
        return NOT_AVAILABLE
    if comparison.low is None or comparison.high is None:
        return format_ratio(comparison.ratio)
    return f"{format_ratio(comparison.ratio)} ({format_ratio(comparison.low)} to {format_ratio(comparison.high)})"


def same_words(same: bool | None) -> str:
    return NOT_AVAILABLE if same is None else "yes" if same else "no"


def slope_cell(arm: ArmSummary) -> str:
    """The slope of the step time with its interval."""
    line = arm.step_line
    if line is None or line.low is None or line.high is None:
        return "no slope seen" if arm.step_s else NOT_AVAILABLE
    return f"{line.slope * 1000:.2g} ms ({line.low * 1000:.2g} to {line.high * 1000:.2g})"
