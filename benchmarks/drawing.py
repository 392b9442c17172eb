"""How long does a result take to draw? Twelve runs of 2,000 tokens, in every form and shape that a result has.

For each: all that the page shows (headline, figures as they are sent, tables, the verdict), the HTML report, Markdown, CSV
and JSON, one after the other in this process; the first figures only warm the drawing libraries. draw_s is the slowest of
the shapes with all of it together, page_s that of the page alone.

    python -m benchmarks.drawing [--runs 12] [--tokens 2000]
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from kvdemo.experiments.documents import dumps
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.questions.documents import AnyResult, any_document
from kvdemo.questions.grow.spec import GrowthPoint
from kvdemo.questions.prefix.run import summarise_prefix
from kvdemo.questions.prefix.spec import PrefixPair
from kvdemo.questions.prompts.run import compare_set
from kvdemo.questions.prompts.spec import PromptResult, PromptSetSpec
from kvdemo.questions.table import question_of
from kvdemo.report.report import report_html, report_markdown
from kvdemo.report.spreadsheet import runs_csv
from kvdemo.ui.compare.results import headline_card, result_tables
from tests.made_up import growth_of, prefix_of, prompt_set_of, result_of
from tests.made_up_model import ENVIRONMENT, MODEL

ARMS = ("none", "dynamic", "static", "static-compiled", "fp8")

Result = Callable[[int, int], AnyResult]
"""(number of runs, tokens of each) -> a result of that size"""


def two_arms(runs: int, tokens: int) -> AnyResult:
    return result_of(rounds=runs // 2, new_tokens=tokens)


def five_arms(runs: int, tokens: int) -> AnyResult:
    return result_of(ARMS, rounds=-(-runs // len(ARMS)), new_tokens=tokens)


def growth(runs: int, tokens: int) -> AnyResult:
    points = [GrowthPoint(16 * 2**at, tokens, result_of(rounds=1, new_tokens=tokens)) for at in range(runs // 2)]
    return replace(growth_of(prompts=(16,), answers=(4,)), points=tuple(points))


def prompt_set(runs: int, tokens: int) -> AnyResult:
    rows = tuple(PromptRow("words", f"prompt {at}") for at in range(runs // 2))
    prompts = tuple(PromptResult(row, result_of(rounds=1, new_tokens=tokens)) for row in rows)
    spec = PromptSetSpec(rows)
    return replace(prompt_set_of(), spec=spec, prompts=prompts, comparisons=compare_set(spec.strategies, prompts))


def prefix(runs: int, tokens: int) -> AnyResult:
    made = prefix_of(runs // 2)
    fresh, kept = result_of(rounds=1, new_tokens=tokens).runs[-2:]
    pairs = tuple(PrefixPair(pair.question, fresh, kept, pair.verdict) for pair in made.pairs)
    return summarise_prefix(made.spec, made.prefix, pairs, model=MODEL, environment=ENVIRONMENT)


def page(result: AnyResult) -> list[Any]:
    question = question_of(result)
    figures = [figure.to_json() for figure in question.draw(result, {}) if figure is not None]
    shown = question.page()
    return [
        headline_card(question, result),
        *figures,
        result_tables(question, result),
        shown.finished(result),
        shown.aside(result),
    ]


FORMS: dict[str, Callable[[AnyResult], Any]] = {
    "page": page,
    "html": report_html,
    "markdown": report_markdown,
    "csv": runs_csv,
    "json": lambda result: dumps(any_document(result)),
}
SHAPES: tuple[Result, ...] = (two_arms, five_arms, growth, prompt_set, prefix)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12, help="timed runs of a result (default 12)")
    parser.add_argument("--tokens", type=int, default=2000, help="new tokens of each run (default 2000)")
    asked = parser.parse_args()
    say_if_busy()
    page(result_of(rounds=1, new_tokens=4))
    taken: dict[str, dict[str, float]] = {}
    for shape in SHAPES:
        result = shape(asked.runs, asked.tokens)  # fresh, so that nothing is summed up yet
        taken[shape.__name__] = times = {}
        for form, draw in FORMS.items():
            began = time.perf_counter()
            draw(result)
            times[form] = time.perf_counter() - began
        told = "   ".join(f"{form} {took_s:.2f}" for form, took_s in times.items())
        print(f"{shape.__name__:12s} {sum(times.values()):.2f} s   {told}", flush=True)
    print_figures(
        {},
        worst={
            "draw_s": [round(sum(times.values()), 3) for times in taken.values()],
            "page_s": [round(times["page"], 3) for times in taken.values()],
        },
        runs=asked.runs,
        tokens=asked.tokens,
        python=platform.python_version(),
    )


if __name__ == "__main__":
    main()
