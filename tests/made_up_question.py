"""A question that no folder has: how soon does an answer begin? All that a row of the table needs, in one file."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import gradio as gr
import plotly.graph_objects as go
import typer

from kvdemo.charts.lines import strong_line
from kvdemo.charts.look import blank
from kvdemo.components.form_parts import run_line
from kvdemo.components.markup import fragment
from kvdemo.components.so_far import SoFar
from kvdemo.experiments.attempt import attempt
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.documents import check_run, read_head, run_document
from kvdemo.experiments.json_documents import decoded
from kvdemo.experiments.pieces import Pieces, decision_open, scope_words
from kvdemo.experiments.question import Form, FormBackend, Page, Question
from kvdemo.experiments.rounds import Arm, Limits, Rounds, Step
from kvdemo.experiments.statistics import spread
from kvdemo.experiments.tables import PlacedRuns, Table
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, checked_int, checked_text
from kvdemo.facts.results import Environment
from kvdemo.facts.units import format_seconds
from kvdemo.palette import of_strategy
from kvdemo.settings import Settings
from tests.made_up import run_of
from tests.made_up_model import ENVIRONMENT, MODEL, ROWS

__all__ = ["SOON", "SoonResult", "SoonSpec", "soon_of"]

ARMS = ("dynamic", "static")


@dataclass(frozen=True, slots=True)
class SoonSpec:
    greeting: str
    times: int = 2

    def __post_init__(self) -> None:
        checked_text("greeting", self.greeting)
        checked_int("times", self.times, 1, 9)


@dataclass(frozen=True, slots=True)
class SoonResult:
    spec: SoonSpec
    model: ModelFacts
    environment: Environment
    runs: tuple[RunRecord, ...]
    stopped_because: str = "rounds"

    def first_s(self, arm: str) -> float | None:
        """Median time to the first token, s."""
        found = spread(run.ttft_s for run in self.runs if run.arm_key == arm and run.counts)
        return found.median if found else None


def run(spec: SoonSpec, bench: Bench) -> Iterator[Step | SoonResult]:
    rows = bench.rows(ARMS)
    bench.check_size(GenerationRequest(spec.greeting, 1), bench.count(GenerationRequest(spec.greeting, 1)))

    def arm(row: StrategyRow) -> Arm[RunRecord]:
        return Arm(
            row.key, row.label, lambda place: attempt(bench.run, GenerationRequest(spec.greeting, 1, row.key), place)
        )

    def steps() -> Generator[Step | SoonResult, None, None]:
        rounds = Rounds([arm(row) for row in rows], Limits(spec.times), clock=bench.clock, stop=bench.stop)
        reason = yield from rounds.go()
        runs = tuple(record for *_, record in rounds.outcomes)
        yield SoonResult(spec, bench.model, bench.environment, runs, reason)

    return steps()


class Words:
    METHOD = "Both in turn."
    CAPTION = "One row per cache"

    def headline(self, result: SoonResult, /) -> Pieces:
        times = (f"{format_seconds(result.first_s(arm))} ({arm})" for arm in ARMS)
        return [("An answer begins after ", False), (" or ".join(times), True)]

    def scope(self, result: SoonResult, /) -> str:
        return scope_words(result.model, result.environment)

    def so_far(self, step: object, /) -> str:
        return ""

    def verdicts(self, result: SoonResult, /) -> Sequence[str]:
        return []

    def open_points(self, result: SoonResult, decision: CacheDecision | None, /) -> Sequence[str]:
        return [*decision_open(decision is not None), "When it ends."]

    def request(self, result: SoonResult, /) -> Sequence[tuple[str, str]]:
        return [("greeting", result.spec.greeting)]

    def remarks(self, result: SoonResult, /) -> Sequence[str]:
        return ["The greeting was short."]

    def command(self, result: SoonResult, /) -> Sequence[str]:
        return [result.spec.greeting, "--times", str(result.spec.times)]


def read(data: dict[str, Any]) -> SoonResult:
    head = read_head(data)
    runs = decoded(tuple[RunRecord, ...], data.get("runs"), "runs")
    for index, one in enumerate(runs):
        check_run(one, f"runs[{index}]")
    spec = decoded(SoonSpec, data.get("request"), "request")
    return SoonResult(spec, head.model, head.environment, runs, head.stopped_because)


def placed(result: SoonResult) -> PlacedRuns:
    return (({"greeted": result.spec.greeting}, one) for one in result.runs)


def table(result: SoonResult) -> Table:
    return Table.of({"Cache": arm, "Begins after": format_seconds(result.first_s(arm))} for arm in ARMS)


def chart(result: SoonResult) -> go.Figure:
    times = [run.ttft_s or 0.0 for run in result.runs]
    figure = blank(
        "How soon does it begin?", height=200, x={"range": [0, len(times)]}, y={"range": [0, max(times, default=1.0)]}
    )
    strong_line(figure, of_strategy("dynamic"), range(len(times)), times, "%{y:.2f} s", name="first token")
    return figure


def form(backend: FormBackend, settings: Settings) -> Form:
    greeting = gr.Textbox("Hello", label="Greeting", elem_id="compare-soon-greeting")
    times, start, stop = run_line(lambda: gr.Number(2, label="How often", elem_id="compare-soon-times"), "soon")
    return Form([greeting, times], start, stop, fragment(elem_id="compare-soon-notice"))


def page() -> Page[SoonSpec]:
    return Page(
        form=form,
        read=lambda _, greeting, times: SoonSpec(greeting, times),
        figures=("first",),
        live=lambda *_: SoFar(words.so_far),
        labels={"greeting": "Greeting", "times": "How often"},
    )


def ask() -> Callable[..., SoonSpec]:
    def soon(
        greeting: Annotated[str, typer.Argument(help="what is said")],
        times: Annotated[int, typer.Option(help="how often")] = 2,
    ) -> SoonSpec:
        """How soon does an answer begin?"""
        return SoonSpec(greeting, times)

    return soon


def draw(result: SoonResult, picked: Mapping[str, str]) -> Sequence[Any]:
    return [chart(result)]


words = Words()
SOON = Question(
    key="soon",
    command="soon",
    kind="soonness",
    title="How soon does it begin?",
    empty="Run greets the model with both caches.",
    unit="greetings",
    example="soon",
    spec=SoonSpec,
    result=SoonResult,
    run=run,
    words=words,
    document=lambda result: {"runs": [run_document(one) for one in result.runs]},
    read=read,
    runs=placed,
    labels=lambda _: {row.key: row.label for row in ROWS.values()},
    strategies=lambda _: ARMS,
    table=table,
    draw=draw,
    drawings=lambda result: [chart(result)],
    page=page,
    ask=ask,
)


def soon_of() -> SoonResult:
    runs = tuple(run_of(arm, (0.1 + 0.05 * at,), round_number=1, order=at) for at, arm in enumerate(ARMS))
    return SoonResult(SoonSpec("Hello"), MODEL, ENVIRONMENT, runs)
