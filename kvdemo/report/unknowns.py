"""What a comparison does not tell: sentences for the third part of a report's first page. Pure words."""

from __future__ import annotations

from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.experiments.wording import DEMONSTRATION_PROMPT
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.results import ComparisonResult
from kvdemo.facts.units import format_count

__all__ = ["not_yet_known"]


def not_yet_known(result: ComparisonResult, decision: CacheDecision | None) -> list[str]:
    """What is open after this comparison, the gravest first; never empty, since one prompt says little of others."""
    spec, counted = result.spec, [run for run in result.runs if run.counts]
    rounds = min((sum(run.strategy == key for run in counted) for key in spec.strategies), default=0)
    sentences = []
    if decision is None:
        sentences.append("Which cache your application uses now: python -m kvdemo inspect tells.")
    sentences += [
        f"Why the tokens of {item.baseline} and {item.candidate} differ: greedy float32 must agree."
        for item in result.comparisons
        if item.metric == "generation_s" and item.verdict.expected_equal and item.verdict.same_output is False
    ]
    if rounds < MIN_ROUNDS:
        done = "no round was" if rounds == 0 else "one round was" if rounds == 1 else f"{rounds} rounds were"
        sentences.append(f"How well the ratio repeats: {done} completed, and an interval needs {MIN_ROUNDS}.")
    if spec.prompt.strip() == DEMONSTRATION_PROMPT:
        sentences.append("The ratio on your prompts: this is the demonstration prompt.")
    else:
        sentences.append("The ratio on other prompts: one was measured.")
    if counted:
        size = f"{format_count(counted[-1].prompt_tokens)} prompt and {format_count(counted[-1].new_tokens)} new tokens"
        sentences.append(f"The ratio at other lengths: {size} were measured, and gain and bytes change with both.")
    sentences.append("The ratio with many requests at once: one ran at a time.")
    if spec.fixed_length:
        sentences.append("Where your answers end: every arm was held to the same number of tokens.")
    if any(not result.row(key).exact for key in spec.strategies):
        sentences.append(
            "What a lossy cache does to quality: equal or different tokens on one prompt are no test of it."
        )
    if not any(run.peak_bytes is not None for run in counted):
        sentences.append("The peak of memory: it was not measured.")
    left_out = sum(run.status != "ok" for run in result.runs)
    if left_out:
        runs = "one run" if left_out == 1 else f"{left_out} runs"
        sentences.append(f"Why {runs} did not finish: marked in the table of runs, counted in nothing.")
    return sentences
