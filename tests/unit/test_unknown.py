"""Unknown is never 0: runs of which only text, times and numbers of tokens are known, in every question and on every surface."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvdemo.charts.static_svg import figure_svg
from kvdemo.cli.results import print_result
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.attempt import Place, attempt
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.experiments.summary import summarise
from kvdemo.experiments.tables import Table, runs_table
from kvdemo.facts.events import GenerationEvent
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import ArmFailed, PreparedPrefix
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.faster.verdict_card import verdict_card
from kvdemo.questions.load.spec import LoadPoint
from kvdemo.questions.load.summary import compared
from kvdemo.questions.prefix.run import summarise_prefix
from kvdemo.questions.prompts.run import compare_set
from kvdemo.questions.table import QUESTIONS, question_of
from kvdemo.report.report import report_html, report_markdown
from kvdemo.report.spreadsheet import runs_csv
from kvdemo.ui.compare import runs
from tests.fake_backend import FakeBackend
from tests.known import sure
from tests.made_up import (
    RESULTS,
    UNKNOWN,
    growth_of,
    load_of,
    prefix_of,
    prompt_set_of,
    result_of,
    unknown_prefix,
    unknown_run,
)
from tests.made_up_model import ENVIRONMENT, MODEL

KEYS = tuple(question.key for question in QUESTIONS if question.rows is None)  # those that run something
# What nobody said of these runs, as columns of the file of runs.
UNSAID = (
    "token_ids", "strategy", "reused_tokens", "cache_tokens", "cache_bytes", "cache_storage_bytes", "cache_bytes_by_device",
    "positions_computed_total", "positions_read_total", "prefill_tokens_per_s", "peak_bytes",
)  # fmt: skip
# Cells that would say "none of it".
ZEROS = re.compile(r"(0|0 B|0 ms|nothing kept|0 of .*|no|None|nan)")


@cache  # they are frozen
def parts(key: str) -> tuple[Question[Any, Any], AnyResult]:
    result = UNKNOWN[key]()
    return question_of(result), result


def cells(table: Table, *without: str) -> list[str]:
    return [cell for name in table.names if name not in without for cell in table[name]]


def test_every_question_that_runs_something_is_asked_here() -> None:
    """The check of an endpoint has no runs but such ones, and files of its own: test_endpoint_words.py."""
    here = (row for row in QUESTIONS if row.needs != "endpoint")
    running = {row.key for row in here if any(True for _ in row.runs(RESULTS[row.key]()))}
    assert running == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_such_a_document_opens_and_is_the_same(key: str) -> None:
    _, result = parts(key)
    text = dumps(any_document(result))
    assert from_any_document(loads(text)) == result
    assert '"token_ids": null' in text
    assert '"strategy": null' in text


@pytest.mark.parametrize("key", KEYS)
def test_tables_say_that_it_is_not_available(key: str) -> None:
    question, result = parts(key)
    rows = runs_table(question.runs(result), question.labels(result))
    for name in ("Computed", "Cache held", "Peak memory"):
        assert set(rows[name]) == {"n/a"}, name
    assert [cell for cell in cells(question.table(result)) if ZEROS.fullmatch(cell)] == []


@pytest.mark.parametrize("key", KEYS)
def test_the_file_of_runs_leaves_it_empty(key: str) -> None:
    _, result = parts(key)
    for row in csv.DictReader(io.StringIO(runs_csv(result), newline="")):
        assert {row.get(name, "") for name in UNSAID} == {""}
        assert int(row["new_tokens"]) == int(row["num_new_tokens"]) > 0


@pytest.mark.parametrize("key", KEYS)
def test_it_is_drawn_reported_printed_and_shown(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    question, result = parts(key)
    for figure in question.drawings(result):
        picture = figure_svg(figure, 311)
        assert "NaN" not in picture
        assert "0 B" not in re.sub(r"<[^>]+>", " ", picture)
    page, mark = report_html(result), report_markdown(result)
    assert page.count("<svg") == 2 * len(question.drawings(result)) > 0
    view = runs.shown(FakeBackend(), question, result)
    print_result(question, result)
    page, mark = (said.split("Reproduce without kvdemo")[0] for said in (page, mark))
    for said in (page, mark, view.headline, view.tables, view.aside, capsys.readouterr().out):
        bare = re.sub(r"<[^>]+>", " ", said)
        for claim in ("nothing kept", " 0 B", "None", "same tokens on every", "Same tokens.", "no round in which"):
            assert claim not in bare, claim


@pytest.mark.parametrize("key", KEYS)
def test_the_headline_claims_nothing_of_the_tokens(key: str) -> None:
    question, result = parts(key)
    said = plain(question.words.headline(result))
    assert re.search("times (faster|the throughput)", said)
    assert not re.search(r"same (\d+ )?tokens|differ", said, re.IGNORECASE), said


def test_what_a_shared_prefix_keeps_and_when_it_pays_is_not_known() -> None:
    result = unknown_prefix()
    said = plain(question_of(result).words.headline(result))
    assert "does not pay" not in said
    assert "not known" in said
    assert "n/a" not in said


def test_tokens_that_nobody_named_are_not_compared_and_it_is_said() -> None:
    result = UNKNOWN["faster"]()
    assert isinstance(result, ComparisonResult)
    (said,) = question_of(result).words.verdicts(result)
    assert said == "No cache and Dynamic cache: whether the tokens are the same is not known."
    card = verdict_card(result)
    assert "not known" in card
    assert "What is not in these times?" in card


def test_no_work_is_drawn_where_none_is_known_and_the_times_are() -> None:
    result = UNKNOWN["faster"]()
    arrival, steps, split, work, held = question_of(result).draw(result, {})
    assert (work, held) == (None, None)
    assert None not in (arrival, steps, split)


def test_a_run_whose_tokens_came_several_at_a_time_has_a_time_per_token_and_no_steps() -> None:
    """Three pieces at 1, 2 and 4 s with seven tokens: (4 - 1) / 6 s per token, and no token has a time of its own."""
    known = result_of(rounds=6, new_tokens=7)
    pieces = [replace(unknown_run(run), token_times_s=(1.0, 2.0, 4.0)) for run in known.runs]
    result = summarise(
        known.spec, pieces, model=known.model, environment=known.environment, strategies={r.key: r for r in known.strategies}
    )  # fmt: skip
    assert from_any_document(loads(dumps(any_document(result)))) == result
    assert {run.tpot_s for run in result.runs} == {0.5}
    assert {run.step_s for run in result.runs} == {()}
    arrival, steps, split, *_ = question_of(result).draw(result, {})
    assert (arrival, steps) == (None, None)
    assert split is not None
    assert len(question_of(result).drawings(result)) == 1


def test_more_times_than_tokens_are_refused_by_their_place() -> None:
    made = any_document(UNKNOWN["faster"]())
    made["runs"][3]["token_times_s"] = [0.1] * 100
    with pytest.raises(InvalidRequest, match=r"runs\[3\]\.token_times_s: must have one time per token"):
        from_any_document(made)


def test_a_run_that_failed_before_anything_was_known_says_nothing_of_its_cache() -> None:
    def refused(request: GenerationRequest) -> Any:
        yield from ()
        raise InvalidRequest("prompt", "is too long")

    (failed,) = attempt(refused, GenerationRequest("x", 4), Place(1, 1))
    failed_record = sure(ArmFailed, failed).record
    assert failed_record.cache_bytes is None
    assert failed_record.reused_tokens is None
    assert (failed_record.total_computed, failed_record.total_read) == (None, None)


def test_a_run_without_a_strategy_is_called_by_its_arm() -> None:
    def engine(request: GenerationRequest) -> Any:
        from kvdemo.facts.events import Finished

        yield Finished("stop", RunRecord(None, "ok", "stop", 4))

    events: list[GenerationEvent] = [step.event for step in attempt(engine, GenerationRequest("x", 4), Place(1, 1))]  # type: ignore[union-attr]
    assert events[-1].record.arm_key == "dynamic"  # type: ignore[union-attr]


@pytest.mark.parametrize("key", KEYS)
def test_a_run_of_neither_ids_nor_a_number_is_refused_by_its_place(key: str) -> None:
    text = dumps(any_document(UNKNOWN[key]())).replace('"num_new_tokens": ', '"unsaid": ')
    with pytest.raises(InvalidRequest, match=r"\.num_new_tokens: must be there where the ids are not"):
        from_any_document(loads(text))


NO_ROUND = compared(load_of().spec, LoadPoint(4, ()), MODEL, {})
NOTHING: dict[str, Callable[[], AnyResult]] = {
    "faster": lambda: replace(result_of(rounds=1), runs=(), comparisons=()),
    "prompts": lambda: replace(
        prompt_set_of(("one",)), prompts=(), comparisons=compare_set(("none", "dynamic"), ()), not_run=("one",)
    ),
    "grow": lambda: replace(growth_of((16,), (4,)), points=(), left_out=((16, 4),)),
    "prefix": lambda: summarise_prefix(
        prefix_of(1).spec, PreparedPrefix(None, None, None), (), model=MODEL, environment=ENVIRONMENT
    ),
    "load": lambda: replace(load_of(rounds=0), points=(LoadPoint(4, ()),), comparisons=NO_ROUND),
}


@pytest.mark.parametrize("key", KEYS)
def test_where_nothing_was_measured_nothing_is_drawn_and_it_is_said(key: str) -> None:
    result = NOTHING[key]()
    question = question_of(result)
    assert question.drawings(result) == []
    assert set(question.draw(result, {})) == {None}
    assert "there is nothing to compare" in report_html(result)
    assert "there is nothing to compare" in report_markdown(result)
    assert from_any_document(loads(dumps(any_document(result)))) == result


# --- documents from before -------------------------------------------------------------------------------------------

DATA = Path(__file__).resolve().parents[1] / "data" / "schema-1"
OLD = {
    "prompts": DATA / "prompt_set.json",
    "grow": DATA / "growth.json",
    "prefix": DATA / "prefix_reuse.json",
    "faster": DATA / "comparison.json",
}


@pytest.mark.parametrize("key", OLD)
def test_a_document_from_before_arms_had_names_opens_and_says_what_it_said(key: str) -> None:
    data = json.loads(OLD[key].read_text(encoding="utf-8"))
    result = from_any_document(data)
    question = question_of(result)
    assert question.key == key
    placed = [run for _, run in question.runs(result)]
    assert {run.arm for run in placed} == {None}
    assert {run.arm_key for run in placed} == {run.strategy for run in placed}
    assert all(run.token_ids and run.cache_bytes is not None for run in placed)
    assert "times faster" in plain(question.words.headline(result))
    page = report_html(result)
    again = page.count('<div class="kv-replay-grid"><svg')
    assert page.count("<svg") - again == 2 * len(question.drawings(result)) > 0
    assert from_any_document(loads(dumps(any_document(result)))) == result


@pytest.mark.parametrize("key", KEYS)
def test_the_first_mistake_in_a_run_is_named_wherever_the_run_stands(key: str) -> None:
    text = dumps(any_document(RESULTS[key]())).replace('"status": "ok"', '"status": "fine"')
    with pytest.raises(InvalidRequest, match=r"\.status: is not one of ok"):
        from_any_document(loads(text))
