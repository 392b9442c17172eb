"""A load as JSON and back: the raw runs of every round, and beside them the figures that follow from them."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import StopReason
from kvdemo.experiments.documents import check_run, objects, read_head
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.questions.load.spec import LoadPoint, LoadResult, LoadSpec, ModeRun, mode_of
from kvdemo.questions.load.summary import compared, summarise_mode

__all__ = ["document", "read"]


def document(result: LoadResult) -> dict[str, Any]:
    return {
        "modes": _modes(result, result.main),
        "comparisons": [_comparison(item) for item in encoded(result.comparisons)],
        "sweep": [{"requests": point.requests, "modes": _modes(result, point)} for point in result.points[1:]],
    }


def _modes(result: LoadResult, point: LoadPoint) -> list[dict[str, Any]]:
    """mode and cache as words; key: what the switches call it; runs: every round, the warm-up among them."""
    found = []
    for key in result.spec.modes:
        mode = mode_of(key)
        figures = dict(encoded(summarise_mode(result.spec, point, key)))
        named = {"key": key, **figures, "mode": mode.serving, "cache": mode.cache}
        found.append({**named, "runs": encoded([run for run in point.runs if run.mode == key])})
    return found


def _comparison(item: dict[str, Any]) -> dict[str, Any]:
    """As in a comparison: flat, the verdict's own fields among the others."""
    flat = dict(item.pop("comparison"))
    return {**flat, **flat.pop("verdict"), **item}


def read(data: dict[str, Any]) -> LoadResult:
    """What follows from the runs is worked out again. InvalidRequest names the place of the first mistake."""
    head = read_head(data, StopReason)
    spec = decoded(LoadSpec, data.get("request"), "request")
    points = [_point(spec, spec.requests, objects(data, "modes"), "modes")]
    for index, item in enumerate(objects(data, "sweep")):
        place = f"sweep[{index}]"
        number = decoded(int, item.get("requests"), f"{place}.requests")
        points.append(_point(spec, number, objects(item, "modes"), f"{place}.modes"))
    gaps = {
        str(item.get("candidate")): decoded(float, item["gap_there"], f"comparisons[{index}].gap_there")
        for index, item in enumerate(objects(data, "comparisons"))
        if item.get("gap_there") is not None
    }
    texts: dict[str, float | None] = dict(gaps)
    return LoadResult(
        spec=spec,
        model=head.model,
        environment=head.environment,
        points=tuple(points),
        comparisons=compared(spec, points[0], head.model, texts),
        stopped_because=head.stopped_because,
    )


def _point(spec: LoadSpec, number: int, modes: list[dict[str, Any]], place: str) -> LoadPoint:
    runs: list[ModeRun] = []
    for index, item in enumerate(modes):
        where = f"{place}[{index}].runs"
        found = decoded(tuple[ModeRun, ...], item.get("runs"), where)
        for at, run in enumerate(found):
            if run.mode not in spec.modes:
                raise InvalidRequest(f"{where}[{at}].mode", "is not among the modes of the request")
            for nth, one in enumerate(run.record.runs):
                if one.token_times_s or one.token_ids is None:  # a preempted one has tokens and no times
                    check_run(one, f"{where}[{at}].record.runs[{nth}]")
        runs += found
    return LoadPoint(number, tuple(sorted(runs, key=lambda run: (run.round, run.order))))
