"""Is it faster? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvdemo.experiments.bench import Bench
from kvdemo.experiments.compare import compare
from kvdemo.experiments.comparison import ENDPOINT_ARM, CompareSpec, ComparisonResult
from kvdemo.experiments.documents import document, from_document
from kvdemo.experiments.question import Page, Question
from kvdemo.experiments.summary import noise_of
from kvdemo.experiments.tables import PlacedRuns
from kvdemo.facts.requests import GenerationRequest
from kvdemo.questions.faster import words
from kvdemo.questions.faster.evidence import evidence
from kvdemo.questions.faster.tables import arms_table

__all__ = ["FASTER"]


def placed(result: ComparisonResult) -> PlacedRuns:
    """Every run with its place in the result."""
    return (({}, run) for run in result.runs)


def run(spec: CompareSpec, bench: Bench) -> Iterator[Any]:
    """Every arm's request is checked against the limits before the first run."""
    prompt = spec.prompt_of_run()
    prompt_tokens = bench.count(GenerationRequest(prompt, spec.max_new_tokens))
    for key in spec.strategies:
        bench.check_size(GenerationRequest(prompt, spec.max_new_tokens, key), prompt_tokens)
    return compare(spec, bench, prompt_tokens=prompt_tokens)


def draw(result: ComparisonResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.faster.charts import draw

    return draw(result, picked)


def drawings(result: ComparisonResult) -> Sequence[Any]:
    from kvdemo.questions.faster.charts import drawings

    return drawings(result)


def page() -> Page[CompareSpec]:
    from kvdemo.questions.faster.page import PAGE

    return PAGE


def ask() -> Callable[..., CompareSpec]:
    from kvdemo.questions.faster.command import compare

    return compare


FASTER = Question(
    key="faster",
    command="compare",
    kind="comparison",
    title="Is it faster?",
    empty=(
        "Run writes the same text with every strategy, one after the other, and times every token. You then see here how many "
        "times faster one is, whether the tokens are the same, and where the time went. It measures this machine, which takes "
        "about 2 min."
    ),
    unit="runs",
    settles=(3, 4, 9),
    evidence=evidence,
    takes="about 2 min",
    example="compare",
    further=(("strategies", "every strategy that a CPU can run"),),
    spec=CompareSpec,
    result=ComparisonResult,
    run=run,
    words=words,
    document=document,
    read=from_document,
    runs=placed,
    labels=lambda result: result.labels,
    strategies=lambda spec: spec.strategies,
    table=arms_table,
    comparison=lambda result: result,
    draw=draw,
    drawings=drawings,
    at_endpoint=lambda spec: replace(spec, strategies=(ENDPOINT_ARM,)),
    page=page,
    ask=ask,
    noise=lambda result: noise_of(result.spec, result.comparisons),
)
