"""Files that a visitor saves and brings: a failure is said where the button is, and costs nobody anything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from kvdemo.components.exports import Exports, saved
from kvdemo.components.uploads import read_upload
from kvdemo.components.wiring import Updates
from kvdemo.errors import InvalidRequest
from kvdemo.questions.table import QUESTIONS
from kvdemo.settings import Settings
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.conversation_file import opened
from kvdemo.ui.chat.extras import save as save_chat
from kvdemo.ui.chat.form import chat_files
from kvdemo.ui.compare.area import save
from kvdemo.ui.compare.beside import hidden
from kvdemo.ui.compare.tab import CompareTab, build_compare_tab, ready, turn_to
from kvdemo.ui.memory.models import uploaded
from tests.fake_backend import FakeBackend
from tests.made_up import result_of

LIMIT = Settings().limits.upload_bytes
CONFIG = '{"model_type": "größe"}'


def test_a_folder_of_saved_files_that_was_removed_is_made_again() -> None:
    exports = Exports()
    first = exports.write("kvdemo", "txt", "one")
    shutil.rmtree(first.parent.parent)
    assert exports.write("kvdemo", "txt", "two").read_text() == "two"


def test_what_cannot_be_saved_is_told_with_the_reason_and_without_the_place() -> None:
    exports = Exports()
    told = saved(exports, "k" * 300, "txt", lambda: "one", download="file", words="words")
    assert set(told) == {"words"}
    words = told["words"]
    assert 'role="alert"' in words
    assert "cannot be saved on the machine that runs this page: File name too long" in words
    assert str(exports.write("k", "txt", "x").parent.parent) not in words


def test_a_file_that_cannot_be_made_is_told_where_the_button_is(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise ZeroDivisionError

    assert "could not be made" in saved(Exports(), "kvdemo", "html", broken, download="file", words="words")["words"]
    assert "a file could not be made" in caplog.messages


def test_the_buttons_of_chat_and_compare_save_after_the_folder_is_gone() -> None:
    exports = Exports()
    shutil.rmtree(exports.write("kvdemo", "txt", "one").parent.parent)
    with gr.Blocks():
        files = chat_files()
    path, words = told(save_chat(files, exports, FakeBackend(), "json", Conversation(), ""), files)
    assert json.loads(Path(path).read_text())["kind"] == "conversation"
    assert "Saved as" in words
    (area, *_), result = compare_tab(exports).areas, result_of(rounds=1)
    shutil.rmtree(Path(path).parent.parent)
    path, words = told(save(area, FakeBackend(), exports, QUESTIONS, "json", "json", result, None), area)
    assert json.loads(Path(path).read_text())["kind"] == "comparison"
    assert "Saved as" in words
    assert save(area, FakeBackend(), exports, QUESTIONS, "json", "json", None, None) == gr.skip()


def told(changes: Updates, parts: Any) -> tuple[str, str]:
    """(path of the file, what is said about it)."""
    return changes[parts.download], changes[parts.saved]


def compare_tab(exports: Exports) -> CompareTab:
    """The tab, in a page of its own."""
    with gr.Blocks():
        return build_compare_tab(FakeBackend(), Settings(), exports, QUESTIONS)


def test_every_output_gets_an_update_of_its_own() -> None:
    """Gradio takes the value out of an update while it shows it: a second output would get none."""
    tab = compare_tab(Exports())
    for values in (hidden(tab.beside), ready(tab, "prompt", "", ""), turn_to(tab, "prompts", ())):
        updates = [value for value in values.values() if isinstance(value, dict)]
        assert updates
        assert len({id(value) for value in updates}) == len(updates)


@pytest.mark.parametrize(
    "data",
    [
        CONFIG.encode(),
        b"\xef\xbb\xbf" + CONFIG.encode(),
        CONFIG.encode("utf-16"),
        CONFIG.encode("utf-32")[:0] + CONFIG.encode(),
    ],
)
def test_an_uploaded_config_is_read_as_editors_save_it_and_deleted(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    assert uploaded(str(path), LIMIT) == CONFIG
    assert not path.exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_saved_conversation_opens_as_an_editor_saved_it_again(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "conversation.json"
    path.write_text('{"schema": 1, "kind": "conversation", "turns": [{"question": "größe?"}]}', encoding)
    assert opened(str(path), LIMIT)[0].turns[0].question == "größe?"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not JSON: line 1"),
        (b"\xff\xfe{", "not JSON that can be read"),
        (b"[" * 100_000, "not JSON that can be read"),
    ],
)
def test_what_is_no_conversation_is_refused_in_words(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "conversation.json"
    path.write_bytes(data)
    with pytest.raises(InvalidRequest, match=words):
        opened(str(path), LIMIT)


@pytest.mark.parametrize(
    ("path", "words"), [("no-such", "No such file"), (".", "Is a directory"), (None, "choose a file")]
)
def test_an_upload_that_is_not_there_is_refused_with_its_field(path: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"config: .*{words}"):
        read_upload(path, LIMIT, "config")


def test_an_upload_over_the_limit_is_refused_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b"x" * 11)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_upload(str(path), 10)
    assert not path.exists()
