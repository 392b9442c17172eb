"""Several requests served without a model: records with round times, whose work follows from the way of serving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvdemo.facts.events import Working
from kvdemo.facts.load import PAGED, Arrival, Forward, ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.records import RunRecord
from tests.made_up_model import PER_TOKEN

__all__ = ["FIRST_S", "PROMPT_TOKENS", "STEP_S", "events_of_many", "many_record"]

PROMPT_TOKENS = 4
FIRST_S, STEP_S = 0.1, 0.04  # of a forward over one row; a batch takes a little longer
MORE_S = 0.002  # for each further row


def many_record(request: ManyRequest, *, ids: tuple[int, ...] | None = None, **changes: Any) -> ManyRecord:
    """What serving this comes to. ids: the tokens of every answer, by default 100, 101 ..."""
    count = len(request.arrivals)
    together = request.serving != "one-by-one"
    step_s = STEP_S + (MORE_S * (count - 1) if together else 0.0)
    runs: list[RunRecord] = []
    free_s = 0.0
    for arrival in request.arrivals:
        started_s = arrival.at_s if together else max(free_s, arrival.at_s)
        runs.append(_run(request, arrival, started_s, step_s, ids))
        free_s = arrival.at_s + (runs[-1].request_s or 0.0)
    steps = max(arrival.max_new_tokens for arrival in request.arrivals)
    rows = count if together else 1
    forwards = [
        Forward(
            at_s=(at // steps) * (FIRST_S + steps * step_s) + (at % steps) * step_s,
            computed=rows * (PROMPT_TOKENS if at % steps == 0 else 1),
            read=rows * (PROMPT_TOKENS + at % steps - 1 if at % steps and request.strategy != "none" else 0),
            pages=count if request.strategy == PAGED else None,
        )
        for at in range(steps * (1 if together else count))
    ]
    held = 0 if request.strategy == "none" else rows * (PROMPT_TOKENS + steps - 1) * PER_TOKEN
    page_bytes = request.page_size * PER_TOKEN
    paged = {"num_pages": count, "page_bytes": page_bytes, "reserved_cache_bytes": (count + 2) * page_bytes}
    fields: dict[str, Any] = {
        "serving": request.serving,
        "strategy": request.strategy,
        "status": "ok",
        "runs": tuple(runs),
        "wall_s": max(
            arrival.at_s + (run.request_s or 0.0) for arrival, run in zip(request.arrivals, runs, strict=True)
        ),
        "forwards": tuple(forwards),
        "padding_positions": 0,
        "reserved_cache_bytes": held,
        "peak_cache_bytes": held,
        "reused_tokens": 0,
        **(paged if request.strategy == PAGED else {}),
        **changes,
    }
    return ManyRecord(**fields)


def _run(
    request: ManyRequest, arrival: Arrival, started_s: float, step_s: float, ids: tuple[int, ...] | None
) -> RunRecord:
    times = tuple(FIRST_S + step_s * at for at in range(arrival.max_new_tokens))
    queue_s = started_s - arrival.at_s
    return RunRecord(
        strategy=None if request.strategy == PAGED else request.strategy,
        status="ok",
        finish_reason="length",
        prompt_tokens=PROMPT_TOKENS,
        token_ids=tuple(range(100, 100 + arrival.max_new_tokens)) if ids is None else ids[: arrival.max_new_tokens],
        token_times_s=times,
        positions_computed=None,
        positions_read=None,
        text=" black and white",
        queue_s=queue_s,
        request_s=queue_s + times[-1],
        cache_tokens=None,
        cache_bytes=None,
        cache_storage_bytes=None,
    )


def events_of_many(request: ManyRequest) -> Iterator[Working | ManyFinished]:
    """A bench's run_many."""
    yield Working(0.0)
    yield ManyFinished(many_record(request))
