"""Recorded results that are shipped: files in assets/results/, opened by name and checked like any input."""

from __future__ import annotations

import re
from pathlib import Path

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import MAX_DOCUMENT_BYTES, loads
from kvdemo.facts.requests import checked_choice
from kvdemo.questions.documents import AnyResult, from_any_document
from kvdemo.questions.table import QUESTIONS, Table
from kvdemo.shipped import assets_folder

__all__ = ["recorded_names", "recorded_result"]

RESULTS = assets_folder() / "results"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


def recorded_names(folder: Path = RESULTS) -> tuple[str, ...]:
    """The names that can be opened, in order: a file's name without .json."""
    return tuple(sorted(path.stem for path in folder.glob("*.json") if path.is_file() and NAME.fullmatch(path.stem)))


def recorded_result(name: str, folder: Path = RESULTS, table: Table = QUESTIONS) -> AnyResult:
    """The result of this name, of a question of the table; InvalidRequest for another name, and for a file that is none."""
    path = folder / f"{checked_choice('results', name, recorded_names(folder))}.json"
    if path.stat().st_size > MAX_DOCUMENT_BYTES:
        raise InvalidRequest("results", f"{name} is larger than {MAX_DOCUMENT_BYTES // 2**20} MiB")
    try:
        return from_any_document(loads(path.read_bytes()), table)
    except OSError as error:
        raise InvalidRequest("results", f"{name} cannot be read") from error
