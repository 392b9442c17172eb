"""A watched program as JSON and back. Texts, ids and arguments are not in it."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import StopReason
from kvdemo.experiments.documents import objects, read_head
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.questions.application.spec import (
    ApplicationResult,
    ApplicationSpec,
    ArmOfProgram,
    ProgramRun,
    Ratio,
)
from kvdemo.watching.record import Call, Script, Watched
from kvdemo.watching.words import verdict_sentence

__all__ = ["document", "read"]

OF_CALL = ("token_ids",)
OF_RUN = ("token_ids",)


def document(result: ApplicationResult) -> dict[str, Any]:
    watched = result.watched
    return {
        "calls": [_without(encoded(call), OF_CALL) for call in watched.calls],
        "script": encoded(watched.script),
        "verdict": {"cached": watched.cached, "sentence": verdict_sentence(watched)},
        "models": encoded(watched.models),
        "single_forwards": watched.single_forwards,
        "calls_left_out": watched.calls_left_out,
        "notes": encoded(watched.notes),
        "processes": watched.processes,
        "arms": encoded(result.arms),
        "runs": [_without(encoded(run), OF_RUN) for run in result.runs],
        "comparisons": encoded(result.comparisons),
    }


def _without(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def read(data: dict[str, Any]) -> ApplicationResult:
    """The verdict is worked out again. InvalidRequest names the place of the first mistake."""
    head = read_head(data, StopReason)
    spec = decoded(ApplicationSpec, data.get("request"), "request")
    watched = Watched(
        name=spec.program,
        calls=decoded(tuple[Call, ...], objects(data, "calls"), "calls"),
        script=decoded(Script, data.get("script"), "script"),
        models=decoded(tuple[type(head.model), ...], data.get("models", []), "models"),  # type: ignore[misc]
        environment=head.environment,
        single_forwards=decoded(int, data.get("single_forwards", 0), "single_forwards"),
        calls_left_out=decoded(int, data.get("calls_left_out", 0), "calls_left_out"),
        notes=decoded(tuple[str, ...], data.get("notes", []), "notes"),
        processes=decoded(int, data.get("processes", 0), "processes"),
    )
    arms = decoded(tuple[ArmOfProgram, ...], data.get("arms", []), "arms")
    runs = decoded(tuple[ProgramRun, ...], data.get("runs", []), "runs")
    comparisons = decoded(tuple[Ratio, ...], data.get("comparisons", []), "comparisons")
    for place, keys in (("arms", {arm.key for arm in arms}), ("runs", {run.arm for run in runs})):
        if not keys <= set(spec.compare):
            raise InvalidRequest(place, "name what is not among those of the request")
    return ApplicationResult(
        spec=spec,
        model=head.model,
        environment=head.environment,
        watched=watched,
        arms=arms,
        runs=runs,
        comparisons=comparisons,
        stopped_because=head.stopped_because,
    )
