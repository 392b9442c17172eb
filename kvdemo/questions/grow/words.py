"""Growth in words: what became of the ratio from the smallest to the largest request. Pure."""

from __future__ import annotations

from kvdemo.experiments.pieces import (
    ENOUGH,
    IN_ROUNDS,
    Pieces,
    asked_rows,
    decision_open,
    ended_words,
    factor,
    factors,
    first_error,
    label_of,
    scope_words,
)
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_count
from kvdemo.questions.grow.spec import GrowthPoint, GrowthResult

METHOD = f"Every point is a comparison of its own. {IN_ROUNDS}"
CAPTION = "One row per request size and strategy: medians"


def headline(result: GrowthResult) -> Pieces:
    """From the smallest to the largest request that was measured: what became of the ratio?"""
    pieces: Pieces = []
    for candidate in result.spec.strategies[1:]:
        known = [(point, point.result.comparison(candidate)) for point in result.points]
        measured = [(point, item) for point, item in known if item is not None and item.ratio is not None]
        if not measured:
            continue
        label = label_of(result.strategies, candidate)
        (small, first), (large, last) = measured[0], measured[-1]
        if small is large:
            words = (
                f"{label}: {factor(first.ratio or 1, small.result.noise)} at {format_count(small.total_tokens)} tokens."
            )
        else:
            words = (
                f"{label}: {factor(first.ratio or 1, small.result.noise)} at {_size(small.prompt_tokens, small.new_tokens)},"
                f" {factor(last.ratio or 1, large.result.noise)} at {_size(large.prompt_tokens, large.new_tokens)}."
            )
        pieces.append((f" {words}" if pieces else words, True))
    if not pieces:
        pieces.append(("No point was completed, so there is nothing to compare.", True))
        pieces += first_error(item.result for item in result.points)
    elif result.spec.rounds < ENOUGH:
        rounds = "one round" if result.spec.rounds == 1 else f"{result.spec.rounds} rounds"
        pieces.append((f" A first look: {rounds} at each point.", False))
    return [*pieces, *ended_words(result.stopped_because, len(result.points), len(result.left_out), "points")]


def scope(result: GrowthResult) -> str:
    """What was it measured on?"""
    return scope_words(result.model, result.environment)


def so_far(step: object) -> str:
    """A point that was measured."""
    return (
        f"{_size(step.prompt_tokens, step.new_tokens)}: {factors(step.result)}" if isinstance(step, GrowthPoint) else ""
    )


def open_points(result: GrowthResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell."""
    return [
        *decision_open(decision is not None),
        *(f"{_size(*size)}: time did not allow this point." for size in result.left_out),
        "Requests beyond the longest one that was allowed.",
        "Many requests at once: one ran at a time.",
    ]


def request(result: GrowthResult) -> list[tuple[str, str]]:
    """What was asked."""
    spec = result.spec
    return asked_rows(
        {
            "strategies": spec.strategies,
            "rounds": spec.rounds,
            "longest tokens": spec.longest_tokens,
            "prompt lengths": spec.prompt_tokens,
            "answer lengths": spec.new_tokens,
        }
    )


def verdicts(result: GrowthResult) -> list[str]:
    """The table says it row by row."""
    return []


def remarks(result: GrowthResult) -> list[str]:
    """The table says all."""
    return []


def command(result: GrowthResult) -> list[str]:
    """The switches that repeat it; the text that prompts are cut from is in a file of one's own."""
    spec = result.spec
    words = ["--longest", str(spec.longest_tokens)]
    for name, lengths in (("--prompt-lengths", spec.prompt_tokens), ("--answer-lengths", spec.new_tokens)):
        words += [name, ",".join(map(str, lengths))] if lengths else []
    for strategy in spec.strategies:
        words += ["--strategy", strategy]
    words += ["--rounds", str(spec.rounds)]
    return [*words, *(["--time-budget", f"{spec.time_budget_s:g}"] if spec.time_budget_s else [])]


def _size(prompt_tokens: int, new_tokens: int) -> str:
    return f"{format_count(prompt_tokens)} prompt and {format_count(new_tokens)} new tokens"
