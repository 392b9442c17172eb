"""The further questions on the command line: bad input named by field and row, JSON alone on stdout, Ctrl-C keeps results."""

from __future__ import annotations

import codecs
import csv
import json
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from kvdemo.cli import session
from kvdemo.cli.main import main
from kvdemo.facts.results import Progress
from tests.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], folder: Path) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str, command: str = "compare", **options: Any) -> tuple[int, str, str]:
        status = main([command, "--model", str(folder), *arguments], **options)
        out, err = capsys.readouterr()
        return status, out, err

    return call


Run = Callable[..., tuple[int, str, str]]


def document(run: Run, *arguments: str, command: str = "compare") -> Any:
    status, out, _ = run(*arguments, "--json", "-", command=command)
    assert status == 0
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_growth_measures_every_length_that_was_asked_for(run: Run) -> None:
    told = document(
        run, "--prompt-lengths", "5,20", "--answer-lengths", "4", "--prompt", "Once upon a time", command="grow"
    )
    assert (told["kind"], told["stopped_because"], told["left_out"]) == ("growth", "points", [])
    assert [(point["prompt_tokens"], point["new_tokens"]) for point in told["points"]] == [(5, 4), (20, 4)]
    assert all(one["same_output"] for point in told["points"] for one in point["comparisons"])


def test_every_answer_ends_with_how_far_it_is_from_a_decision(run: Run) -> None:
    _, out, _ = run("--max-new-tokens", "4", "--rounds", "1")
    assert "Ready to decide? Not enough evidence yet: 1 of 10 answered. Missing for any verdict: rows 1, 3." in out
    _, out, _ = run("--max-new-tokens", "4", "--rounds", "1", "--json", "-")
    assert "Ready to decide?" not in out


def test_growth_is_printed_as_a_sentence_and_a_table(run: Run) -> None:
    status, out, _ = run("--longest", "40", "--answer-lengths", "4", command="grow")
    assert status == 0
    lines = out.splitlines()
    assert "A first look: one round at each point." in lines[0]
    assert lines[1].startswith("tiny, float32, ")
    assert lines[3].split()[:2] == ["Prompt", "tokens"]


def test_prompts_come_from_a_file_as_chat_messages(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "hi", "id": "a", "system": "Be brief.", "max_new_tokens": 3}\n{"prompt": "ho"}\n')
    told = document(run, str(path), "--max-new-tokens", "4", command="prompts")
    assert (told["kind"], told["request"]["as_chat"], told["not_run"]) == ("prompt_set", True, [])
    rows = [(one["row"]["id"], one["request"]["max_new_tokens"]) for one in told["prompts"]]
    assert rows == [("a", 3), ("row 2", 4)]
    assert told["comparisons"][0]["worst_id"] in ("a", "row 2")


def test_the_shipped_set_has_a_name_and_says_which_prompts_are_too_long_here(run: Run) -> None:
    status, out, err = run("representative", command="prompts")
    assert (status, out) == (2, "")
    assert "prompts: news-ferry-timetable: needs 1,579 prompt tokens" in err


def test_a_shared_prefix_is_asked_every_question_in_every_round(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "system.txt"
    path.write_text("You know the opening hours of every museum.")
    arguments = [str(path), "--question", "One?", "--question", "Two?", "--max-new-tokens", "4"]
    told = document(run, *arguments, "--rounds", "2", command="prefix")
    assert (told["kind"], told["stopped_because"]) == ("prefix_reuse", "questions")
    assert [pair["question"] for pair in told["pairs"]] == ["One?", "Two?"] * 2
    assert all(pair["verdict"]["same_output"] and pair["kept"]["reused_tokens"] > 40 for pair in told["pairs"])


def test_reports_and_csv_are_written_beside_what_is_printed(run: Run, tmp_path: Path) -> None:
    html, sheet = tmp_path / "report.html", tmp_path / "runs.csv"
    status, out, _ = run("--max-new-tokens", "4", "--rounds", "2", "--report", str(html), "--csv", str(sheet))
    assert status == 0
    assert "Dynamic cache" in out
    page = html.read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "cache on" in page
    assert "Go back" in page
    with sheet.open(newline="") as rows:
        assert len(list(csv.DictReader(rows))) == 6


def test_a_report_keeps_the_models_place_to_itself_and_the_terminal_says_the_command_with_it(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "report.md"
    status, out, _ = run("--max-new-tokens", "2", "--report", str(target))
    assert status == 0
    assert shlex.split(out.splitlines()[-1])[:8] == [
        "python", "-m", "kvdemo", "compare", "--model", str(folder), "--prompt", "The red cat was",
    ]  # fmt: skip
    assert str(folder) not in target.read_text()
    assert f"--model PATH/TO/{folder.name}" in target.read_text()


def test_csv_says_to_a_spreadsheet_that_it_is_utf_8_and_reads_with_any_reader(run: Run, tmp_path: Path) -> None:
    sheet = tmp_path / "runs.csv"
    assert run("--prompt", "größe 国", "--max-new-tokens", "2", "--csv", str(sheet))[0] == 0
    assert sheet.read_bytes().startswith(codecs.BOM_UTF8 + b"strategy,")
    with sheet.open(newline="", encoding="utf-8-sig") as rows:
        read = list(csv.DictReader(rows))
    assert {row["prompt"] for row in read} == {"größe 国"}
    assert list(pd.read_csv(sheet)["strategy"]) == [row["strategy"] for row in read]


def test_a_report_of_a_further_question_is_markdown_where_asked(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "growth.md"
    assert run("--longest", "30", "--answer-lengths", "3", "--report", str(target), command="grow")[0] == 0
    assert target.read_text().startswith("# ")


def test_measured_memory_holds_what_was_predicted(run: Run) -> None:
    told = document(run, "--measure", "20", "--measure", "50", command="memory")
    assert (told["schema"], told["kind"]) == (1, "memory_measurement")
    per_token = 4 * 2 * 2 * 16 * 4
    assert [(point["strategy"], point["seq_len"], point["held_bytes"]) for point in told["points"]] == [
        (key, length, length * per_token) for key in ("dynamic", "static") for length in (20, 50)
    ]
    assert all(point["held_bytes"] == point["predicted_bytes"] for point in told["points"])
    assert told["model"]["name"] == "tiny"
    assert told["environment"]["torch"]


def test_measured_memory_is_printed_as_a_table(run: Run) -> None:
    status, out, _ = run("--measure", "20", "--strategy", "fp8", command="memory")
    assert status == 0
    assert out.splitlines()[1].split()[:2] == ["fp8", "20"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"\n  \n", "prompts: there is no prompt in it"),
        ("a.txt", b"caf\xe9", "prompts: the file is not UTF-8 text"),
        ("a.xlsx", b"hi", "prompts: a file must end in .txt"),
        ("a.jsonl", b'{"prompt": "x"}\n{"system": "y"}\n{broken', "row 2: prompt: is missing; row 3: "),
        ("a.jsonl", b'{"prompt": "x", "max_new_tokens": 0}', "row 1: max_new_tokens: must be between 1"),
        ("a.csv", b"question\nhi\n", "prompts: the first row must name the columns, one of them prompt"),
        ("a.csv", b'prompt,id\n"x",a\n"y",a\n', "row 3: id: is also that of row 2"),
        ("a.jsonl", json.dumps({"prompt": "x" * 1200, "id": "long"}).encode(), "long: needs 1,"),
        ("a.jsonl", b'{"prompt": "x", "max_new_tokens": 5000}', "row 1: max_new_tokens: 5,000 is more than the limit"),
    ],
)
def test_a_bad_prompt_file_is_named_by_row_before_anything_runs(
    run: Run, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    status, out, err = run(str(path), command="prompts")
    assert (status, out) == (2, "")
    assert words in err
    assert "round" not in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("prompts no-such.txt", "prompts: there is no file no-such.txt"),
        ("compare --grow", "It is a switch of kvdemo grow now."),
        ("compare --prompts x.txt", "It is a switch of kvdemo prompts FILE now."),
        ("compare --shared-prefix x.txt", "It is a switch of kvdemo prefix FILE now."),
        ("compare --question Why?", "It is a switch of kvdemo prefix FILE now."),
        ("compare --longest 100", "It is a switch of kvdemo grow, and of kvdemo prompts now."),
        ("grow --system x", "No such option: --system"),
        ("grow --longest 1", "longest_tokens: must be between 2"),
        ("grow --longest 2000", "longest_tokens: 2,000 is beyond the model's 1,024"),
        ("grow --prompt-lengths 4,x", "prompt_lengths: must be whole numbers"),
        ("grow --answer-lengths 0", "new_tokens: must be between 1"),
        ("grow --prompt-lengths 4,4", "prompt_tokens: each length may be named once"),
        ("grow --time-budget 0", "time_budget_s: must be between 1"),
        ("grow --strategy none --strategy offloaded", "offloaded cannot be used here"),
        ("compare --strategy none", "strategies: choose between two"),
        ("prefix no-such.txt", "question: ask at least one"),
        ("prefix no-such.txt --question x", "file: there is no file no-such.txt"),
        ("compare --report report.pdf", "report: report.pdf must end in .html or .htm or .md"),
        ("compare --report no-such-folder/r.html", "report: there is no folder no-such-folder"),
        ("compare --csv runs.txt", "csv: runs.txt must end in .csv"),
        ("compare --json .", "json: . is a folder"),
    ],
)
def test_wrong_switches_are_one_line_on_stderr_and_exit_2(run: Run, line: str, words: str) -> None:
    command, *arguments = line.split()
    status, out, err = run(*arguments, command=command)
    assert (status, out) == (2, "")
    told = [line for line in err.splitlines() if line.startswith("kvdemo: ")]
    assert len(told) == 1
    assert words in told[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--measure", "1"], "lengths: must be between 2"),
        (["--measure", "20", "--strategy", "magic"], "'magic' is not one of"),
        (["--measure", "20", "--config", "config.json"], "measure: needs a model with its weights"),
        (["--strategy", "static"], "strategy: belongs to --measure"),
        (["--measure", "4000"], "limit is 1,024"),
    ],
)
def test_wrong_measurements_are_named_too(run: Run, arguments: list[str], words: str) -> None:
    status, out, err = run(*arguments, command="memory")
    assert (status, out) == (2, "")
    assert words in err


def pressing_ctrl_c_at(phase: str, times: int = 1) -> Callable[[Iterator[Any]], Any]:
    """Follows a question and presses it when the question says that it is there, as a terminal would."""

    def follow(steps: Iterator[Any]) -> Any:
        def seen() -> Iterator[Any]:
            pressed = False
            for step in steps:
                if isinstance(step, Progress) and phase in step.phase and not pressed:
                    pressed = True
                    for _ in range(times):
                        os.kill(os.getpid(), signal.SIGINT)
                yield step

        return session.last(seen())

    return follow


def test_ctrl_c_prints_and_writes_what_was_done(run: Run, tmp_path: Path) -> None:
    follow = pressing_ctrl_c_at("No cache: round 3")
    target = tmp_path / "partial.json"
    status, out, err = run("--max-new-tokens", "100", "--rounds", "4", "--json", str(target), follow=follow)
    assert status == 130
    assert "Stopped after 2 of 4 rounds." in out
    assert "Stopping; what was done is kept." in err
    told = json.loads(target.read_text())
    assert told["stopped_because"] == "stopped"
    assert [one["rounds"] for one in told["comparisons"] if one["metric"] == "generation_s"] == [2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_keeps_the_points_of_a_growth_that_were_measured(run: Run) -> None:
    follow = pressing_ctrl_c_at("20 prompt and 200 new tokens: No cache: round 1")
    status, out, _ = run(
        "--prompt-lengths", "5,20", "--answer-lengths", "200", "--json", "-", command="grow", follow=follow
    )
    told = json.loads(out)
    assert (status, told["stopped_because"], told["left_out"]) == (130, "stopped", [[20, 200]])


def test_a_second_ctrl_c_ends_at_once(run: Run) -> None:
    follow = pressing_ctrl_c_at("Dynamic cache", times=2)
    status, out, err = run("--max-new-tokens", "20", "--rounds", "3", follow=follow)
    assert (status, out) == (130, "")
    assert "round 3" not in err
