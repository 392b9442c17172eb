"""A comparison in words that are as strong as its evidence. Pure: a result in, sentences out.

A sentence is a list of pieces (text, strong), so that the page, the report and the terminal each mark the strong
parts in their own way. It knows nothing of HTML or Markdown.
"""

from __future__ import annotations

from kvdemo.experiments.finding import Finding, Piece, Pieces, factor, label, tokens_word
from kvdemo.facts.results import Comparison, ComparisonResult
from kvdemo.facts.units import format_count, format_ratio

__all__ = ["DEMONSTRATION_PROMPT", "TIMED", "Piece", "Pieces", "headline", "plain", "scope_line"]

DEMONSTRATION_PROMPT = "The red cat was"
TIMED = "Timed: from accepted to last token. Left out: loading, warm-up, queue, drawing the page."


def plain(pieces: Pieces) -> str:
    """The words without their marks."""
    return "".join(text for text, _ in pieces)


def scope_line(result: ComparisonResult) -> str:
    """What was this measured on? Model, dtype, machine, prompt."""
    parts = [result.model.name.rsplit("/", 1)[-1], result.model.dtype, _machine(result)]
    prompt_tokens = next((run.prompt_tokens for run in reversed(result.runs) if run.prompt_tokens), None)
    if prompt_tokens is not None:
        parts.append(f"{format_count(prompt_tokens)} prompt {tokens_word(prompt_tokens)}")
    return f"{', '.join(parts)}. Other models, machines and lengths give other numbers."


def headline(result: ComparisonResult, candidate: str | None = None) -> Pieces:
    """What came out? About `candidate`, by default the fastest of the arms beside the baseline."""
    known = [item for item in result.comparisons if item.metric == "generation_s" and item.ratio is not None]
    if candidate is not None:
        known = [item for item in known if item.candidate == candidate]
    if not known:
        return [*_nothing(result), *_ending(result)]
    best = max(known, key=lambda item: item.ratio or 0.0)
    finding = Finding.of(result, best)
    pieces = [
        *finding.time_and_ratio(),
        *finding.tokens(),
        *finding.held(),
        *finding.request(),
        *_other_arms(result, known, best),
        *_ending(result),
    ]
    if finding.num_rounds < 2 or finding.only_range:
        pieces.append((" Enough to go on, not enough to decide: run 6 rounds.", False))
    if result.spec.prompt.strip() == DEMONSTRATION_PROMPT:
        pieces.append((" This is the demonstration prompt. Your decision needs your prompts.", False))
    return pieces


def _other_arms(result: ComparisonResult, known: list[Comparison], best: Comparison) -> Pieces:
    """One clause for each further arm."""
    clauses = []
    for item in known:
        if item is not best and item.ratio is not None:
            low, high = (item.low, item.high) if item.ratio >= 1 else (item.high, item.low)
            turn = 1 if item.ratio >= 1 else -1
            between = f" ({format_ratio(low**turn)} to {format_ratio(high**turn)})" if low and high else ""
            clauses.append(f"{factor(item.ratio)} with {label(result, item.candidate)}{between}")
    return [(f" Beside {label(result, best.baseline)}: {', '.join(clauses)}.", False)] if clauses else []


def _nothing(result: ComparisonResult) -> Pieces:
    """No round in which two arms finished: say so, and what went wrong."""
    errors = [
        f" The run with {label(result, run.strategy)} {_ENDED[run.status]}{f': {run.error}' if run.error else ''}"
        for run in result.runs
        if run.status in _ENDED
    ]
    return [
        ("No round was completed, so there is nothing to compare.", True),
        *[(f"{error.rstrip('. ')}.", False) for error in dict.fromkeys(errors)],
    ]


def _ending(result: ComparisonResult) -> Pieces:
    """Why the rounds ended, where that is not simply that all were done; and the runs that count in nothing."""
    done = max((item.rounds for item in result.comparisons), default=0)
    rounds = f"{done} {'round' if done == 1 else 'rounds'}"
    planned = f"{done} of {result.spec.rounds} rounds" if result.spec.time_budget_s is None else rounds
    sentence = {
        "clear": f" Clear after {rounds}: the interval is within 5 % of the ratio.",
        "budget": f" The time budget ended after {rounds}, before the interval was within 5 % of the ratio.",
        "stopped": f" Stopped after {planned}.",
        "limit": f" The time limit ended it after {planned}.",
    }.get(result.stopped_because, "")
    out = sum(run.status in ("failed", "timed_out") for run in result.runs)
    if out:
        sentence += (
            f" {out} {'run' if out == 1 else 'runs'} did not finish and {'counts' if out == 1 else 'count'} in nothing."
        )
    return [(sentence, False)] if sentence else []


_ENDED = {"failed": "failed", "timed_out": "ran past its time limit", "cancelled": "was stopped"}


def _machine(result: ComparisonResult) -> str:
    environment = result.environment
    if result.model.device.startswith("cpu"):
        return f"{environment.cpu_cores} CPU {'core' if environment.cpu_cores == 1 else 'cores'}"
    return environment.accelerator or result.model.device
