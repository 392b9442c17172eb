"""Prompts out of text: one per line, JSON, or CSV with a header. Every bad row is named, not only the first.

It knows nothing of tokens; lengths in tokens are checked where the tokenizer is.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import MAX_NEW_TOKENS, checked_int, checked_text
from kvdemo.facts.text_files import text_of
from kvdemo.shipped import assets_folder

__all__ = [
    "KINDS",
    "MAX_FILE_BYTES",
    "MAX_PROMPTS",
    "PromptFile",
    "PromptRow",
    "bad_rows",
    "kind_of",
    "read_prompt_file",
    "read_prompts",
    "representative",
]

REPRESENTATIVE = assets_folder() / "prompts" / "representative.jsonl"

MAX_PROMPTS = 1000
KINDS = ("text", "jsonl", "csv")
KEYS = ("prompt", "system", "id", "max_new_tokens")
MAX_FILE_BYTES = 5 * 1024 * 1024
NAMED = 10  # bad rows, and keys that are not used, named in one message
COUNTED = 10_000  # rows counted beyond the limit
DELIMITERS = (",", ";", "\t", "|")

_ENDINGS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
}
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ \t]*(\r\n|\r|\n)', re.IGNORECASE)  # how spreadsheets name their delimiter
_Raw = tuple[int, object]
"""(row number as an editor or a spreadsheet shows it, what stands there; an InvalidRequest where that cannot be read)"""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """unused: keys or columns of the file that mean nothing here, each once."""

    rows: tuple[PromptRow, ...]
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt of a set. `id` is its own or "row 3"; max_new_tokens None: that of the set."""

    prompt: str
    id: str
    system: str = ""
    max_new_tokens: int | None = None

    def __post_init__(self) -> None:
        checked_text("prompt", self.prompt)
        checked_text("system", self.system, empty=True)
        checked_text("id", self.id, max_chars=200)
        if self.max_new_tokens is not None:
            checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)


def kind_of(file_name: str) -> str:
    """text, jsonl or csv by the file's ending; InvalidRequest for another one."""
    ending = PurePath(file_name).suffix.lower()
    if ending not in _ENDINGS:
        raise InvalidRequest(
            "prompts", f"a file must end in {', '.join(_ENDINGS)}, not {ending[:20] or 'without ending'}"
        )
    return _ENDINGS[ending]


def read_prompts(data: str | bytes, kind: str = "text") -> tuple[PromptRow, ...]:
    """The prompts of `read_prompt_file`."""
    return read_prompt_file(data, kind).rows


def read_prompt_file(
    data: str | bytes, kind: str = "text", *, row_of: Callable[[int, object], PromptRow] | None = None
) -> PromptFile:
    """The prompts in `data`, at most 1,000 in 5 MB.

    text    one prompt per line, empty lines skipped
    jsonl   an object per line, or all in one array: prompt, optional system, id, max_new_tokens; or the prompt alone
    csv     the same as columns, named in the first row; between them comma, semicolon, tab or vertical bar
    row_of  makes a prompt of a row's number and what stands there
    InvalidRequest names every row that cannot be used, or says what is wrong with the whole.
    """
    text = _text_of(data)
    row_of = row_of or _row
    readers: dict[str, Callable[[str], Iterator[_Raw]]] = {"text": _lines, "jsonl": _objects, "csv": _records}
    if kind not in readers:
        raise InvalidRequest("prompts", f"{kind!r} is not one of {', '.join(KINDS)}")
    rows: list[PromptRow] = []
    bad: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    unused: dict[str, None] = {}
    reader = readers[kind](text)
    for number, raw in islice(reader, MAX_PROMPTS):
        if isinstance(raw, dict):
            unused |= dict.fromkeys(_shown(key) for key in raw if key not in KEYS)
        try:
            row = row_of(number, raw)
            if row.id in numbers:
                raise InvalidRequest("id", f"is also that of row {numbers[row.id]}")
        except InvalidRequest as error:
            bad.append((f"row {number}", str(error)))
            continue
        numbers[row.id] = number
        rows.append(row)
    # Millions of rows fit into 5 MB: those beyond the limit are counted as far as that is quick, not read.
    beyond = sum(1 for _ in islice(reader, COUNTED))
    if beyond:
        counted = f"{len(rows) + len(bad) + beyond:,}" if beyond < COUNTED else f"more than {COUNTED:,}"
        raise InvalidRequest("prompts", f"there are {counted}; at most {MAX_PROMPTS:,} are allowed")
    if bad:
        raise bad_rows(bad)
    if not rows:
        raise InvalidRequest("prompts", "there is no prompt in it")
    many = [f"and {len(unused) - NAMED:,} more"] if len(unused) > NAMED else []
    return PromptFile(tuple(rows), (*[*unused][:NAMED], *many))


def representative() -> tuple[PromptRow, ...]:
    """The shipped set: short questions, and summaries of articles of 300 to 2,000 tokens."""
    return read_prompts(REPRESENTATIVE.read_bytes(), "jsonl")


def bad_rows(bad: list[tuple[str, str]]) -> InvalidRequest:
    """One error that names these (row, what is wrong) pairs, the first ten in full."""
    named = "; ".join(f"{row}: {what}" for row, what in bad[:NAMED])
    more = f"; and {len(bad) - NAMED:,} more rows" if len(bad) > NAMED else ""
    return InvalidRequest("prompts", f"{named}{more}")


def _text_of(data: str | bytes) -> str:
    size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "surrogatepass"))
    if size > MAX_FILE_BYTES:
        raise InvalidRequest("prompts", f"the file is {size:,} bytes long; the limit is {MAX_FILE_BYTES:,}")
    return data.removeprefix("\ufeff") if isinstance(data, str) else text_of("prompts", data)


def _lines(text: str) -> Iterator[_Raw]:
    for number, line in enumerate(_LINE_END.split(text), 1):
        if line.strip():
            yield number, {"prompt": line.strip()}


def _objects(text: str) -> Iterator[_Raw]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("["):
            place = f"line {error.lineno}, column {error.colno}"
            raise InvalidRequest("prompts", f"the array is not JSON: {place}: {error.msg}") from error
    except (ValueError, RecursionError):
        pass  # the row in which it is will be named
    else:
        yield from enumerate(whole if isinstance(whole, list) else [whole], 1)
        return
    for number, line in enumerate(_LINE_END.split(text), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                yield number, InvalidRequest("row", f"is not JSON: column {error.colno}: {error.msg}")
            except (ValueError, RecursionError):
                yield number, InvalidRequest("row", "is not JSON that can be read")


def _records(text: str) -> Iterator[_Raw]:
    # Of the whole process, and shorter than a prompt may be: what is too long is refused by its own limit.
    csv.field_size_limit(MAX_FILE_BYTES)
    separator = _SEPARATOR_LINE.match(text)
    text = text[separator.end() :] if separator else text
    delimiter = separator[1] if separator else _delimiter(text)
    columns: list[str] = []
    number = before = 1 if separator else 0
    try:
        for number, cells in enumerate(_cells(text, delimiter), before + 1):
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _columns(cells)
            elif len(cells) > len(columns):
                yield number, InvalidRequest("row", f"has {len(cells)} cells for {len(columns)} columns")
            else:
                yield number, {name: cell for name, cell in zip(columns, cells, strict=False) if cell.strip()}
    except csv.Error as error:
        raise InvalidRequest("prompts", f"row {number + 1} is not CSV: {error}") from error


def _cells(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _columns(cells: list[str]) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    if "prompt" not in columns:
        named = ", ".join(map(_shown, columns[:NAMED]))
        raise InvalidRequest("prompts", f"the first row must name the columns, one of them prompt; it names {named}")
    if twice := next((name for name in columns if name and columns.count(name) > 1), ""):
        raise InvalidRequest("prompts", f"the first row names {_shown(twice)} twice")
    return columns


def _delimiter(text: str) -> str:
    """What stands between the columns: the first that makes one of them the prompt; a comma where none does."""
    for delimiter in DELIMITERS:
        with contextlib.suppress(csv.Error):
            head = next((cells for cells in _cells(text, delimiter) if any(cell.strip() for cell in cells)), [])
            if "prompt" in (cell.strip().lower() for cell in head):
                return delimiter
    return ","


def _shown(key: str) -> str:
    line = " ".join(key.split())
    return line if 0 < len(line) <= 40 else f"{line[:37]}..." if line else "a column without a name"


def _row(number: int, raw: object) -> PromptRow:
    if isinstance(raw, InvalidRequest):
        raise raw
    if isinstance(raw, str):
        raw = {"prompt": raw}
    if not isinstance(raw, dict):
        raise InvalidRequest("row", "is not an object")
    if raw.get("prompt") is None:
        others = ", ".join(_shown(key) for key in [*raw][:NAMED] if key not in KEYS)
        raise InvalidRequest("prompt", f"is missing{f'; there is {others}' if others else ''}")
    new_tokens = raw.get("max_new_tokens")
    if isinstance(new_tokens, str):
        if not new_tokens.strip().isdecimal() or len(new_tokens) > 12:
            raise InvalidRequest("max_new_tokens", "must be a whole number")
        new_tokens = int(new_tokens)
    identity: Any = raw.get("id")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    return PromptRow(
        prompt=raw["prompt"],
        id=f"row {number}" if identity is None else identity,
        system=raw.get("system") or "",
        max_new_tokens=new_tokens,
    )
