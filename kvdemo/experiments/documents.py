"""A comparison as the JSON that the command prints and the page saves, and back again.

The document holds the raw times, so that everything else can be made of it again. Derived figures stand beside them
for readers; opening a document ignores them. JSON has no NaN and no Infinity: both are written as null.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import CompareSpec, Comparison, ComparisonResult, Noise, StopReason
from kvdemo.experiments.json_documents import decoded, encoded, strict
from kvdemo.experiments.summary import arms
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import Environment
from kvdemo.facts.steps import CacheNorms

__all__ = [
    "FORMULAS",
    "MAX_DOCUMENT_BYTES",
    "SCHEMA",
    "Head",
    "check_run",
    "document",
    "dumps",
    "from_document",
    "loads",
    "objects",
    "part_document",
    "read_head",
    "read_part",
    "run_document",
]

SCHEMA = 1
MAX_DOCUMENT_BYTES = 5 * 1024 * 1024
LONG_DOCUMENT_CHARS = 1024 * 1024

FORMULAS = {
    "ttft_s": "first token - accepted (= prefill_s)",
    "decode_s": "last token - first token",
    "tpot_s": "decode_s / (new tokens - 1)",
    "decode_tokens_per_s": "1 / tpot_s",
    "generation_s": "last token - accepted (= prefill_s + decode_s)",
    "request_s": "last piece handed over - request received",
    "ratio": "median over the rounds of baseline / candidate, each taken inside its round",
}
PART = ("request", "runs", "comparisons", "arms", "stopped_because", "noise")
DERIVED = (
    "new_tokens",
    "prefill_s",
    "ttft_s",
    "tpot_s",
    "decode_s",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "generation_s",
)


def document(result: ComparisonResult) -> dict[str, Any]:
    """The comparison as strict JSON values, schema 1."""
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "environment": encoded(result.environment),
        "model": encoded(result.model),
        "request": encoded(result.spec),
        "strategies": encoded(result.strategies),
        "stopped_because": result.stopped_because,
        "noise": encoded(result.noise),
        "norms": encoded(result.norms),
        "runs": [run_document(run) for run in result.runs],
        "comparisons": [_comparison_document(comparison) for comparison in result.comparisons],
        "arms": [{**encoded(arm), "decode_tokens_per_s": strict(arm.decode_tokens_per_s)} for arm in arms(result)],
        "formulas": dict(FORMULAS),
    }


def run_document(run: RunRecord) -> dict[str, Any]:
    """One run: its raw facts and, beside them, the figures derived from them."""
    derived: dict[str, Any] = encoded({name: getattr(run, name) for name in DERIVED})
    return {**encoded(run), **derived}


def from_document(data: object) -> ComparisonResult:
    """The comparison that a document tells of; InvalidRequest that names the place of the first mistake."""
    if not isinstance(data, dict):
        raise InvalidRequest("file", "is not a kvdemo comparison: it must be a JSON object")
    if data.get("schema") != SCHEMA or data.get("kind", "comparison") != "comparison":
        raise InvalidRequest("schema", f"this version opens comparisons of schema {SCHEMA}")
    spec = decoded(CompareSpec, data.get("request"), "request")
    runs = decoded(tuple[RunRecord, ...], data.get("runs"), "runs")
    for index, run in enumerate(runs):
        check_run(run, f"runs[{index}]")
        if run.arm_key not in spec.arms:
            field = "strategy" if run.arm is None else "arm"
            raise InvalidRequest(f"runs[{index}].{field}", "is not among the strategies of the request")
    comparisons = data.get("comparisons")
    if not isinstance(comparisons, list):
        raise InvalidRequest("comparisons", "must be a list")
    return ComparisonResult(
        spec=spec,
        model=decoded(ModelFacts, data.get("model"), "model"),
        environment=decoded(Environment, data.get("environment"), "environment"),
        runs=runs,
        comparisons=tuple(
            _read_comparison(item, spec, f"comparisons[{index}]") for index, item in enumerate(comparisons)
        ),
        stopped_because=decoded(StopReason, data.get("stopped_because", "rounds"), "stopped_because"),
        strategies=decoded(tuple[StrategyRow, ...], data.get("strategies", []), "strategies"),
        noise=decoded(Noise, data["noise"], "noise") if data.get("noise") is not None else None,
        norms=_read_norms(data.get("norms")),
    )


def dumps(value: dict[str, Any], *, indent: int | None = 2) -> str:
    """Strict JSON text; a long document without spaces, which would be more than half of it."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if indent is None or len(text) <= LONG_DOCUMENT_CHARS:
        return text
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(text: str | bytes) -> object:
    """JSON text as values; InvalidRequest with line and column where it is broken."""
    if len(text) > MAX_DOCUMENT_BYTES:
        raise InvalidRequest("file", f"is larger than {MAX_DOCUMENT_BYTES // 2**20} MiB")
    try:
        return json.loads(text, parse_constant=lambda name: math.nan if name == "NaN" else math.inf)
    except json.JSONDecodeError as error:
        raise InvalidRequest("file", f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InvalidRequest("file", "is not JSON that can be read") from error


def _read_norms(item: object) -> CacheNorms | None:
    if item is None:
        return None
    norms: CacheNorms = decoded(CacheNorms, item, "norms")
    if len(norms.keys) != len(norms.values) or not norms.keys:
        raise InvalidRequest("norms.values", "must have one length for each key")
    if min(*norms.keys, *norms.values) < 0 or min(norms.layer, norms.head, norms.first) < 0:
        raise InvalidRequest("norms", "must not be negative")
    return norms


def _comparison_document(comparison: Comparison) -> dict[str, Any]:
    flat: dict[str, Any] = encoded(comparison)
    verdict = flat.pop("verdict")
    return {**flat, **verdict}


def _read_comparison(item: object, spec: CompareSpec, place: str) -> Comparison:
    if not isinstance(item, dict):
        raise InvalidRequest(place, "must be an object")
    comparison = decoded(Comparison, {**item, "verdict": item}, place)
    for name in ("baseline", "candidate"):
        if getattr(comparison, name) not in spec.arms:
            raise InvalidRequest(f"{place}.{name}", "is not among the strategies of the request")
    return comparison


def check_run(run: RunRecord, place: str) -> None:
    """InvalidRequest that names the field of a run whose facts cannot be."""
    if run.token_ids is None and run.num_new_tokens is None:
        raise InvalidRequest(f"{place}.num_new_tokens", "must be there where the ids are not")
    too_few = run.token_ids is not None and len(run.token_times_s) < run.new_tokens
    if too_few or len(run.token_times_s) > run.new_tokens:
        raise InvalidRequest(f"{place}.token_times_s", "must have one time per token")
    times = (0.0, *run.token_times_s)
    if any(after < before for before, after in itertools.pairwise(times)):
        raise InvalidRequest(f"{place}.token_times_s", "must not go backwards")


@dataclass(frozen=True, slots=True)
class Head:
    """What the documents of all questions have in common, read."""

    model: ModelFacts
    environment: Environment
    stopped_because: Any
    strategies: tuple[StrategyRow, ...]


def read_head(data: dict[str, Any], ends: object = str) -> Head:
    """InvalidRequest that names the place of the first mistake. ends: the words for why it ended, a Literal."""
    return Head(
        decoded(ModelFacts, data.get("model"), "model"),
        decoded(Environment, data.get("environment"), "environment"),
        decoded(ends, data.get("stopped_because"), "stopped_because"),
        decoded(tuple[StrategyRow, ...], data.get("strategies", []), "strategies"),
    )


def part_document(result: ComparisonResult) -> dict[str, Any]:
    """A comparison inside a larger document, without what all of them share."""
    whole = document(result)
    return {name: whole[name] for name in PART}


def read_part(data: dict[str, Any], item: dict[str, Any], place: str) -> ComparisonResult:
    """A comparison inside a larger document; `place` is where it stands there."""
    shared = {name: data.get(name) for name in ("schema", "model", "environment", "strategies")}
    try:
        return from_document({**shared, **{name: item.get(name) for name in PART}})
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}.{error.field}", error.message) from error


def objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects of the document; InvalidRequest where it is something else."""
    items = data.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidRequest(name, "must be a list of objects")
    return items
