"""What a command reads and writes: nothing measured is lost by an encoding, a closed pipe, or a file that is in the way."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.cli.main import main
from kvdemo.cli.streams import failure_of, forgiving
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.input_files import read_bytes, read_text
from tests.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def with_generation_config(folder: Path, tmp_path: Path) -> Callable[[bytes], Path]:
    def made(content: bytes) -> Path:
        path = tmp_path / "model"
        shutil.copytree(folder, path)
        (path / "generation_config.json").write_bytes(content)
        return path

    return made


@contextlib.contextmanager
def printing_into_a_closed_pipe() -> Iterator[None]:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe, contextlib.redirect_stdout(forgiving(pipe)):
        yield


def chat(folder: Path, *arguments: str) -> int:
    return main(["chat", "hi", "--model", str(folder), "--max-new-tokens", "5", *arguments])


def compare(folder: Path, *arguments: str) -> int:
    return main(["compare", "--model", str(folder), "--max-new-tokens", "3", *arguments])


def test_an_answer_that_the_terminal_cannot_spell_is_shown_with_question_marks_and_written_whole(
    folder: Path, tmp_path: Path
) -> None:
    target, printed = tmp_path / "out.json", tmp_path / "printed.txt"
    with (
        printed.open("w", encoding="cp1252") as terminal,
        contextlib.redirect_stdout(forgiving(terminal)) as out,
    ):
        assert chat(folder, "--json", str(target)) == 0
        out.flush()
    text = json.loads(target.read_text("utf-8"))["text"]
    assert "�" in text, "this answer was to hold a character that cp1252 lacks"
    assert printed.read_text("cp1252") == f"{text.replace('�', '?')}\n"


def test_a_document_on_a_stdout_that_cannot_spell_it_is_the_same_document(folder: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed.json"
    with (
        printed.open("w", encoding="cp1252") as terminal,
        contextlib.redirect_stdout(forgiving(terminal)) as out,
    ):
        assert chat(folder, "--json", "-") == 0
        out.flush()
    assert "�" in json.loads(printed.read_bytes())["text"]


def test_files_are_whole_though_nobody_reads_what_is_printed(folder: Path, tmp_path: Path) -> None:
    answer, result, rows, report, plan, decision = (
        tmp_path / name for name in ("a.json", "c.json", "c.csv", "c.html", "m.json", "i.json")
    )
    with printing_into_a_closed_pipe():
        assert chat(folder, "--json", str(answer)) == 1
        assert compare(folder, "--json", str(result), "--csv", str(rows), "--report", str(report)) == 1
        assert main(["memory", "--model", str(folder), "--seq-len", "10", "--json", str(plan)]) == 1
        assert main(["inspect", "--model", str(folder), "--json", str(decision)]) == 1
    assert len(json.loads(answer.read_text())["token_ids"]) == 5
    assert len(json.loads(result.read_text())["runs"]) == 4
    with rows.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4
    assert "</html>" in report.read_text()
    assert json.loads(plan.read_text())["request"]["seq_len"] == 10
    assert json.loads(decision.read_text())["use_cache"]["value"] is True


def test_a_closed_pipe_is_no_complaint_and_a_full_disk_is_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with printing_into_a_closed_pipe():
        assert main(["inspect", "--model", str(folder), "--json", "-"]) == 1
    assert capsys.readouterr().err == ""
    with open("/dev/full", "w", encoding="utf-8") as full, contextlib.redirect_stdout(forgiving(full)):
        assert main(["inspect", "--model", str(folder)]) == 1
    assert capsys.readouterr().err == "kvdemo: cannot write the output: No space left on device\n"


def test_an_answer_that_nobody_reads_and_no_file_keeps_is_not_made_to_its_end(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with printing_into_a_closed_pipe():
        assert main(["chat", "hi", "--model", str(folder), "--max-new-tokens", "900"]) == 1
    assert "900 new" not in capsys.readouterr().err


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_ends_nothing(closed: str, tmp_path: Path) -> None:
    code = (
        "from kvdemo.cli.streams import make_streams_forgiving; make_streams_forgiving(); import sys; "
        "written = open(sys.argv[1], 'w'); print('to stdout'); print('to stderr', file=sys.stderr); "
        "sys.stderr.isatty(); written.write(f'whole {written.fileno() > 2}'); written.close()"
    )
    target = tmp_path / "written.txt"
    shell = f'exec "$0" -c "$1" "$2" {closed}'
    done = subprocess.run(["sh", "-c", shell, sys.executable, code, str(target)], cwd=ROOT, check=False)
    assert (done.returncode, target.read_text()) == (0, "whole True")


@pytest.mark.parametrize("program", ["app.py", "-m kvdemo chat hi"])
def test_page_and_commands_begin_without_any_open_stream(program: str) -> None:
    shell = f'exec "$0" {program} --model ./no-such-folder >&- 2>&-'
    assert subprocess.run(["sh", "-c", shell, sys.executable], cwd=ROOT, check=False).returncode == 2


def test_a_document_for_a_closed_stdout_is_refused_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with forgiving(None) as nowhere, contextlib.redirect_stdout(nowhere):
        assert compare(folder, "--json", "-") == 2
    assert capsys.readouterr().err == "kvdemo: json: stdout is closed; name a file\n"


@pytest.mark.parametrize(
    "content", [b'{"use_cache": tru', b'\xef\xbb\xbf{"use_cache": true}', b"\xff\xfe{\x00}\x00", b""]
)
def test_a_generation_config_that_cannot_be_read_costs_nothing_that_was_measured(
    with_generation_config: Callable[[bytes], Path], tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    html, whole, rows = tmp_path / "r.html", tmp_path / "r.json", tmp_path / "r.csv"
    model = with_generation_config(content)
    assert compare(model, "--report", str(html), "--json", str(whole), "--csv", str(rows)) == 0
    assert "Dynamic cache" in capsys.readouterr().out
    assert json.loads(whole.read_text())["kind"] == "comparison"
    assert len(rows.read_text().splitlines()) == 5
    assert "transformers ignores generation_config.json" in html.read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"num_return_sequences": 2}', "num_return_sequences"),
        (b'{"num_return_sequences": 2, "do_sample": true}', "sets num_return_sequences=2"),
        (b'{"cache_implementation": "magic"}', "magic"),
        (b'{"repetition_penalty": 0.0}', "sets repetition_penalty=0.0; transformers refuses it: `penalty` has to be"),
        (b'{"bad_words_ids": [[999999]]}', "sets bad_words_ids=[[999999]]"),
        (b"[1]", "generation_config.json"),
    ],
)
def test_a_generation_config_that_no_run_can_have_is_told_before_the_first_one(
    with_generation_config: Callable[[bytes], Path], content: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = with_generation_config(content)
    assert compare(model) == 2
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines() if line.startswith("kvdemo: ")]
    assert (out, len(told)) == ("", 1)
    assert words in told[0]
    assert "generation_config.json" in told[0]
    assert main(["inspect", "--model", str(model)]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_a_file_whose_folder_is_gone_at_the_end_lies_elsewhere_and_the_others_where_they_should(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.csv"
    gone = tmp_path / "gone" / "result.json"
    written = write_all({"json": (str(gone), lambda: {"a": 1}), "csv": (str(kept), lambda: "a\r\n")})
    assert not written
    assert kept.read_bytes() == b"a\r\n"
    told = capsys.readouterr().err
    assert told.startswith(f"kvdemo: json: {gone} cannot be written: No such file or directory; it is in ")
    assert json.loads(Path(told.split("it is in ")[1].strip()).read_text()) == {"a": 1}


def test_a_content_that_cannot_be_made_keeps_no_other_file_from_being_written(tmp_path: Path) -> None:
    def broken() -> str:
        raise RuntimeError("a chart that cannot be drawn")

    target = tmp_path / "after.json"
    with pytest.raises(RuntimeError, match="cannot be drawn"):
        write_all({"report": (str(tmp_path / "r.html"), broken), "json": (str(target), lambda: {"a": 1})})
    assert json.loads(target.read_text()) == {"a": 1}


def test_a_name_in_bytes_that_are_no_text_is_written_as_json_reads_it(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    assert write_all({"json": (str(target), lambda: {"name": "model-\udcff"})})
    assert json.loads(target.read_text("utf-8")) == {"name": "model-\udcff"}


def test_two_files_of_one_command_have_two_names_and_none_is_what_it_reads(tmp_path: Path) -> None:
    one, link = tmp_path / "one.csv", tmp_path / "link.csv"
    one.write_text("prompt\nhi\n")
    link.symlink_to(one)
    both: dict[str, Any] = {"json": (str(link), ANY_ENDING), "csv": (str(one), (".csv",))}
    with pytest.raises(InvalidRequest, match=r"csv: .*one.csv is what json writes, too"):
        check_targets(both)
    with pytest.raises(InvalidRequest, match=r"csv: .*one.csv is what prompts reads, too"):
        check_targets({"csv": both["csv"]}, {"prompts": str(link)})
    check_targets({"json": (os.devnull, ANY_ENDING), "again": (os.devnull, ANY_ENDING)})


@pytest.mark.parametrize("name", ["there.json", "new.json"])
def test_a_file_that_this_user_may_not_write_is_told_first(tmp_path: Path, name: str) -> None:
    asked: list[Path] = []

    def never(path: Path) -> bool:
        asked.append(path)
        return False

    (tmp_path / "there.json").touch()
    with pytest.raises(InvalidRequest, match=rf"json: .*{name} cannot be written: this user may not"):
        check_targets({"json": (str(tmp_path / name), ANY_ENDING)}, may_write=never)
    assert asked == [tmp_path / name if name == "there.json" else tmp_path]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_is_read_only_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    assert main(["memory", "--json", str(tmp_path / "x.json")]) == 2
    assert "this user may not" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "words"), [("", "is empty"), (".", "is a folder")])
def test_names_that_are_no_file_are_told_first(target: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"json: .*{words}"):
        check_targets({"json": (target, ANY_ENDING)})


@pytest.mark.parametrize(
    "data",
    [
        "größe".encode(),
        b"\xef\xbb\xbf" + "größe".encode(),
        "größe".encode("utf-16"),
        b"\xfe\xff" + "größe".encode("utf-16-be"),
    ],
)
def test_text_is_read_as_editors_save_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert read_text("prompt", path) == "größe"


def test_a_pipe_is_read_like_a_file() -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as pipe:
        pipe.write(b"{}")
    assert read_bytes("config", Path(f"/dev/fd/{reader}")) == b"{}"
    os.close(reader)


@pytest.mark.parametrize(("path", "words"), [("no-such", "there is no file"), (".", "is a folder")])
def test_what_is_no_file_is_named(path: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"config: .*{words}"):
        read_bytes("config", Path(path))


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(InvalidRequest, match="config: /dev/zero is larger than 5 MiB"):
        read_bytes("config", Path("/dev/zero"))


def test_a_stream_that_is_no_file_is_left_as_it_is() -> None:
    stream = io.StringIO()
    assert forgiving(stream) is stream
    assert failure_of(stream) is None


def test_columns_of_a_prompt_file_that_are_not_used_are_named_once_and_stdout_stays_one_document(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("prompt;lang\nhi;en\nho;en\n")
    assert main(["prompts", str(path), "--model", str(folder), "--max-new-tokens", "3", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert [item["row"]["prompt"] for item in json.loads(out)["prompts"]] == ["hi", "ho"]
    assert err.count("mine.csv holds what is not used: lang") == 1


@pytest.mark.parametrize("content", [b"", b" \r\n", b"\xef\xbb\xbf", b"\xff\xfe"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["memory", "--config"],
        ["inspect", "--config"],
        ["inspect", "--generation-config"],
        ["prefix", "--question", "x"],
    ],
)
def test_an_empty_file_is_never_taken_for_one_that_was_not_given(
    arguments: list[str], content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.json"
    path.write_bytes(content)
    assert main([*arguments, str(path)]) == 2
    field = {"x": "file"}.get(arguments[-1], arguments[-1].removeprefix("--").replace("-", "_"))
    assert capsys.readouterr() == ("", f"kvdemo: {field}: {path} is empty\n")


def test_a_document_that_the_page_would_not_open_again_is_told_when_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long.json"
    assert write_all({"json": (str(path), lambda: {"text": "x" * (5 * 2**20 + 1)})})
    assert "the page opens at most 5" in capsys.readouterr().err
    assert write_all({"json": (str(path), lambda: {"text": "x"})})
    assert capsys.readouterr().err == ""
