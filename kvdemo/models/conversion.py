"""A GGUF file becomes, once, a folder of float32 safetensors with its tokenizer, below the home folder.

Killed in the middle it starts again cleanly, and two processes at once do no harm: a lock lets one of them work, the folder
appears by a rename when it is complete. Of a file that is replaced only the newest is kept. How the weights are unpacked
is left to `unpack`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from kvdemo.errors import ModelUnavailable, is_out_of_memory
from kvdemo.models.folder import missing_part
from kvdemo.models.gguf import check_gguf

__all__ = ["convert", "converted_folder"]

FORMAT = "1"  # raised when what is written changes, so that old folders are made again
MADE_FROM = "made_from.json"  # in every folder: the path of its GGUF
SAMPLE_BYTES = 1 << 20
UNPACKED_BYTES_PER_ELEMENT = 4

Unpack = Callable[[Path, Path, Callable[[str], None]], None]


def converted_folder(gguf: Path, home: Path) -> Path | None:
    """The complete folder that an earlier conversion of this very file left behind; None when there is none."""
    folder = _target(gguf, home)
    return folder if folder.is_dir() and missing_part(folder) is None else None


def convert(gguf: Path, home: Path, *, unpack: Unpack, progress: Callable[[str], None]) -> Path:
    """The folder for `gguf`, made now unless it is there.

    `unpack(gguf, folder, progress)` fills an empty folder. Raises ModelUnavailable when the disk does not allow it.
    """
    from filelock import FileLock, Timeout

    folder = converted_folder(gguf, home)
    if folder is not None:
        if not (folder / MADE_FROM).is_file():  # an earlier version's
            with contextlib.suppress(OSError):
                _note_origin(folder, gguf)
        return folder
    target = _target(gguf, home)
    needed = check_gguf(gguf, gguf.name).num_elements * UNPACKED_BYTES_PER_ELEMENT
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(target.with_name(target.name + ".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress("waiting for another process that is unpacking this model")
            lock.acquire()
        try:
            return converted_folder(gguf, home) or _convert_alone(gguf, target, needed, unpack, progress)
        finally:
            lock.release()
    except OSError as error:
        if is_out_of_memory(error):
            raise
        raise ModelUnavailable(
            f"{gguf.name} cannot be unpacked below KVDEMO_HOME ({error.strerror or 'it cannot be written'}); "
            f"it takes {needed / 1e9:.1f} GB there. Make room, or set KVDEMO_HOME to another folder."
        ) from error


def _convert_alone(
    gguf: Path, target: Path, needed_bytes: int, unpack: Unpack, progress: Callable[[str], None]
) -> Path:
    """Convert while holding the lock: whatever lies there half done belongs to a process that is gone."""
    for stale in target.parent.glob(target.name + ".partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    if target.exists():
        shutil.rmtree(target)
    free_bytes = shutil.disk_usage(target.parent).free
    if free_bytes < needed_bytes:
        raise OSError(28, f"only {free_bytes / 1e9:.1f} GB are free")
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    partial.mkdir()
    # Where the whole process is ended at once, nothing is unwound: that is told to `atexit`.
    discard = functools.partial(_discard, partial)
    atexit.register(discard)
    try:
        unpack(gguf, partial, progress)
        _note_origin(partial, gguf)
        for file in partial.iterdir():
            _flush(file)
        os.rename(partial, target)
        _flush(target.parent)
    finally:
        discard()
        atexit.unregister(discard)
    _drop_earlier(gguf, target)
    return target


def _note_origin(folder: Path, gguf: Path) -> None:
    (folder / MADE_FROM).write_text(json.dumps({"gguf": str(gguf.absolute())}), encoding="utf-8")


def _drop_earlier(gguf: Path, target: Path) -> None:
    """The file has been replaced: what was made from its earlier content is several times as large, and nobody's any more."""
    for note in target.parent.glob(f"*/{MADE_FROM}"):
        folder = note.parent
        try:
            made_from = json.loads(note.read_text(encoding="utf-8"))["gguf"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if made_from == str(gguf.absolute()) and folder != target and ".partial-" not in folder.name:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # held by another process, where the system minds
                folder.with_name(folder.name + ".lock").unlink()


def _discard(partial: Path) -> None:
    """Delete a half-made folder, unless it is complete and in its place by now.

    It is renamed first, so that a thread that is still filling it cannot put in place what is half deleted.
    """
    doomed = partial.with_name(partial.name + "-ended")
    with contextlib.suppress(OSError):
        os.rename(partial, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _target(gguf: Path, home: Path) -> Path:
    """The name says which file it was made from: its size, time in whole seconds (image layers keep no more), and ends."""
    about = gguf.stat()
    digest = hashlib.sha256(f"{FORMAT} {about.st_size} {int(about.st_mtime)} ".encode())
    with gguf.open("rb") as stream:
        digest.update(stream.read(SAMPLE_BYTES))
        stream.seek(max(0, about.st_size - SAMPLE_BYTES))
        digest.update(stream.read(SAMPLE_BYTES))
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", gguf.stem)[:80]
    return home / "converted" / f"{stem}-{digest.hexdigest()[:16]}"


def _flush(path: Path) -> None:
    """Put a file or folder on the disk before the rename says that it is there (folders: where the system can)."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
