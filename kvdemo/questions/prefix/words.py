"""A shared prefix in words: how much sooner the first token comes, at what price, and when it pays. Pure."""

from __future__ import annotations

from kvdemo.experiments.hits import hit_words
from kvdemo.experiments.pieces import Pieces, asked_rows, between_words, decision_open, ended_words, factor, scope_words
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_bytes, format_count, format_seconds
from kvdemo.questions.prefix.spec import PrefixPair, PrefixResult

METHOD = (
    "Every question was asked both ways, the first in turn. The kept run's first-token time includes copying the kept "
    "cache. The ratio is taken for each question; the result is the median of the ratios."
)
CAPTION = "One row per question: time to its first token"


def headline(result: PrefixResult) -> Pieces:
    """How much sooner is the first token, at what price, and when does it pay?"""
    if result.ratio is None or result.fresh_ttft_s is None or result.kept_ttft_s is None:
        return [("No question was answered both ways, so there is nothing to compare.", True)]
    kept, fresh = format_seconds(result.kept_ttft_s.median), format_seconds(result.fresh_ttft_s.median)
    asked = sum(pair.counts for pair in result.pairs)
    times = f"{kept} to the first token with the prefix kept, {fresh} without: {factor(result.ratio)}"
    pieces: Pieces = [
        (times, True),
        (f"{between_words(result.ratio, result.low, result.high, asked, 'questions')}.", False),
    ]
    if served := _reported(result):
        return [*pieces, (served, False), *_ended(result)]
    prefix = result.prefix
    if prefix.num_tokens is not None and prefix.cache_bytes is not None:
        kept = f" It keeps {format_count(prefix.num_tokens)} tokens in {format_bytes(prefix.cache_bytes)}"
        once = "" if prefix.prepare_s is None else f", processed once in {format_seconds(prefix.prepare_s)}"
        pieces.append((f"{kept}{once}.", False))
    else:
        pieces.append((" What is kept for that is not known.", False))
    if result.pays_after is None and prefix.prepare_s is None:
        pieces.append((" When it pays is not known.", False))
    elif result.pays_after is None:
        pieces.append((" It does not pay: no time was saved.", True))
    else:
        word = "question" if result.pays_after == 1 else "questions"
        pieces.append((f" It pays from {format_count(result.pays_after)} {word} on.", True))
    verdicts = [pair.verdict.same_output for pair in result.pairs if pair.counts]
    differ = [pair for pair in result.pairs if pair.verdict.same_output is False]
    if None in verdicts and not differ:
        pieces.append((" Whether the tokens are equal is not known.", False))
    elif not differ:
        pieces.append((" Same tokens on every question.", False))
    elif any(pair.verdict.expected_equal for pair in differ):
        pieces.append((f" The tokens differ on {len(differ)} of them: in greedy float32 this is a fault.", True))
    else:
        pieces.append((f" The tokens differ on {len(differ)} of them. This is no test of quality.", False))
    return [*pieces, *_ended(result)]


def _reported(result: PrefixResult) -> str:
    """Of a server: how much of what it could it says that it reused, beside the change in time; "" for the model here."""
    if not any(pair.counts and pair.kept.reported is not None for pair in result.pairs):
        return ""
    said = hit_words(result.hits, result.page_tokens)
    if not said:
        return " How much it reused is not reported: the times are all there is."
    return f" It reports {said}: a hit rate is not a speed-up, the times are."


def _ended(result: PrefixResult) -> Pieces:
    left = len(result.spec.questions) - len(result.pairs)
    done = result.stopped_because == "questions"
    return [] if done else ended_words(result.stopped_because, len(result.pairs), left, "questions")


def scope(result: PrefixResult) -> str:
    """What was it measured on?"""
    return scope_words(result.model, result.environment)


def so_far(step: object) -> str:
    """A question that was asked both ways."""
    if not isinstance(step, PrefixPair):
        return ""
    times = f"{format_seconds(step.fresh.ttft_s)} processed, {format_seconds(step.kept.ttft_s)} kept"
    return f"{step.question[:60]}: first token after {times}"


def open_points(result: PrefixResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell."""
    return [
        *decision_open(decision is not None),
        "Prefixes that change between requests: nothing of them could be kept.",
        "Many requests at once: one ran at a time.",
    ]


def request(result: PrefixResult) -> list[tuple[str, str]]:
    """What was asked."""
    spec = result.spec
    return asked_rows(
        {
            "strategy": spec.strategy,
            "questions": len(spec.questions),
            "new tokens": spec.max_new_tokens,
            "fixed length": spec.fixed_length,
            "system prompt": spec.system_prompt,
        }
    )


def verdicts(result: PrefixResult) -> list[str]:
    """The table says it row by row."""
    return []


def remarks(result: PrefixResult) -> list[str]:
    """The table says all."""
    return []


def command(result: PrefixResult) -> list[str]:
    """The system prompt is in a file of one's own."""
    return []
