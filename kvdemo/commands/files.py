"""Files that a command reads and writes; whatever is wrong with one is told before anything runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kvdemo.errors import InvalidRequest

__all__ = ["check_target", "read_bytes", "read_text", "write_json", "write_text"]

MAX_BYTES = 5 * 1024 * 1024


def read_bytes(field: str, path: Path) -> bytes:
    """A file of at most 5 MiB; InvalidRequest that names the field otherwise."""
    try:
        if not path.is_file():
            raise InvalidRequest(field, f"there is no file {path}")
        if path.stat().st_size > MAX_BYTES:
            raise InvalidRequest(field, f"{path} is larger than 5 MiB")
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(field, f"{path} cannot be read: {error.strerror}") from error


def read_text(field: str, path: Path) -> str:
    """The same as UTF-8 text."""
    try:
        return read_bytes(field, path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(field, f"{path} is not UTF-8 text") from error


def check_target(field: str, target: str | None, endings: tuple[str, ...] = ()) -> None:
    """InvalidRequest when this file could not be written later: no such folder, no right to, or the wrong ending."""
    if target is None or (target == "-" and not endings):
        return
    path = Path(target)
    if endings and path.suffix.lower() not in endings:
        raise InvalidRequest(field, f"{target} must end in {' or '.join(endings)}")
    try:
        if path.is_dir():
            raise InvalidRequest(field, f"{target} is a folder")
        if not path.absolute().parent.is_dir():
            raise InvalidRequest(field, f"there is no folder {path.parent}")
        if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
            raise InvalidRequest(field, f"{target} cannot be written: this user may not")
    except OSError as error:  # a name that is too long
        raise InvalidRequest(field, f"{target} cannot be written: {error.strerror}") from error


def write_text(field: str, target: str, text: str) -> None:
    """Write a file whose lines end as `text` says."""
    try:
        Path(target).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidRequest(field, f"{target} cannot be written: {error.strerror}") from error


def write_json(target: str, document: dict[str, Any]) -> None:
    """A JSON document to a file, or to stdout for "-"."""
    from kvdemo.experiments.documents import dumps

    if target == "-":
        print(dumps(document))
    else:
        write_text("json", target, dumps(document) + "\n")
