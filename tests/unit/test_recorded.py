"""Recorded results: only what lies in the folder can be opened, and every file that is shipped opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvdemo.backend import Backend
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import document, dumps
from kvdemo.experiments.pieces import plain
from kvdemo.questions.application.spec import ApplicationResult
from kvdemo.questions.application.words import headline
from kvdemo.questions.recorded import recorded_names, recorded_result
from kvdemo.questions.table import QUESTIONS
from kvdemo.settings import Settings
from kvdemo.ui.compare.opened import others
from kvdemo.ui.compare.results import headline_card
from kvdemo.watching.words import lines_of
from tests.made_up import result_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results = tmp_path / "results"
    results.mkdir()
    (results / "two-cores.json").write_text(dumps(document(result_of(rounds=2))))
    (results / "cut.json").write_text('{"schema": 1,')
    (results / "Not A Name.json").write_text("{}")
    (results / "notes.txt").write_text("{}")
    (tmp_path / "outside.json").write_text(dumps(document(result_of(rounds=1))))
    return results


def test_a_result_is_opened_by_its_name(folder: Path) -> None:
    assert recorded_names(folder) == ("cut", "two-cores")
    assert recorded_result("two-cores", folder) == result_of(rounds=2)


@pytest.mark.parametrize(
    "name", ["../outside", "two-cores.json", "/etc/passwd", "", "Not A Name", "two-cores\x00", 7, None]
)
def test_no_other_name_opens_anything(folder: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"results: .* is not one of cut, two-cores"):
        recorded_result(name, folder)


def test_a_broken_file_is_named_by_its_place(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="file: is not JSON: line 1"):
        recorded_result("cut", folder)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert recorded_names(tmp_path / "nothing") == ()


def test_every_shipped_result_opens_through_the_backend() -> None:
    backend = Backend(Settings())
    try:
        results = [backend.recorded_result(name) for name in backend.recorded_results()]
    finally:
        backend.close()
    assert all(result.model.name and result.environment.measured_at for result in results)


@pytest.mark.parametrize(
    "question", [row for row in QUESTIONS if row.key != "endpoint"], ids=lambda question: question.key
)
def test_every_question_opens_on_a_recorded_result_and_links_to_the_others_of_its_kind(question: Any) -> None:
    result = recorded_result(question.example)
    assert type(result) is question.result
    assert all(type(recorded_result(name)) is question.result for name, _ in question.further)
    for shown in (question.example, *(name for name, _ in question.further)):
        beside = others(question, shown)
        card = headline_card(question, result, "Recorded example", beside)
        assert len(beside) == len(question.further)
        for name, words in beside:
            assert name != shown
            assert f'<a href="?tab=compare&amp;result={name}">{words}</a>' in card
    assert "Recorded as well" not in headline_card(question, result)


def test_the_readme_shows_the_recorded_application_as_it_is_told_in_a_terminal() -> None:
    result = recorded_result("application")
    assert isinstance(result, ApplicationResult)
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert "\n".join(["$ python -m kvdemo watch summarise.py", *lines_of(result.watched)]) in readme
    assert plain(headline(result)) in " ".join(line.removeprefix("> ") for line in readme.splitlines())
