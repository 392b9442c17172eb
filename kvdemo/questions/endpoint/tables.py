"""The table of an endpoint: a row per subject, with what it rests on; and one row per request for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdemo.experiments.tables import Table
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import NOT_AVAILABLE, format_count
from kvdemo.questions.endpoint.spec import SUBJECTS, EndpointResult
from kvdemo.questions.endpoint.timings import cache_pairs, concurrency, judgements, prefix_pairs, ratio_words

__all__ = ["endpoint_table", "request_rows"]

RATIOS = {
    "kv_cache": "a step's extra time over that of the first token, long against short prompt",
    "prefix_reuse": "first token, new over known beginning",
    "batching": "tokens a second, together over alone",
}


def endpoint_table(result: EndpointResult) -> Table:
    """What is each verdict, and which ratio does it rest on?"""
    together = concurrency(result)
    counts = {
        "kv_cache": len(cache_pairs(result)),
        "prefix_reuse": len(prefix_pairs(result)),
        "batching": max((len(rounds) for number, rounds in together.items() if number > 1), default=0),
    }
    return Table.of(
        {
            "Subject": SUBJECTS[subject],
            "Verdict": judged.verdict,
            "Ratio": ratio_words(subject, judged) or NOT_AVAILABLE,
            "Of what": RATIOS[subject],
            "Rounds": format_count(counts[subject]),
        }
        for subject, judged in judgements(result).items()
    )


def request_rows(result: EndpointResult) -> Iterator[Mapping[str, object]]:
    """One row per request that was sent, units in the names."""
    for run in (*result.lengths, *result.runs):
        yield {"at_once": 1, "request": 1, "kind": run.arm, "round": run.round or 0, **_numbers(run)}
    for one in result.at_once:
        for number, run in enumerate(one.record.runs, 1):
            place = {"at_once": one.requests, "request": number, "kind": "together", "round": one.round}
            yield {**place, **_numbers(run)}


def _numbers(run: RunRecord) -> dict[str, object]:
    return {
        "status": run.status,
        "warmup": str(run.warmup).lower(),
        "prompt_tokens": run.prompt_tokens,
        "new_tokens": run.new_tokens,
        "reused_tokens_reported": run.reused_tokens,
        "queue_s": run.queue_s,
        "ttft_s": run.ttft_s,
        "tpot_s": run.tpot_s,
        "decode_s": run.decode_s,
        "generation_s": run.generation_s,
        "error": run.error,
    }
