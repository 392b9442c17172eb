"""Prompts out of text: one per line, JSON lines, or CSV with a header. Every bad row is named, not only the first.

It knows nothing of tokens; lengths in tokens are checked where the tokenizer is.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.questions import MAX_PROMPTS, PromptRow

__all__ = ["KINDS", "MAX_FILE_BYTES", "bad_rows", "kind_of", "read_prompts", "representative"]

REPRESENTATIVE = Path(__file__).resolve().parents[2] / "assets" / "prompts" / "representative.jsonl"

KINDS = ("text", "jsonl", "csv")
MAX_FILE_BYTES = 5 * 1024 * 1024
NAMED = 10  # bad rows named in one message
COUNTED = 10_000  # rows counted beyond the limit

_ENDINGS = {".txt": "text", ".text": "text", ".md": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_Raw = tuple[int, object]  # row number as an editor or a spreadsheet shows it, and what stands there


def kind_of(file_name: str) -> str:
    """text, jsonl or csv by the file's ending; InvalidRequest for another one."""
    ending = PurePath(file_name).suffix.lower()
    if ending not in _ENDINGS:
        raise InvalidRequest(
            "prompts", f"a file must end in {', '.join(_ENDINGS)}, not {ending[:20] or 'without ending'}"
        )
    return _ENDINGS[ending]


def read_prompts(data: str | bytes, kind: str = "text") -> tuple[PromptRow, ...]:
    """The prompts in `data`, at most 1,000 in 5 MB.

    text    one prompt per line, empty lines skipped
    jsonl   an object per line: prompt, optional system, id, max_new_tokens
    csv     the same as columns, named in the first row
    InvalidRequest names every row that cannot be used, or says what is wrong with the whole.
    """
    text = _text_of(data)
    readers: dict[str, Callable[[str], Iterator[_Raw]]] = {"text": _lines, "jsonl": _objects, "csv": _records}
    if kind not in readers:
        raise InvalidRequest("prompts", f"{kind!r} is not one of {', '.join(KINDS)}")
    rows: list[PromptRow] = []
    bad: list[tuple[str, str]] = []
    numbers: dict[str, int] = {}
    reader = readers[kind](text)
    for number, raw in islice(reader, MAX_PROMPTS):
        try:
            row = _row(number, raw)
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
        many = f"{len(rows) + len(bad) + beyond:,}" if beyond < COUNTED else f"more than {COUNTED:,}"
        raise InvalidRequest("prompts", f"there are {many}; at most {MAX_PROMPTS:,} are allowed")
    if bad:
        raise bad_rows(bad)
    if not rows:
        raise InvalidRequest("prompts", "there is no prompt in it")
    return tuple(rows)


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
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest("prompts", f"the file is not UTF-8 text (byte {error.start:,})") from error


def _lines(text: str) -> Iterator[_Raw]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, {"prompt": line.strip()}


def _objects(text: str) -> Iterator[_Raw]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                yield number, f"is not JSON: column {error.colno}: {error.msg}"
            except (ValueError, RecursionError):
                yield number, "is not JSON that can be read"


def _records(text: str) -> Iterator[_Raw]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    number = 0
    try:
        for number, cells in enumerate(reader, 1):
            if not columns:
                columns = [cell.strip().lower() for cell in cells]
                if "prompt" not in columns:
                    raise InvalidRequest("prompts", "the first row must name the columns, one of them prompt")
            elif any(cell.strip() for cell in cells):
                if len(cells) > len(columns):
                    yield number, f"has {len(cells)} cells for {len(columns)} columns"
                else:
                    yield number, {name: cell for name, cell in zip(columns, cells, strict=False) if cell.strip()}
    except csv.Error as error:
        raise InvalidRequest("prompts", f"row {number + 1} is not CSV: {error}") from error


def _row(number: int, raw: object) -> PromptRow:
    if isinstance(raw, str):
        raise InvalidRequest("row", raw)
    if not isinstance(raw, dict):
        raise InvalidRequest("row", "is not an object")
    if raw.get("prompt") is None:
        raise InvalidRequest("prompt", "is missing")
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
