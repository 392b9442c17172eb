"""A set of prompts in words: what it gained as a whole, and which prompt gained least. Pure."""

from __future__ import annotations

from kvdemo.experiments.pieces import (
    IN_ROUNDS,
    Pieces,
    asked_rows,
    between_words,
    decision_open,
    ended_words,
    factor,
    factors,
    first_error,
    label_of,
    scope_words,
)
from kvdemo.experiments.statistics import median, spread
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_count, format_seconds, format_speed
from kvdemo.questions.prompts.spec import PromptResult, PromptSetResult

METHOD = f"Every prompt is a comparison of its own. {IN_ROUNDS} That of the set is the median over its prompts."
CAPTION = "One row per prompt: its own ratio"


def headline(result: PromptSetResult) -> Pieces:
    """What did the set as a whole gain, and which prompt gained least?"""
    pieces: Pieces = []
    noise = next((item.result.noise for item in result.prompts if item.result.noise is not None), None)
    for item in result.comparisons:
        if item.ratio is None:
            continue
        label = label_of(result.strategies, item.candidate)
        pieces.append((f"{' ' if pieces else ''}{label}: {factor(item.ratio, noise)}", True))
        pieces.append((f"{between_words(item.ratio, item.low, item.high, item.prompts, 'prompts')}.", False))
        if item.total_ratio is not None and item.prompts > 1:
            pieces.append((f" The whole set: {factor(item.total_ratio)}.", False))
        if item.worst_ratio is not None and item.prompts > 1:
            pieces.append((f" Least on {item.worst_id}: {factor(item.worst_ratio)}.", False))
        if item.different_ids:
            many = len(item.different_ids)
            pieces.append((f" The tokens differ on {many} {'prompt' if many == 1 else 'prompts'}.", False))
    if not pieces:
        pieces += _alone(result)
    if not pieces:
        pieces.append(("No prompt was completed, so there is nothing to compare.", True))
        pieces += first_error(item.result for item in result.prompts)
    return [*pieces, *ended_words(result.stopped_because, len(result.prompts), len(result.not_run), "prompts")]


def _alone(result: PromptSetResult) -> Pieces:
    """One arm by itself, of a server: its figures, and nothing to compare them with; [] where there is another, or no run."""
    runs = [run for item in result.prompts for run in item.result.runs if run.counts]
    first = spread(run.ttft_s for run in runs)
    if len(result.spec.strategies) > 1 or first is None:
        return []
    per_token = median(run.tpot_s for run in runs)
    speed = f", then {format_speed(1 / per_token)}" if per_token else ""
    many = sum(any(run.counts for run in item.result.runs) for item in result.prompts)
    between = f" ({format_seconds(first.low)} to {format_seconds(first.high)})" if first.n > 1 else ""
    return [
        (f"First token after {format_seconds(first.median)}", True),
        (f"{between}{speed}: medians over {format_count(many)} {'prompt' if many == 1 else 'prompts'}.", False),
    ]


def scope(result: PromptSetResult) -> str:
    """What was it measured on?"""
    return scope_words(result.model, result.environment)


def so_far(step: object) -> str:
    """A prompt that was measured."""
    return f"{step.row.id[:60]}: {factors(step.result)}" if isinstance(step, PromptResult) else ""


def open_points(result: PromptSetResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell."""
    return [
        *decision_open(decision is not None),
        *([f"Prompts that time did not allow: {', '.join(result.not_run)}."] if result.not_run else []),
        "Prompts that are unlike those of the set.",
        "Many requests at once: one ran at a time.",
    ]


def request(result: PromptSetResult) -> list[tuple[str, str]]:
    """What was asked."""
    spec = result.spec
    return asked_rows(
        {
            "prompts": len(spec.prompts),
            "strategies": spec.strategies,
            "rounds": spec.rounds,
            "new tokens": spec.max_new_tokens,
            "fixed length": spec.fixed_length,
            "longest tokens": spec.longest_tokens,
        }
    )


def verdicts(result: PromptSetResult) -> list[str]:
    """The table says it row by row."""
    return []


def remarks(result: PromptSetResult) -> list[str]:
    """The table says all."""
    return []


def command(result: PromptSetResult) -> list[str]:
    """The prompts are in a file of one's own."""
    return []
