"""A tokenizer without its model: from a folder, a GGUF and its conversion; a question that needs no more waits for no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvdemo.backend import Backend
from kvdemo.cli.main import main
from kvdemo.errors import InvalidRequest, ModelUnavailable
from kvdemo.facts.model import NOT_LOADED
from kvdemo.models.source import resolve
from kvdemo.models.tokenizer import load_tokenizer
from kvdemo.questions.conversations.reading import read_conversations
from kvdemo.questions.conversations.spec import ConversationsResult, ConversationsSpec
from kvdemo.settings import Settings
from tests.tiny import tiny_tokenizer
from tests.tiny_backend import ready_backend, tiny_backend

TALK = json.dumps(
    [
        {"role": "user", "content": "Name three planets."},
        {"role": "assistant", "content": "Mars."},
        {"role": "user", "content": "More."},
        {"role": "assistant", "content": "Venus."},
    ]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer, and no weights at all."""
    place = tmp_path / "alone"
    tiny_tokenizer().save_pretrained(place)
    return place


def result_of(backend: Backend, spec: ConversationsSpec) -> ConversationsResult:
    *_, result = backend.ask(spec)
    assert isinstance(result, ConversationsResult)
    return result


def spec(**more: Any) -> ConversationsSpec:
    talks, _ = read_conversations(TALK)
    return ConversationsSpec(talks, **more)


def test_a_folder_without_weights_is_enough_for_its_tokenizer(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable):
        resolve(str(folder), tmp_path)
    source = resolve(str(folder), tmp_path, weights=False)
    found = load_tokenizer(source, tmp_path)
    assert (found.facts.num_parameters, found.facts.weight_bytes, found.facts.cache_bytes_per_token) == (
        None,
        None,
        None,
    )
    assert (found.facts.dtype, found.facts.has_chat_template) == (NOT_LOADED, True)
    assert found.facts.source.startswith("Tokenizer alone, from the folder ")


def test_remote_code_is_refused_for_a_tokenizer_too(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "auto_map": {"AutoTokenizer": ["x.X", None]}}))
    with pytest.raises(ModelUnavailable, match="auto_map"):
        resolve(str(folder), tmp_path, weights=False)


def test_a_folder_without_a_tokenizer_says_so_and_one_that_is_damaged_is_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnavailable, match="has no tokenizer"):
        resolve(str(tmp_path / "empty"), tmp_path, weights=False)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="The tokenizer of alone cannot be loaded") as refused:
        load_tokenizer(resolve(str(folder), tmp_path, weights=False), tmp_path)
    assert "\n" not in str(refused.value)


def test_the_question_is_answered_before_the_model_is_loaded_and_for_one_that_is_not_the_loaded_one(
    folder: Path,
) -> None:
    waiting = tiny_backend()
    try:
        result = result_of(waiting, spec(model=str(folder)))
    finally:
        waiting.close()
    assert result.model.name == "alone"
    assert result.conversations[0].turns[1].again_tokens == 0


def test_the_loaded_models_own_tokenizer_is_used_where_no_other_is_named() -> None:
    backend = ready_backend()
    try:
        result = result_of(backend, spec())
        assert result.model == backend.describe()
        assert result.totals.prefill_tokens_per_s is None
    finally:
        backend.close()


def test_seconds_are_estimated_once_a_question_has_measured_the_prefill_speed() -> None:
    from kvdemo.experiments.comparison import CompareSpec

    backend = ready_backend()
    try:
        *_, measured = backend.ask(CompareSpec(prompt="The red cat", max_new_tokens=2, rounds=1))
        assert measured.runs
        assert result_of(backend, spec()).totals.saved_s is not None
    finally:
        backend.close()


def test_a_page_that_others_open_offers_no_other_models_tokenizer(folder: Path) -> None:
    backend = tiny_backend(mode="share")
    try:
        with pytest.raises(InvalidRequest, match="model: only the model of this page"):
            result_of(backend, spec(model=str(folder)))
    finally:
        backend.close()


def test_the_command_loads_no_model(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text(f"{TALK}\nnonsense\n")
    arguments = ["conversations", str(file), "--model", str(folder), "--page-size", "8", "--json", "-"]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["page_sizes"]) == ("conversations", [1, 8])
    assert told["conversations"][0]["turns"][0]["reused_tokens"] == {"1": 0, "8": 0}
    assert [bad["line"] for bad in told["refused"]] == [2]


def test_the_command_writes_every_form_and_says_the_same_in_the_terminal(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "talks.jsonl"
    file.write_text(TALK)
    report, sheet = tmp_path / "report.md", tmp_path / "requests.csv"
    arguments = ["conversations", str(file), "--model", str(folder), "--report", str(report), "--csv", str(sheet)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "of prompt tokens would be reused" in out
    assert "Timed:" not in out
    assert "Timed:" not in report.read_text()
    assert len(sheet.read_text().splitlines()) == 3
    assert str(folder) not in report.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such.jsonl"], "file: there is no file no-such.jsonl"),
        (["--page-size", "0"], "page_sizes: must be between 1"),
        (["--model", "./nowhere"], "There is nothing at"),
    ],
)
def test_wrong_switches_are_one_line_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conversations", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


@pytest.mark.real
def test_the_default_models_tokenizer_is_the_same_from_its_gguf_and_from_the_conversion(tmp_path: Path) -> None:
    settings = Settings()
    source = resolve(None, settings.home)
    one, other = load_tokenizer(source, settings.home), load_tokenizer(source, tmp_path)
    text = "<|im_start|>user\nHow far is it? 水😀<|im_end|>\n"
    assert one.tokenizer(text)["input_ids"] == other.tokenizer(text)["input_ids"]
    assert one.tokenizer.chat_template == other.tokenizer.chat_template
