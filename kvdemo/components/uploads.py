"""A file that a visitor brings: read once, and deleted whatever is in it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kvdemo.errors import InvalidRequest

__all__ = ["read_upload"]


def read_upload(path: object, limit_bytes: int, field: str = "file") -> bytes:
    """What is in an uploaded file; InvalidRequest that names the field when it is too large or cannot be read."""
    if not isinstance(path, str):
        raise InvalidRequest(field, "choose a file")
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(limit_bytes + 1)
    except OSError as error:
        raise InvalidRequest(field, f"the file cannot be read: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # Gradio clears its folder of uploads, too
            file.unlink()
    if len(data) > limit_bytes:
        raise InvalidRequest(field, f"the file is larger than {limit_bytes // 2**20} MiB")
    return data
