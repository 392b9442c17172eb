"""Any result as strict JSON and back; the table says which question's it is."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import FORMULAS, SCHEMA
from kvdemo.experiments.json_documents import encoded
from kvdemo.experiments.question import AnyResult
from kvdemo.questions.table import QUESTIONS, Table, question_of

__all__ = ["AnyResult", "any_document", "from_any_document"]


def any_document(result: AnyResult, table: Table = QUESTIONS) -> dict[str, Any]:
    """Any result as strict JSON values; "kind" says which."""
    question = question_of(result, table)
    return {
        "schema": SCHEMA,
        "kind": question.kind,
        "environment": encoded(result.environment),
        "model": encoded(result.model),
        "request": encoded(result.spec),
        "stopped_because": result.stopped_because,
        "formulas": dict(FORMULAS),
        **question.document(result),
    }


def from_any_document(data: object, table: Table = QUESTIONS) -> AnyResult:
    """The result that a document tells of; InvalidRequest that names the place of the first mistake.

    The first documents had no kind: they are comparisons.
    """
    if not isinstance(data, dict):
        raise InvalidRequest("file", "is not a result of kvdemo: it must be a JSON object")
    if data.get("schema") != SCHEMA:
        raise InvalidRequest("schema", f"this version opens schema {SCHEMA}")
    kind = data.get("kind", "comparison")
    question = next((row for row in table if row.kind == kind), None)
    if question is None:
        raise InvalidRequest("kind", f"is not one of {', '.join(row.kind for row in table)}")
    result: AnyResult = question.read(data)
    return result
