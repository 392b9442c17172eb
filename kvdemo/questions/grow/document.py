"""Growth as JSON and back: comparisons inside it as documents of their own have them."""

from __future__ import annotations

from typing import Any

from kvdemo.experiments.documents import objects, part_document, read_head, read_part
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.questions.grow.spec import Ended, GrowthPoint, GrowthResult, GrowthSpec

__all__ = ["document", "read"]


def document(result: GrowthResult) -> dict[str, Any]:
    points = [
        {"prompt_tokens": point.prompt_tokens, "new_tokens": point.new_tokens, **part_document(point.result)}
        for point in result.points
    ]
    return {"strategies": encoded(result.strategies), "points": points, "left_out": encoded(result.left_out)}


def read(data: dict[str, Any]) -> GrowthResult:
    """InvalidRequest that names the place of the first mistake."""
    head = read_head(data, Ended)
    points = [
        GrowthPoint(
            decoded(int, item.get("prompt_tokens"), f"points[{index}].prompt_tokens"),
            decoded(int, item.get("new_tokens"), f"points[{index}].new_tokens"),
            read_part(data, item, f"points[{index}]"),
        )
        for index, item in enumerate(objects(data, "points"))
    ]
    left_out = decoded(tuple[tuple[int, int], ...], data.get("left_out", []), "left_out")
    spec = decoded(GrowthSpec, data.get("request"), "request")
    return GrowthResult(
        spec, head.model, head.environment, tuple(points), left_out, head.stopped_because, head.strategies
    )
