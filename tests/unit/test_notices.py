"""What was changed between a person's words and the model is said on every surface, not only beside a chat."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvdemo.cli.main import main
from kvdemo.cli.results import print_result
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.notices import notices
from kvdemo.facts.events import Finished, PromptEncoded
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message
from kvdemo.questions.documents import AnyResult, any_document, from_any_document
from kvdemo.questions.table import question_of
from kvdemo.report.report import report_html, report_markdown
from kvdemo.report.spreadsheet import runs_csv
from kvdemo.ui.api import event_as_dict
from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.chat.conversation_file import as_json, as_markdown
from kvdemo.ui.compare.results import headline_card
from tests.made_up import growth_of, prefix_of, prompt_set_of, result_of, run_of
from tests.tiny import CHAT_TEMPLATE, tiny_model, tiny_tokenizer
from tests.tiny_backend import ready_backend

SAID = "This model has no chat template: it sees the conversation as plain text."
FOLDED = "This model's template takes no system prompt: it was put in front of the first question."
REFUSING = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT_TEMPLATE


def said_by(runs: tuple[RunRecord, ...]) -> tuple[RunRecord, ...]:
    return tuple(replace(run, notices=(SAID,)) for run in runs)


def comparison(result: ComparisonResult) -> ComparisonResult:
    return replace(result, runs=said_by(result.runs))


def growth() -> AnyResult:
    result = growth_of(prompts=(16,), answers=(4, 8))
    return replace(result, points=tuple(replace(one, result=comparison(one.result)) for one in result.points))


def prompt_set() -> AnyResult:
    result = prompt_set_of(["one", "two"])
    return replace(result, prompts=tuple(replace(one, result=comparison(one.result)) for one in result.prompts))


def prefix() -> AnyResult:
    result = prefix_of(2)
    return replace(result, pairs=tuple(replace(one, fresh=said_by((one.fresh,))[0]) for one in result.pairs))


RESULTS: dict[str, Callable[[], AnyResult]] = {
    "one prompt": lambda: comparison(result_of(rounds=1, new_tokens=4)),
    "growth": growth,
    "set": prompt_set,
    "prefix": prefix,
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_form_of_a_result_says_it_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = RESULTS[name]()
    assert notices(question_of(result).runs(result)) == (SAID,)
    print_result(question_of(result), result)
    assert capsys.readouterr().out.count(f"Note: {SAID}\n") == 1
    assert headline_card(question_of(result), result).count(SAID) == 1
    assert report_html(result).split("1. What is in force")[0].count(SAID) == 1
    assert report_markdown(result).split("1. What is in force")[0].count(f"- {SAID}\n") == 1
    assert any(SAID in row["notices"] for row in csv.DictReader(io.StringIO(runs_csv(result))))


@pytest.mark.parametrize("name", RESULTS)
def test_a_file_keeps_it_and_says_it_again(name: str) -> None:
    opened = from_any_document(loads(dumps(any_document(RESULTS[name]()))))
    assert notices(question_of(opened).runs(opened)) == (SAID,)


def test_what_concerns_some_prompts_of_a_set_is_said_of_these() -> None:
    result = prompt_set_of(["one", "two", "three"])
    second = replace(result.prompts[1], result=comparison(result.prompts[1].result))
    some = replace(result, prompts=(result.prompts[0], second, result.prompts[2]))
    assert notices(question_of(some).runs(some)) == (f"two: {SAID}",)


def test_a_file_from_before_there_were_notices_opens() -> None:
    document = any_document(result_of(rounds=1, new_tokens=4))
    for run in document["runs"]:
        del run["notices"]
    opened = from_any_document(document)
    assert notices(question_of(opened).runs(opened)) == ()


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without a chat template."""
    path = tmp_path_factory.mktemp("models") / "plain"
    tiny_model().save_pretrained(path)
    tiny_tokenizer(None).save_pretrained(path)
    return path


def test_chat_on_the_command_line_says_it_and_so_does_its_json(
    plain_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "run.json"
    call = ["chat", "hi", "--model", str(plain_folder), "--max-new-tokens", "3", "--json", str(target)]
    assert main(call) == 0
    assert f"Note: {SAID}\n" in capsys.readouterr().err
    assert json.loads(target.read_text())["notices"] == [SAID]


def test_compare_with_chat_messages_says_it_and_so_does_its_json(
    plain_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "result.json"
    call = ["compare", "--chat", "--prompt", "hi", "--model", str(plain_folder), "--max-new-tokens", "3"]
    assert main([*call, "--json", str(target)]) == 0
    assert f"Note: {SAID}\n" in capsys.readouterr().out
    assert all(run["notices"] == [SAID] for run in json.loads(target.read_text())["runs"])


def test_a_folded_system_prompt_is_said_in_every_event_that_others_read() -> None:
    backend = ready_backend(tokenizer=lambda: tiny_tokenizer(REFUSING))
    turns = (Message("system", "Be kind."), Message("user", "hi"))
    told = list(backend.chat(turns, max_new_tokens=2, owner="me"))
    backend.close()
    read = [event_as_dict(event)["notices"] for event in told if isinstance(event, PromptEncoded | Finished)]
    assert [tuple(one) for one in read] == [(FOLDED,), (FOLDED,)]


def test_a_saved_conversation_says_it() -> None:
    conversation = Conversation((Turn("a", "b", figures="3 tokens", record=said_by((run_of(),))[0]),))
    assert f"*3 tokens · {SAID}*" in as_markdown(conversation, None, "")
    run: Any = json.loads(as_json(conversation, None, ""))["turns"][0]["run"]
    assert run["notices"] == [SAID]
