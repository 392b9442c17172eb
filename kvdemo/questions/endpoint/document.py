"""A check of an endpoint as JSON and back: the verdicts, and beside them the requests that they were judged from."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import check_run, read_head, run_document
from kvdemo.experiments.hits import hit_efficiency
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.facts.records import RunRecord
from kvdemo.questions.endpoint.judgement import warm_hits
from kvdemo.questions.endpoint.message import message
from kvdemo.questions.endpoint.spec import AtOnce, Ended, EndpointResult, EndpointSpec
from kvdemo.questions.endpoint.timings import judgements, prefix_pairs

__all__ = ["document", "read"]


def document(result: EndpointResult) -> dict[str, Any]:
    return {
        "verdicts": {
            subject: {
                "verdict": judged.verdict,
                "evidence": judged.evidence,
                "ratio": judged.ratio,
                "low": judged.low,
                "high": judged.high,
            }
            for subject, judged in judgements(result).items()
        },
        "requests_sent": result.requests_sent,
        "tokens_used": result.tokens_used,
        "page_tokens": result.page_tokens,
        "hit_efficiency": hit_efficiency(warm_hits(prefix_pairs(result)), result.page_tokens),
        "message": message(result),
        "lengths": [run_document(run) for run in result.lengths],
        "runs": [run_document(run) for run in result.runs],
        "at_once": encoded(result.at_once),
    }


def read(data: dict[str, Any]) -> EndpointResult:
    """Verdicts and message are made again from the requests. InvalidRequest names the place of the first mistake."""
    head = read_head(data, Ended)
    at_once = decoded(tuple[AtOnce, ...], data.get("at_once", []), "at_once")
    for index, one in enumerate(at_once):
        for nth, run in enumerate(one.record.runs):
            check_run(run, f"at_once[{index}].record.runs[{nth}]")
    return EndpointResult(
        spec=decoded(EndpointSpec, data.get("request"), "request"),
        model=head.model,
        environment=head.environment,
        lengths=_runs(data, "lengths", ("length",)),
        runs=_runs(data, "runs", ("short", "long", "cold", "warm")),
        at_once=at_once,
        requests_sent=_count(data, "requests_sent"),
        tokens_used=_count(data, "tokens_used"),
        stopped_because=head.stopped_because,
        page_tokens=decoded(int | None, data.get("page_tokens"), "page_tokens"),
    )


def _runs(data: dict[str, Any], name: str, arms: tuple[str, ...]) -> tuple[RunRecord, ...]:
    runs = decoded(tuple[RunRecord, ...], data.get(name, []), name)
    for index, run in enumerate(runs):
        check_run(run, f"{name}[{index}]")
        if run.arm not in arms:
            raise InvalidRequest(f"{name}[{index}].arm", f"is not one of {', '.join(arms)}")
    return runs


def _count(data: dict[str, Any], name: str) -> int:
    found = decoded(int, data.get(name), name)
    if found < 0:
        raise InvalidRequest(name, "must not be negative")
    return found
