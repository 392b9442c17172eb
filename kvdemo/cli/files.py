"""Files that a command reads and writes: what is wrong with one is told before anything runs, and nothing measured is lost."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kvdemo.cli.streams import is_read
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import MAX_DOCUMENT_BYTES

__all__ = ["ANY_ENDING", "Content", "check_targets", "write_all"]

ANY_ENDING: tuple[str, ...] = ()
"""Of a JSON file, which may also be "-", stdout."""

Content = Callable[[], str | dict[str, Any]]
"""Makes what a file is to hold: text whose lines end as it says, or a JSON document."""


def may_write(path: Path) -> bool:
    """May this user write this file, or into this folder?"""
    return os.access(path, os.W_OK)


def check_targets(
    targets: Mapping[str, tuple[str | None, tuple[str, ...]]],
    sources: Mapping[str, str | Path | None] | None = None,
    *,
    may_write: Callable[[Path], bool] = may_write,
) -> None:
    """InvalidRequest where a file could not be written later, or would take the place of another one of this command.

    targets   field -> (file or None, the endings it may have)
    sources   field -> file that is read; its content must not be lost
    """
    taken = {
        _identity(Path(path)): f"what {field} reads" for field, path in (sources or {}).items() if path is not None
    }
    for field, (target, endings) in targets.items():
        if target is None:
            continue
        _check_target(field, target, endings, may_write)
        if target == "-":
            continue
        place = _identity(Path(target))
        if place in taken:
            raise InvalidRequest(field, f"{target} is {taken[place]}, too; name another file")
        if not _is_device(Path(target)):
            taken[place] = f"what {field} writes"


def _check_target(field: str, target: str, endings: tuple[str, ...], may_write: Callable[[Path], bool]) -> None:
    if target == "-" and not endings:
        if not is_read(sys.stdout):
            raise InvalidRequest(field, "stdout is closed; name a file")
        return
    path = Path(target)
    if endings and path.suffix.lower() not in endings:
        raise InvalidRequest(field, f"{target} must end in {' or '.join(endings)}")
    try:
        if path.is_dir():
            raise InvalidRequest(field, f"{target} is a folder" if target else "is empty; name a file")
        if not path.absolute().parent.is_dir():
            raise InvalidRequest(field, f"there is no folder {path.parent}")
        if not may_write(path if path.exists() else path.absolute().parent):
            raise InvalidRequest(field, f"{target} cannot be written: this user may not")
    except OSError as error:  # a name that is too long
        raise InvalidRequest(field, f"{target} cannot be written: {error.strerror}") from error


def write_all(contents: Mapping[str, tuple[str | None, Content]]) -> bool:
    """Write every file that was asked for, whatever becomes of the others; were they all written where they should be?

    contents   field -> (file, "-" for stdout, or None; what makes its content)
    A file whose place cannot be written any more goes into a temporary folder, which is told on stderr. An error in
    making one content is raised when the others are written.
    """
    all_written, failure = True, None
    for field, (target, content) in contents.items():
        if target is None:
            continue
        try:
            made = content()
        except Exception as error:
            failure = failure or error
            continue
        if target == "-":
            _print_document(made)
        else:
            all_written &= _write(field, Path(target), made if isinstance(made, str) else _json(made) + "\n")
    if failure is not None:
        raise failure
    return all_written


def _write(field: str, path: Path, text: str) -> bool:
    # A name on this machine may hold bytes that are no text: they are written as JSON writes them.
    data = text.encode("utf-8", "backslashreplace")
    try:
        path.write_bytes(data)
    except OSError as error:
        place = Path(tempfile.mkdtemp(prefix="kvdemo-")) / path.name
        place.write_bytes(data)
        print(f"kvdemo: {field}: {path} cannot be written: {error.strerror}; it is in {place}", file=sys.stderr)
        return False
    if field == "json" and len(data) > MAX_DOCUMENT_BYTES:
        size = f"{len(data) / 2**20:.1f} MiB"
        print(f"kvdemo: json: {path} has {size}; the page opens at most {MAX_DOCUMENT_BYTES // 2**20}", file=sys.stderr)
    return True


def _print_document(document: str | dict[str, Any]) -> None:
    text = document if isinstance(document, str) else _json(document)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # the same document in ASCII, instead of one with question marks
        text = json.dumps(json.loads(text), indent=2)
    print(text, flush=True)


def _json(document: dict[str, Any]) -> str:
    from kvdemo.experiments.documents import dumps

    return dumps(document)


def _identity(path: Path) -> str:
    return os.path.normcase(os.path.realpath(path))


def _is_device(path: Path) -> bool:
    """/dev/null and the like take any number of files."""
    return path.exists() and not path.is_file()
