"""A set of prompts as JSON and back: comparisons inside it as documents of their own have them."""

from __future__ import annotations

from typing import Any

from kvdemo.experiments.documents import objects, part_document, read_head, read_part
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.questions.prompts.run import compare_set
from kvdemo.questions.prompts.spec import Ended, PromptResult, PromptSetResult, PromptSetSpec

__all__ = ["document", "read"]


def document(result: PromptSetResult) -> dict[str, Any]:
    return {
        "strategies": encoded(result.strategies),
        "prompts": [{"row": encoded(item.row), **part_document(item.result)} for item in result.prompts],
        "comparisons": encoded(result.comparisons),
        "not_run": encoded(result.not_run),
    }


def read(data: dict[str, Any]) -> PromptSetResult:
    """What follows from the runs is worked out again. InvalidRequest names the place of the first mistake."""
    head = read_head(data, Ended)
    prompts = tuple(
        PromptResult(
            decoded(PromptRow, item.get("row"), f"prompts[{index}].row"), read_part(data, item, f"prompts[{index}]")
        )
        for index, item in enumerate(objects(data, "prompts"))
    )
    spec = decoded(PromptSetSpec, data.get("request"), "request")
    return PromptSetResult(
        spec=spec,
        model=head.model,
        environment=head.environment,
        prompts=prompts,
        comparisons=compare_set(spec.strategies, prompts),
        not_run=decoded(tuple[str, ...], data.get("not_run", []), "not_run"),
        stopped_because=head.stopped_because,
        strategies=head.strategies,
    )
