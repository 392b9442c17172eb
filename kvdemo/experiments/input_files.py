"""Files that a command reads; whatever is wrong with one is told before anything runs."""

from __future__ import annotations

from pathlib import Path

from kvdemo.errors import InvalidRequest
from kvdemo.facts.text_files import text_of

__all__ = ["read_bytes", "read_text"]

MAX_BYTES = 5 * 1024 * 1024


def read_bytes(field: str, path: Path) -> bytes:
    """A file or pipe of at most 5 MiB; InvalidRequest that names the field otherwise."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InvalidRequest(field, f"there is no file {path}") from None
    except IsADirectoryError:
        raise InvalidRequest(field, f"{path} is a folder") from None
    except OSError as error:
        raise InvalidRequest(field, f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidRequest(field, f"{path} is larger than 5 MiB")
    return data


def read_text(field: str, path: Path) -> str:
    """The same as text; InvalidRequest where there is none in it, which would be taken for a file that was not given."""
    text = text_of(field, read_bytes(field, path), str(path))
    if not text.strip():
        raise InvalidRequest(field, f"{path} is empty")
    return text
