"""Is my endpoint caching? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvdemo.experiments.question import Page, Question
from kvdemo.experiments.tables import PlacedRuns
from kvdemo.questions.endpoint import words
from kvdemo.questions.endpoint.document import document, read
from kvdemo.questions.endpoint.evidence import evidence
from kvdemo.questions.endpoint.run import endpoint as run
from kvdemo.questions.endpoint.spec import EndpointResult, EndpointSpec
from kvdemo.questions.endpoint.tables import endpoint_table, request_rows

__all__ = ["ENDPOINT"]

LABELS = {"short": "Short prompt", "long": "Long prompt", "cold": "New beginning", "warm": "Known beginning"}


def placed(result: EndpointResult) -> PlacedRuns:
    """Every request of a round with its place in the result; a length that the server refused is no failure."""
    yield from (({"at_once": 1, "request": 1}, run) for run in result.runs)
    for one in result.at_once:
        for number, found in enumerate(one.record.runs, 1):
            place = {"at_once": one.requests, "request": number}
            yield place, replace(found, round=one.round, order=one.order, arm=f"{one.requests} at once")


def draw(result: EndpointResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.endpoint.charts import draw

    return draw(result, picked)


def drawings(result: EndpointResult) -> Sequence[Any]:
    from kvdemo.questions.endpoint.charts import drawings

    return drawings(result)


def page() -> Page[EndpointSpec]:
    from kvdemo.questions.endpoint.page import PAGE

    return PAGE


def ask() -> Callable[..., EndpointSpec]:
    from kvdemo.questions.endpoint.command import endpoint

    return endpoint


ENDPOINT = Question(
    key="endpoint",
    command="endpoint",
    kind="endpoint",
    title="Is my endpoint caching?",
    empty=(
        "For people who own the application, while somebody else runs the model. Run sends requests to that server and times "
        "the answers. You then see here whether it uses a KV cache, whether it reuses prefixes, and whether it serves requests "
        "together. Where times cannot tell, it says so. A message to whoever runs the server comes with it, ready to copy."
    ),
    unit="requests",
    needs="endpoint",
    at_endpoint=lambda spec: spec,
    cold=False,
    settles=(1, 2),
    evidence=evidence,
    example="endpoint",
    takes="up to 5 min",
    spec=EndpointSpec,
    result=EndpointResult,
    run=run,
    words=words,
    document=document,
    read=read,
    runs=placed,
    rows=request_rows,
    labels=lambda _: LABELS,
    strategies=lambda _: (),
    table=endpoint_table,
    draw=draw,
    drawings=drawings,
    page=page,
    ask=ask,
)
