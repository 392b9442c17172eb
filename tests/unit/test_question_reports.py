"""Reports and CSV of the further questions: the same parts, every run, nothing loaded."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from kvdemo.charts.static_svg import figure_svg
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.grow.tables import growth_table
from kvdemo.questions.prefix.tables import prefix_table
from kvdemo.questions.prompts.tables import prompt_set_table
from kvdemo.questions.table import question_of
from kvdemo.report.report import report_html, report_markdown
from kvdemo.report.spreadsheet import runs_csv
from tests.made_up import growth_of, prefix_of, prompt_set_of, result_of

QUESTIONS: dict[str, Callable[[], AnyResult]] = {
    "growth": lambda: growth_of(prompts=(16, 32), answers=(4, 8)),
    "set": lambda: prompt_set_of(["one", "<script>alert(1)</script>"]),
    "prefix": lambda: prefix_of(3),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_report_has_the_parts_of_any_report_and_loads_nothing(name: str) -> None:
    result = QUESTIONS[name]()
    page = report_html(result)
    for part in ("1. What is in force now", "2. A representative", "3. What is not yet known", "Every run"):
        assert part in page
    assert "<script" not in page
    assert "src=" not in page
    assert page.count("<svg") == 2 * len(question_of(result).drawings(result))
    assert "<script" not in report_markdown(result).split("## Reproduce")[0]


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_chart_of_a_question_can_be_drawn_without_a_browser(name: str) -> None:
    result = QUESTIONS[name]()
    for figure in question_of(result).drawings(result):
        assert "NaN" not in figure_svg(figure, 311)
        ElementTree.fromstring(figure_svg(figure, 311))


@pytest.mark.parametrize(
    ("result", "columns"),
    [
        (result_of(rounds=1), {"prompt"}),
        (QUESTIONS["growth"](), {"point_prompt_tokens", "point_new_tokens"}),
        (QUESTIONS["set"](), {"prompt_id", "prompt"}),
        (QUESTIONS["prefix"](), {"question", "prefix", "system_prompt"}),
    ],
    ids=["comparison", *QUESTIONS],
)
def test_csv_has_one_row_per_run_with_its_place(result: AnyResult, columns: set[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(runs_csv(result), newline="")))
    assert len(rows) == sum(1 for _ in question_of(result).runs(result))
    assert columns <= set(rows[0])
    assert {row["torch"] for row in rows} == {"2.13.0+cpu"}
    assert {row["seed"] for row in rows} == {"0"}


def test_growth_has_a_row_per_point_and_arm_with_the_interval() -> None:
    frame = growth_table(growth_of(prompts=(16,), answers=(4, 8)))
    assert list(frame["Strategy"]) == ["No cache", "Dynamic cache"] * 2
    baseline, candidate, *_ = frame["Times faster"]
    assert baseline == ""
    assert " to " in candidate


def test_a_set_has_a_row_per_prompt() -> None:
    frame = prompt_set_table(prompt_set_of(["one", "two"]))
    assert list(frame["Prompt"]) == ["one", "two"]
    assert list(frame["Same tokens"]) == ["yes", "yes"]


def test_a_prefix_has_a_row_per_question_with_what_was_reused() -> None:
    frame = prefix_table(prefix_of(2))
    assert list(frame["First token, kept"]) == ["110 ms", "112 ms"]
    assert list(frame["Tokens reused"]) == ["500 of 520"] * 2
