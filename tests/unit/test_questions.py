"""Every row of the table of questions, and one that only this test has, through everything that reads the table.

The page shows it and runs it, a command asks it, its result goes to JSON and back, to HTML, Markdown and CSV, opens from a
file and as a recorded example, and its bad input is refused by field.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from kvdemo.cli.main import main
from kvdemo.components.prompt_source import TYPED
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.recorded import recorded_result
from kvdemo.questions.table import QUESTIONS, question_of
from kvdemo.report.contents import readiness_of
from kvdemo.report.report import report_html, report_markdown
from kvdemo.report.spreadsheet import runs_csv
from kvdemo.settings import Settings
from kvdemo.ui.page import build_page
from tests.fake_backend import FakeBackend
from tests.loopback_engine import MODEL_ID, WorkEngine, serving
from tests.made_up import RESULTS
from tests.made_up_question import SOON, soon_of
from tests.through_blocks import Visit
from tests.tiny import tiny_model, tiny_tokenizer

TABLE = (*QUESTIONS, SOON)
URL = "the address of a server"


@dataclass(frozen=True)
class Row:
    """What the matrix puts into a question.

    small    values of the form by element, so that it runs quickly; bad: one that is refused, under the name `named`
    drawn    whether that much is enough for a chart
    asked_here  False: the page and the tests' command line run nothing, since it is somebody's program that is run
    command  arguments that ask it quickly; bad_command: that are refused, with the field's name
    """

    result: Callable[[], AnyResult]
    small: Mapping[str, Any]
    bad: Mapping[str, Any]
    named: str
    command: tuple[str, ...]
    bad_command: tuple[str, ...]
    field: str
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    drawn: bool = True
    asked_here: bool = True


ROWS = {
    "faster": Row(
        result=RESULTS["faster"],
        small={"new-tokens": 3, "rounds": 1},
        bad={"rounds": 0},
        named="Rounds: ",
        command=("--max-new-tokens", "3"),
        bad_command=("--rounds", "0"),
        field="rounds",
    ),
    "prompts": Row(
        result=RESULTS["prompts"],
        small={"source": TYPED, "typed": "one\ntwo words", "new-tokens": 3, "rounds": 1},
        bad={"new-tokens": -1},
        named="New tokens: ",
        command=("prompts.txt", "--max-new-tokens", "3"),
        bad_command=("prompts.txt", "--max-new-tokens", "0"),
        field="max_new_tokens",
        files={"prompts.txt": "one\ntwo\n"},
    ),
    "grow": Row(
        result=RESULTS["grow"],
        small={"answers": "2", "longest": 32},
        bad={"answers": "8, many"},
        named="Answer lengths: ",
        command=("--prompt-lengths", "5", "--answer-lengths", "3"),
        bad_command=("--answer-lengths", "few"),
        field="answer_lengths",
    ),
    "prefix": Row(
        result=RESULTS["prefix"],
        small={"questions": "one?\ntwo?", "new-tokens": 3},
        bad={"questions": " "},
        named="Questions: ",
        command=("system.txt", "--question", "why?", "--max-new-tokens", "3"),
        bad_command=("system.txt",),
        field="question",
        files={"system.txt": "You are careful and answer in few words."},
    ),
    "load": Row(
        result=RESULTS["load"],
        small={"requests": 2, "new-tokens": 3, "rounds": 1},
        bad={"requests": 0},
        named="Requests at once: ",
        command=("--requests", "2", "--max-new-tokens", "3", "--mode", "one-by-one", "--mode", "padded"),
        bad_command=("--requests", "0"),
        field="requests",
    ),
    "conversations": Row(
        result=RESULTS["conversations"],
        small={"pages": "16"},
        drawn=False,
        bad={"pages": "16, many"},
        named="Page sizes: ",
        command=("talk.jsonl", "--page-size", "16"),
        bad_command=("talk.jsonl", "--page-size", "0"),
        field="page_sizes",
        files={
            "talk.jsonl": '{"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yo."}]}\n'
        },
    ),
    "endpoint": Row(
        result=RESULTS["endpoint"],
        small={"url": "http://127.0.0.1:1/v1"},
        bad={"requests": 0},
        named="Requests: ",
        command=("--url", URL, "--requests", "3", "--seconds", "20"),
        bad_command=("--requests", "0"),
        field="requests",
    ),
    "application": Row(
        result=RESULTS["application"],
        small={},
        bad={},
        named="Program: ",
        command=(),
        bad_command=("--rounds", "0"),
        field="script",
        asked_here=False,
    ),
    "soon": Row(
        result=soon_of,
        small={},
        bad={"times": 0},
        named="How often: ",
        command=("Hello", "--times", "1"),
        bad_command=("Hello", "--times", "0"),
        field="times",
    ),
}


def test_every_row_of_the_table_is_in_this_matrix() -> None:
    assert {question.key for question in TABLE} == set(ROWS)
    assert {question.key for question in QUESTIONS} == set(RESULTS)


@pytest.fixture(params=TABLE, ids=lambda question: question.key)
def question(request: pytest.FixtureRequest) -> Question[Any, Any]:
    asked: Question[Any, Any] = request.param
    return asked


@pytest.fixture
def asked(question: Question[Any, Any]) -> Question[Any, Any]:
    """A question that can be asked here: tests/unit/test_watch.py runs somebody's programs."""
    if not ROWS[question.key].asked_here:
        pytest.skip("the page runs nobody's program")
    return question


@cache  # results are frozen
def made_up(key: str) -> AnyResult:
    return ROWS[key].result()


def places(question: Question[Any, Any], result: AnyResult) -> list[Mapping[str, object]]:
    """What each row of its spreadsheet begins with."""
    if question.rows is None:
        return [place for place, _ in question.runs(result)]
    return [{name: value for name, value in row.items() if isinstance(value, int)} for row in question.rows(result)]


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def backend() -> FakeBackend:
    return FakeBackend(questions=TABLE, recordings={question.example: made_up(question.key) for question in TABLE})


@pytest.fixture(scope="module")
def demo(backend: FakeBackend) -> gr.Blocks:
    return build_page(backend, Settings(), TABLE)


def told(demo: gr.Blocks, question: Question[Any, Any], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What Run shows, view by view and by element, with these values in the form and its own in the rest."""
    visit = Visit(demo)
    run = visit.event("run", f"compare-{question.key}-run")
    given = {f"compare-{question.key}-{name}": value for name, value in values.items()}
    ids = [block.elem_id for block in run.inputs]
    assert set(given) <= set(ids), ids
    filled = [given.get(name, value) for name, value in zip(ids, visit.values(run), strict=True)]
    return [{block.elem_id: value for block, value in view.items()} for view in visit.run(run, filled)]


def test_it_is_on_the_page_among_the_questions(demo: gr.Blocks, question: Question[Any, Any]) -> None:
    blocks = {block.elem_id: block for block in demo.blocks.values() if getattr(block, "elem_id", None)}
    assert (question.title, question.key) in blocks["compare-question"].choices
    for part in ("run", "stop", "notice", "headline", "live", "tables", "answer", "csv", *question.page().figures):
        assert f"compare-{question.key}-{part}" in blocks


def test_it_runs_on_the_page(demo: gr.Blocks, backend: FakeBackend, asked: Question[Any, Any]) -> None:
    question = asked
    views = told(demo, question, ROWS[question.key].small)
    last, key = views[-1], f"compare-{question.key}"
    assert type(backend.asked_specs[-1]) is question.spec
    assert "kv-headline-text" in last[f"{key}-headline"]
    assert question.words.CAPTION in last[f"{key}-tables"]
    assert ("Every run (" in last[f"{key}-tables"]) is (question.rows is None)
    assert last[f"{key}-notice"] == ""
    assert last[f"{key}-answer"]["visible"] is True
    assert last[f"{key}-charts"]["visible"] is ROWS[question.key].drawn
    assert len(views) > 1, "it tells while it runs"


def test_bad_input_is_refused_on_the_page_by_the_name_of_its_field(
    demo: gr.Blocks, backend: FakeBackend, asked: Question[Any, Any]
) -> None:
    question = asked
    before, row = len(backend.asked_specs), ROWS[question.key]
    (only,) = told(demo, question, {**row.small, **row.bad})
    assert row.named in only[f"compare-{question.key}-notice"]
    assert f"compare-{question.key}-headline" not in only, "what stood there stays"
    assert len(backend.asked_specs) == before, "nothing runs"


def test_its_recorded_example_is_shown_when_it_is_looked_at(demo: gr.Blocks, question: Question[Any, Any]) -> None:
    visit = Visit(demo)
    turn = visit.event("turn_to")
    (view,) = visit.run(turn, [question.key, ()])
    shown = {block.elem_id: value for block, value in view.items()}
    assert "Recorded example" in shown[f"compare-{question.key}-headline"]
    assert shown[f"compare-{question.key}"]["visible"] is True


def test_a_saved_result_opens_on_its_page(demo: gr.Blocks, question: Question[Any, Any], tmp_path: Path) -> None:
    from kvdemo.ui.compare.files import read_result

    saved = tmp_path / "result.json"
    saved.write_text(dumps(any_document(made_up(question.key), TABLE)), encoding="utf-8")
    assert read_result(str(saved), 5 * 2**20, TABLE) == made_up(question.key)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def url_of_a_server() -> Iterator[str]:
    with serving(WorkEngine(each_s=0.0, own_s=0.0).answer) as url:
        yield url


@pytest.fixture
def at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: Question[Any, Any]) -> Path:
    """In a folder that holds the files which the question's command reads."""
    for name, content in ROWS[question.key].files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_command_asks_it_prints_it_and_writes_every_file(
    asked: Question[Any, Any],
    at_work: Path,
    model: Path,
    url_of_a_server: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    question = asked
    files = ("--json", "a.json", "--report", "a.html", "--csv", "a.csv")
    words = [url_of_a_server if word == URL else word for word in ROWS[question.key].command]
    named = ["--model", MODEL_ID if url_of_a_server in words else str(model)]
    status = main([question.command, *words, *named, *files], TABLE)
    out = capsys.readouterr().out
    assert status == 0, out
    result = from_any_document(loads((at_work / "a.json").read_bytes()), TABLE)
    assert question_of(result, TABLE) is question
    assert out.startswith(plain(question.words.headline(result)))
    assert all(row[0][:20] in out for row in question.table(result).rows)
    assert "What is not yet known" in (at_work / "a.html").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO((at_work / "a.csv").read_text(encoding="utf-8-sig"), newline="")))
    assert len(rows) == 1 + len(places(question, result))


def test_bad_input_is_refused_by_its_command_in_one_line_with_the_field(
    asked: Question[Any, Any], at_work: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = asked
    row = ROWS[question.key]
    assert main([question.command, *row.bad_command, "--model", str(model), "--json", "-"], TABLE) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"kvdemo: {row.field}: ")


def test_its_command_is_listed_with_its_question(
    question: Question[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"], TABLE) == 0
    assert re.search(rf"^\s+{question.command}\s+\S", capsys.readouterr().out, re.MULTILINE)


# --- files -----------------------------------------------------------------------------------------------------------


def test_its_result_goes_to_json_and_back(question: Question[Any, Any]) -> None:
    result = made_up(question.key)
    document = json.loads(dumps(any_document(result, TABLE)))
    assert (document["schema"], document["kind"]) == (1, question.kind)
    assert from_any_document(document, TABLE) == result
    assert any_document(from_any_document(document, TABLE), TABLE) == document


@pytest.mark.parametrize("place", ["request", "model", "environment"])
def test_a_mistake_in_its_document_is_named_by_its_place(question: Question[Any, Any], place: str) -> None:
    document = json.loads(dumps(any_document(made_up(question.key), TABLE)))
    with pytest.raises(InvalidRequest, match=rf"{place}: must be an object"):
        from_any_document({**document, place: 3}, TABLE)


def test_a_kind_that_is_not_in_the_table_is_refused_by_name(question: Question[Any, Any]) -> None:
    document = any_document(made_up(question.key), TABLE)
    others = tuple(row for row in TABLE if row is not question)
    with pytest.raises(InvalidRequest, match="kind: is not one of"):
        from_any_document(document, others)


def test_it_has_a_report_in_html_and_in_markdown(question: Question[Any, Any]) -> None:
    result = made_up(question.key)
    page, mark = report_html(result, table=TABLE), report_markdown(result, table=TABLE)
    again = page.count('<div class="kv-replay-grid"><svg')
    asked = readiness_of(result, None, None, TABLE).request is not None  # what a user will notice is drawn, too
    assert page.count("<svg") - again == 2 * (len(question.drawings(result)) + asked) > 0
    assert "src=" not in page
    for said in (question.words.CAPTION, question.words.METHOD, question.words.request(result)[0][1]):
        assert said.split("<")[0] in page.replace("&#39;", "'")
    for cell in question.table(result).names:
        assert cell in page
        assert cell in mark


def test_it_has_a_row_per_run_or_whatever_it_counts_as_csv(question: Question[Any, Any]) -> None:
    result = made_up(question.key)
    rows = list(csv.DictReader(io.StringIO(runs_csv(result, TABLE), newline="")))
    expected = places(question, result)
    assert len(rows) == len(expected) > 0
    for row, place in zip(rows, expected, strict=True):
        assert {name: row[name] for name in place} == {name: str(value) for name, value in place.items()}


def test_its_recorded_result_opens_by_name_with_its_table(question: Question[Any, Any], tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(dumps(any_document(made_up(question.key), TABLE)), encoding="utf-8")
    assert recorded_result("mine", tmp_path, TABLE) == made_up(question.key)
