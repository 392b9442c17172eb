"""A shared prefix as JSON and back."""

from __future__ import annotations

from typing import Any

from kvdemo.experiments.documents import check_run, read_head, run_document
from kvdemo.experiments.hits import hit_efficiency
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import PreparedPrefix
from kvdemo.questions.prefix.run import summarise_prefix
from kvdemo.questions.prefix.spec import Ended, PrefixPair, PrefixResult, PrefixSpec

__all__ = ["document", "read"]

IN_HEAD = ("spec", "model", "environment", "stopped_because")


def document(result: PrefixResult) -> dict[str, Any]:
    own = {name: value for name, value in encoded(result).items() if name not in IN_HEAD}
    pairs = [
        {**encoded(pair), "fresh": run_document(pair.fresh), "kept": run_document(pair.kept), "saved_s": pair.saved_s}
        for pair in result.pairs
    ]
    efficiency = hit_efficiency(result.hits, result.page_tokens)
    return {**own, "hit_efficiency": efficiency, "pairs": encoded(pairs)}


def read(data: dict[str, Any]) -> PrefixResult:
    """What follows from the runs (when it pays) is worked out again. InvalidRequest names the place of the first mistake."""
    head = read_head(data, Ended)
    pairs = decoded(tuple[PrefixPair, ...], data.get("pairs"), "pairs")
    warmups = decoded(tuple[RunRecord, ...], data.get("warmups", []), "warmups")
    for index, pair in enumerate(pairs):
        check_run(pair.fresh, f"pairs[{index}].fresh")
        check_run(pair.kept, f"pairs[{index}].kept")
    for index, run in enumerate(warmups):
        check_run(run, f"warmups[{index}]")
    return summarise_prefix(
        decoded(PrefixSpec, data.get("request"), "request"),
        decoded(PreparedPrefix, data.get("prefix"), "prefix"),
        pairs,
        model=head.model,
        environment=head.environment,
        warmups=warmups,
        stopped_because=head.stopped_because,
        page_tokens=decoded(int | None, data.get("page_tokens"), "page_tokens"),
    )
