"""Growth, prompt sets and prefix results as strict JSON and back: comparisons inside them as in documents.py."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import FORMULAS, SCHEMA, document, from_document, run_document
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.questions import (
    GrowthPoint,
    GrowthResult,
    GrowthSpec,
    PromptResult,
    PromptRow,
    PromptSetResult,
    PromptSetSpec,
)
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ComparisonResult, Environment
from kvdemo.questions.prefix.run import summarise_prefix
from kvdemo.questions.prefix.spec import PrefixPair, PrefixResult, PrefixSpec, PreparedPrefix
from kvdemo.questions.prompts.run import compare_set

__all__ = ["AnyResult", "any_document", "from_any_document"]

AnyResult = ComparisonResult | GrowthResult | PromptSetResult | PrefixResult

INNER = ("request", "runs", "comparisons", "arms", "stopped_because")


def any_document(result: AnyResult) -> dict[str, Any]:
    """Any result as strict JSON values; "kind" says which: comparison, growth, prompt_set or prefix_reuse."""
    if isinstance(result, ComparisonResult):
        return document(result)
    head = {
        "schema": SCHEMA,
        "environment": encoded(result.environment),
        "model": encoded(result.model),
        "request": encoded(result.spec),
        "stopped_because": result.stopped_because,
        "formulas": dict(FORMULAS),
    }
    if isinstance(result, GrowthResult):
        points = [
            {"prompt_tokens": point.prompt_tokens, "new_tokens": point.new_tokens, **_inner(point.result)}
            for point in result.points
        ]
        rows = encoded(result.strategies)
        return {**head, "kind": "growth", "strategies": rows, "points": points, "left_out": encoded(result.left_out)}
    if isinstance(result, PromptSetResult):
        prompts = [{"row": encoded(item.row), **_inner(item.result)} for item in result.prompts]
        return {
            **head,
            "kind": "prompt_set",
            "strategies": encoded(result.strategies),
            "prompts": prompts,
            "comparisons": encoded(result.comparisons),
            "not_run": encoded(result.not_run),
        }
    pairs = [
        {**encoded(pair), "fresh": run_document(pair.fresh), "kept": run_document(pair.kept), "saved_s": pair.saved_s}
        for pair in result.pairs
    ]
    return {**encoded(result), **head, "kind": "prefix_reuse", "pairs": encoded(pairs)}


def from_any_document(data: object) -> AnyResult:
    """The result that a document tells of; InvalidRequest that names the place of the first mistake.

    What follows from the runs (ratios over a set, when a prefix pays) is worked out again, not read.
    """
    kind = data.get("kind", "comparison") if isinstance(data, dict) else "comparison"
    if not isinstance(data, dict) or kind == "comparison":
        return from_document(data)
    if data.get("schema") != SCHEMA:
        raise InvalidRequest("schema", f"this version opens schema {SCHEMA}")
    model = decoded(ModelFacts, data.get("model"), "model")
    environment = decoded(Environment, data.get("environment"), "environment")
    reason = decoded(str, data.get("stopped_because"), "stopped_because")
    request = data.get("request")
    if kind == "prefix_reuse":
        return summarise_prefix(
            decoded(PrefixSpec, request, "request"),
            decoded(PreparedPrefix, data.get("prefix"), "prefix"),
            decoded(tuple[PrefixPair, ...], data.get("pairs"), "pairs"),
            model=model,
            environment=environment,
            warmups=decoded(tuple[RunRecord, ...], data.get("warmups", []), "warmups"),
            stopped_because=reason,
        )
    rows = decoded(tuple[StrategyRow, ...], data.get("strategies", []), "strategies")
    if kind == "growth":
        points = [
            GrowthPoint(
                decoded(int, item.get("prompt_tokens"), f"points[{index}].prompt_tokens"),
                decoded(int, item.get("new_tokens"), f"points[{index}].new_tokens"),
                _comparison(data, item, f"points[{index}]"),
            )
            for index, item in enumerate(_objects(data, "points"))
        ]
        left_out = decoded(tuple[tuple[int, int], ...], data.get("left_out", []), "left_out")
        spec = decoded(GrowthSpec, request, "request")
        return GrowthResult(spec, model, environment, tuple(points), left_out, reason, rows)
    if kind == "prompt_set":
        prompts = [
            PromptResult(
                decoded(PromptRow, item.get("row"), f"prompts[{index}].row"),
                _comparison(data, item, f"prompts[{index}]"),
            )
            for index, item in enumerate(_objects(data, "prompts"))
        ]
        of_set = decoded(PromptSetSpec, request, "request")
        compared = compare_set(of_set.strategies, prompts)
        not_run = decoded(tuple[str, ...], data.get("not_run", []), "not_run")
        return PromptSetResult(of_set, model, environment, tuple(prompts), compared, not_run, reason, rows)
    raise InvalidRequest("kind", "is not one of comparison, growth, prompt_set, prefix_reuse")


def _inner(result: ComparisonResult) -> dict[str, Any]:
    """A comparison inside a larger document, without what all of them share."""
    whole = document(result)
    return {name: whole[name] for name in INNER}


def _comparison(data: dict[str, Any], item: dict[str, Any], place: str) -> ComparisonResult:
    shared = {name: data.get(name) for name in ("schema", "model", "environment", "strategies")}
    try:
        return from_document({**shared, **{name: item.get(name) for name in INNER}})
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}.{error.field}", error.message) from error


def _objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    items = data.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidRequest(name, "must be a list of objects")
    return items
