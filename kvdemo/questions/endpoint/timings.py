"""From the requests of a result to what is judged: pairs of one round, and what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kvdemo.experiments.statistics import fit_line, median
from kvdemo.facts.load import ManyRecord
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_ratio
from kvdemo.questions.endpoint.judgement import (
    CachePair,
    Concurrency,
    PrefixPair,
    batching,
    kv_cache,
    overlap,
    percent,
    prefix_reuse,
)
from kvdemo.questions.endpoint.spec import AT_ONCE, EndpointResult, Judgement, Subject

__all__ = ["cache_pairs", "concurrency", "judgements", "prefix_pairs", "ratio_words", "step_of", "tokens_a_piece"]

UNHURRIED_S = 1e-4  # a step: below it an answer was held back and sent in one go
LEAST_STEPS = 8  # of an answer that is asked how it grows
TOO_MANY_AT_ONCE = 0.6  # of the gaps between pieces: from here on they come in bursts


def judgements(result: EndpointResult) -> dict[Subject, Judgement]:
    """All three, from the requests of a result."""
    short_s = median(run.ttft_s for run in result.arm("short"))
    return {
        "kv_cache": kv_cache(cache_pairs(result), trouble_of(result, "short", "long")),
        "prefix_reuse": prefix_reuse(
            prefix_pairs(result), short_s, trouble_of(result, "cold", "warm"), result.page_tokens
        ),
        "batching": batching(concurrency(result), trouble_together(result)),
    }


def cache_pairs(result: EndpointResult) -> list[CachePair]:
    """What the rounds of short and long prompts came to; rounds without times are left out. A length not reported is 0."""
    found = []
    for short, long in result.rounds_of("short", "long"):
        if not (short.ttft_s and long.ttft_s):
            continue
        pieces = max(tokens_a_piece(short), tokens_a_piece(long))
        steps = (step_of(short), step_of(long))
        lengths, times = (short.prompt_tokens or 0, long.prompt_tokens or 0), (short.ttft_s, long.ttft_s)
        found.append(CachePair(*lengths, *times, *steps, pieces, long.reused_tokens, growth_of(short, long)))
    return found


def growth_of(short: RunRecord, long: RunRecord) -> float | None:
    """The slope of the short prompt's steps over that of first tokens by length; None where either is not known."""
    more_tokens, more_s = (
        (long.prompt_tokens or 0) - (short.prompt_tokens or 0),
        (long.ttft_s or 0.0) - (short.ttft_s or 0.0),
    )
    line = fit_line(range(len(short.step_s)), short.step_s) if len(short.step_s) >= LEAST_STEPS else None
    if line is None or step_of(short) is None or more_tokens <= 0 or more_s <= 0:
        return None
    return line.slope / (more_s / more_tokens)


def tokens_a_piece(run: RunRecord) -> float:
    """Tokens that came together, on average; 1 where every token came by itself."""
    return run.new_tokens / len(run.token_times_s) if run.token_times_s else 1.0


def step_of(run: RunRecord) -> float | None:
    """Time per token after the first, s; None where the answer came in one piece or in bursts: it says nothing of a step."""
    if len(run.token_times_s) < 3 or run.tpot_s is None or run.tpot_s < UNHURRIED_S:
        return None
    gaps = [after - before for before, after in pairwise(run.token_times_s)]
    mean_s = sum(gaps) / len(gaps)
    at_once = sum(gap < 0.1 * mean_s for gap in gaps)
    return None if at_once >= TOO_MANY_AT_ONCE * len(gaps) else run.tpot_s


def prefix_pairs(result: EndpointResult) -> list[PrefixPair]:
    return [
        PrefixPair(cold.ttft_s, warm.ttft_s, warm.prompt_tokens or 0, cold.reused_tokens, warm.reused_tokens)
        for cold, warm in result.rounds_of("cold", "warm")
        if cold.ttft_s and warm.ttft_s
    ]


def concurrency(result: EndpointResult) -> dict[int, list[Concurrency]]:
    """Every number of requests against one alone, in the rounds in which both were answered."""
    by_place = {(one.requests, one.round): one.record for one in result.at_once if one.round and one.status == "ok"}
    found: dict[int, list[Concurrency]] = {number: [] for number in AT_ONCE}
    for (number, at), record in by_place.items():
        alone = by_place.get((1, at))
        speed, own = record.throughput_tokens_per_s, alone.throughput_tokens_per_s if alone else None
        if alone is None or not speed or not own:
            continue
        waits = [run.queue_s + run.ttft_s for run in record.runs if run.ttft_s is not None]
        found.setdefault(number, []).append(
            Concurrency(speed / own, streamed_overlap(record, alone), max(waits, default=None), alone.wall_s)
        )
    return found


def streamed_overlap(record: ManyRecord, alone: ManyRecord) -> float | None:
    """None where answers are not streamed: alone, less than a quarter of the time is between first and last token."""
    decode_s = sum(run.decode_s or 0.0 for run in alone.runs)
    if not alone.wall_s or decode_s < 0.25 * alone.wall_s:
        return None
    return overlap(
        [
            (run.queue_s + run.token_times_s[0], run.queue_s + run.token_times_s[-1])
            for run in record.runs
            if run.token_times_s
        ]
    )


def trouble_of(result: EndpointResult, *arms: str) -> str:
    """Which requests failed and what the first one said; what ended it early; "" where all went well."""
    own = [run for run in result.runs if run.arm in arms]
    return _trouble(_of(own) or _of(result.lengths), result)


def trouble_together(result: EndpointResult) -> str:
    own = [(run.status, run.error) for one in result.at_once for run in one.record.runs]
    whole = [(one.record.status, one.record.error) for one in result.at_once if not one.record.runs]
    return _trouble([*own, *whole] or _of(result.lengths), result)


def _of(runs: Sequence[RunRecord]) -> list[tuple[str, str | None]]:
    return [(run.status, run.error) for run in runs]


def _trouble(outcomes: Sequence[tuple[str, str | None]], result: EndpointResult) -> str:
    failed = [error for status, error in outcomes if status == "failed"]
    late = sum(status == "timed_out" for status, _ in outcomes)
    said = next((error for error in failed if error), "it did not say why").rstrip(". ")
    sentences = [f"{len(failed)} of {len(outcomes)} requests failed: {said}."] if failed else []
    sentences += [f"{late} were not answered in time."] if late else []
    ends = {
        "budget": "The budget was used up.",
        "limit": "The time limit ended it.",
        "stopped": "It was stopped.",
    }
    return " ".join([*sentences, *([ends[result.stopped_because]] if result.stopped_because in ends else [])])


def ratio_words(subject: Subject, judged: Judgement) -> str:
    """The ratio with its interval; of a KV cache as a share of what computing the text again would add. "" where it has none."""
    if judged.ratio is None or judged.low is None or judged.high is None:
        return ""
    if subject == "kv_cache":
        return f"{percent(judged.ratio)} ({percent(judged.low)} to {percent(judged.high)})"
    return f"{format_ratio(judged.ratio)} ({format_ratio(judged.low)} to {format_ratio(judged.high)})"
