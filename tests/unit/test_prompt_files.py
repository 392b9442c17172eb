"""Prompt files as people have them: of any spreadsheet or editor, with long prompts, arrays, and columns of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.prompt_file import kind_of, read_prompt_file, read_prompts
from kvdemo.questions.prompts.page import SetParts, take_file

TWO = [("Why is the sky blue?", "sky"), ("Größe, or not; 国?", "size")]


def two_of(data: str | bytes, kind: str) -> list[tuple[str, str]]:
    return [(row.prompt, row.id) for row in read_prompts(data, kind)]


def test_a_prompt_of_140_000_letters_is_read_from_csv_as_from_json() -> None:
    long = "x" * 140_000
    assert read_prompts(f'prompt,id\n"{long}",a\n', "csv") == read_prompts(
        json.dumps({"prompt": long, "id": "a"}), "jsonl"
    )
    with pytest.raises(InvalidRequest, match="row 2: prompt: is 200,001 characters long; the limit is 200,000"):
        read_prompts(f"prompt\n{'x' * 200_001}\n", "csv")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("first", ["", "sep=", "blank"])
def test_the_same_prompts_are_read_from_every_spreadsheet(
    line_end: str, encoding: str, delimiter: str, first: str
) -> None:
    rows = [f"Prompt{delimiter}id", *(f'"{prompt}"{delimiter}{name}' for prompt, name in TWO)]
    before = {"": [], "sep=": [f"sep={delimiter}"], "blank": [""]}[first]
    assert two_of(line_end.join([*before, *rows, ""]).encode(encoding), "csv") == TWO


def test_rows_are_numbered_as_the_spreadsheet_shows_them() -> None:
    with pytest.raises(InvalidRequest, match="row 4: id: is also that of row 3"):
        read_prompts("sep=;\nprompt;id\nx;a\ny;a\n", "csv")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lines_end_as_any_editor_ends_them(line_end: str, encoding: str) -> None:
    lines = [json.dumps({"prompt": prompt, "id": name}, ensure_ascii=False) for prompt, name in TWO]
    assert two_of(line_end.join(lines).encode(encoding), "jsonl") == TWO
    typed = line_end.join(prompt for prompt, _ in TWO).encode(encoding)
    assert [row.prompt for row in read_prompts(typed)] == [prompt for prompt, _ in TWO]


def test_a_line_separator_inside_a_prompt_ends_no_row() -> None:
    prompt = "one\u2028two\x0bthree\x85four"
    assert read_prompts(json.dumps({"prompt": prompt}, ensure_ascii=False), "jsonl")[0].prompt == prompt
    assert read_prompts(prompt)[0].prompt == prompt


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_objects_is_read_like_lines_of_them(indent: int | None) -> None:
    array = [{"prompt": prompt, "id": name} for prompt, name in TWO]
    assert two_of(json.dumps(array, indent=indent), "jsonl") == TWO
    assert two_of(json.dumps(array[0], indent=indent), "jsonl") == TWO[:1]
    assert kind_of("mine.json") == "jsonl"
    assert kind_of("mine.tsv") == "csv"


def test_a_prompt_alone_needs_no_object() -> None:
    assert two_of('["Why?", "How?"]', "jsonl") == [("Why?", "row 1"), ("How?", "row 2")]
    assert two_of('"Why?"\n"How?"\n', "jsonl") == [("Why?", "row 1"), ("How?", "row 2")]


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        ('[{"prompt": "x"},\n]', "jsonl", "the array is not JSON: line 2, column 1"),
        ('[{"prompt": "x"}, 7]', "jsonl", "row 2: row: is not an object"),
        ('{"version": 1, "items": [{"prompt": "x"}]}', "jsonl", "prompt: is missing; there is version, items"),
        ("[" * 100_000, "jsonl", "not JSON"),
        ("frage;antwort\nx;y\n", "csv", "one of them prompt; it names frage;antwort"),
        ("prompt,id,prompt\nx,a,y\n", "csv", "the first row names prompt twice"),
        ("", "csv", "there is no prompt in it"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_cause(data: str, kind: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_prompts(data, kind)
    assert words in str(caught.value)


def test_keys_and_columns_that_mean_nothing_here_are_named_once() -> None:
    rows = [{"prompt": "x", "lang": "en", "Topic": 1}, {"prompt": "y", "lang": "de"}]
    assert read_prompt_file(json.dumps(rows), "jsonl").unused == ("lang", "Topic")
    assert read_prompt_file("prompt,lang,\nx,en,?\ny,de,\n", "csv").unused == ("lang", "a column without a name")
    assert read_prompt_file("prompt,lang\nx,\n", "csv").unused == ()
    many = {"prompt": "x", **{f"key {number}": number for number in range(13)}}
    assert read_prompt_file(json.dumps(many), "jsonl").unused[-2:] == ("key 9", "and 3 more")


def test_the_page_names_them_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('[{"prompt": "Why?", "lang": "<en>"}]')
    told = take_file(SetParts("source", "typed", "rows", "about", "notice"), 1000, str(path))
    assert [row.prompt for row in told["rows"]] == ["Why?"]
    assert "mine.json: one prompt" in told["about"]
    assert "Not used: lang" in told["about"]
    assert told["notice"] == ""
