"""The answers to the further questions in words: growth, a set of prompts, a shared prefix. Pure.

Pieces as in wording.py: a list of (text, strong).
"""

from __future__ import annotations

from collections.abc import Iterable

from kvdemo.experiments.finding import Pieces, factor
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.questions import GrowthResult, PromptSetResult, SetComparison
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ComparisonResult
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds
from kvdemo.questions.prefix.spec import PrefixResult

__all__ = ["growth_headline", "notices", "prefix_headline", "prompt_set_headline"]

ENOUGH = 6  # prompts or questions that make an interval


def notices(result: ComparisonResult | GrowthResult | PromptSetResult | PrefixResult) -> tuple[str, ...]:
    """What must be known about how prompts came to the model, each sentence once; of a set with the prompts it is about."""
    if isinstance(result, ComparisonResult):
        return _said_of(result.runs)
    if isinstance(result, GrowthResult):
        return tuple(dict.fromkeys(words for point in result.points for words in notices(point.result)))
    if isinstance(result, PrefixResult):
        return _said_of([*result.warmups, *(run for pair in result.pairs for run in (pair.fresh, pair.kept))])
    about: dict[str, list[str]] = {}
    for item in result.prompts:
        for words in notices(item.result):
            about.setdefault(words, []).append(item.row.id)
    return tuple(
        words if len(ids) == len(result.prompts) else f"{', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}: {words}"
        for words, ids in about.items()
    )


def _said_of(runs: Iterable[RunRecord]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words for run in runs for words in run.notices))


def growth_headline(result: GrowthResult) -> Pieces:
    """From the smallest to the largest request that was measured: what became of the ratio?"""
    pieces: Pieces = []
    for candidate in result.spec.strategies[1:]:
        known = [(point, point.result.comparison(candidate)) for point in result.points]
        measured = [(point, item) for point, item in known if item is not None and item.ratio is not None]
        if not measured:
            continue
        label = _label(result.strategies, candidate)
        (small, first), (large, last) = measured[0], measured[-1]
        if small is large:
            words = f"{label}: {factor(first.ratio or 1)} at {format_count(small.total_tokens)} tokens."
        else:
            words = (
                f"{label}: {factor(first.ratio or 1)} at {_size(small.prompt_tokens, small.new_tokens)},"
                f" {factor(last.ratio or 1)} at {_size(large.prompt_tokens, large.new_tokens)}."
            )
        pieces.append((f" {words}" if pieces else words, True))
    if not pieces:
        pieces.append(("No point was completed, so there is nothing to compare.", True))
    elif result.spec.rounds < ENOUGH:
        rounds = "one round" if result.spec.rounds == 1 else f"{result.spec.rounds} rounds"
        pieces.append((f" A first look: {rounds} at each point.", False))
    return [*pieces, *_ended(result.stopped_because, len(result.points), len(result.left_out), "points")]


def prompt_set_headline(result: PromptSetResult) -> Pieces:
    """What did the set as a whole gain, and which prompt gained least?"""
    pieces: Pieces = []
    for item in result.comparisons:
        if item.ratio is None:
            continue
        label = _label(result.strategies, item.candidate)
        pieces.append((f"{' ' if pieces else ''}{label}: {factor(item.ratio)}", True))
        pieces.append((f"{_over_prompts(item)}.", False))
        if item.total_ratio is not None and item.prompts > 1:
            pieces.append((f" The whole set: {format_ratio(item.total_ratio)} times.", False))
        if item.worst_ratio is not None and item.prompts > 1:
            pieces.append((f" Least on {item.worst_id}: {format_ratio(item.worst_ratio)} times.", False))
        if item.different_ids:
            many = len(item.different_ids)
            pieces.append((f" The tokens differ on {many} {'prompt' if many == 1 else 'prompts'}.", False))
    if not pieces:
        pieces.append(("No prompt was completed, so there is nothing to compare.", True))
    return [*pieces, *_ended(result.stopped_because, len(result.prompts), len(result.not_run), "prompts")]


def prefix_headline(result: PrefixResult) -> Pieces:
    """How much sooner is the first token, at what price, and when does it pay?"""
    if result.ratio is None or result.fresh_ttft_s is None or result.kept_ttft_s is None:
        return [("No question was answered both ways, so there is nothing to compare.", True)]
    kept, fresh = format_seconds(result.kept_ttft_s.median), format_seconds(result.fresh_ttft_s.median)
    asked = sum(pair.counts for pair in result.pairs)
    times = f"{kept} to the first token with the prefix kept, {fresh} without: {factor(result.ratio)}"
    pieces: Pieces = [(times, True), (f"{_between(result.low, result.high, asked, 'questions')}.", False)]
    prefix = result.prefix
    pieces.append(
        (
            f" It keeps {format_count(prefix.num_tokens)} tokens in {format_bytes(prefix.cache_bytes)},"
            f" processed once in {format_seconds(prefix.prepare_s)}.",
            False,
        )
    )
    if result.pays_after is None:
        pieces.append((" It does not pay: no time was saved.", True))
    else:
        word = "question" if result.pays_after == 1 else "questions"
        pieces.append((f" It pays from {format_count(result.pays_after)} {word} on.", True))
    differ = [pair for pair in result.pairs if pair.verdict.same_output is False]
    if not differ:
        pieces.append((" Same tokens on every question.", False))
    elif any(pair.verdict.expected_equal for pair in differ):
        pieces.append((f" The tokens differ on {len(differ)} of them: in greedy float32 this is a fault.", True))
    else:
        pieces.append((f" The tokens differ on {len(differ)} of them. This is no test of quality.", False))
    if result.stopped_because != "questions":
        left = len(result.spec.questions) - len(result.pairs)
        pieces += _ended(result.stopped_because, len(result.pairs), left, "questions")
    return pieces


def _label(rows: tuple[StrategyRow, ...], key: str) -> str:
    return next((row.label for row in rows if row.key == key), key)


def _size(prompt_tokens: int, new_tokens: int) -> str:
    return f"{format_count(prompt_tokens)} prompt and {format_count(new_tokens)} new tokens"


def _over_prompts(item: SetComparison) -> str:
    return _between(item.low, item.high, item.prompts, "prompts")


def _between(low: float | None, high: float | None, count: int, what: str) -> str:
    if low is None or high is None:
        return f" on one {what.removesuffix('s')}"
    between = f"{format_ratio(low)} to {format_ratio(high)}"
    return f" ({between} over {count} {what})" if count >= ENOUGH else f" on {count} {what} (range {between})"


def _ended(reason: str, done: int, left: int, what: str) -> Pieces:
    words = {
        "budget": f" The time budget ended after {done} {what}; {left} were left out.",
        "limit": f" The time limit ended it after {done} {what}; {left} were left out.",
        "stopped": f" Stopped after {done} {what}; {left} were left out.",
    }.get(reason)
    return [(words, False)] if words else []
