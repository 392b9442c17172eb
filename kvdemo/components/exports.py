"""Files that a visitor saves: made when asked for, under names of ours, in a private folder, gone after an hour."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.components.wiring import Updates
from kvdemo.errors import InvalidRequest, KvdemoError

__all__ = ["Exports", "saved"]

KEPT_S = 3600.0

log = logging.getLogger(__name__)


class Exports:
    """A folder of this process; it disappears with it. Where somebody has removed it, another one is made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder = self._new_folder()

    def write(self, stem: str, suffix: str, content: str) -> Path:
        """A new file with this content; files older than an hour are deleted on the way.

        InvalidRequest where it cannot be written, with the reason and without the place.
        """
        try:
            place = self._new_place()
            path = place / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.{suffix}"
            # A name on this machine may hold bytes that are no text: they are written as JSON writes them.
            path.write_text(content, encoding="utf-8", errors="backslashreplace", newline="")
        except OSError as error:
            raise InvalidRequest(
                "file", f"cannot be saved on the machine that runs this page: {error.strerror}"
            ) from error
        return path

    def _new_place(self) -> Path:
        with self._lock:
            if not self._folder.is_dir():
                self._folder = self._new_folder()
            for old in self._folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # what cleans temporary folders was quicker
                    if time.time() - old.stat().st_mtime > KEPT_S:
                        shutil.rmtree(old, ignore_errors=True)
            place = self._folder / uuid.uuid4().hex
            place.mkdir(mode=0o700)
            return place

    def _new_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="kvdemo-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder


def saved(
    exports: Exports, stem: str, suffix: str, content: Callable[[], str], *, download: Any, words: Any
) -> Updates:
    """The file for the component `download`, its name as a fragment for `words`: as soon as the browser shows the name
    it saves the file. Where there is none, the reason stands in the place of the name, beside the button."""
    try:
        path = exports.write(stem, suffix, content())
    except KvdemoError as error:
        return {words: _refused(str(error))}
    except Exception:  # whatever cannot be drawn or written, the person who pressed the button is told
        log.exception("a file could not be made")
        return {words: _refused("The file could not be made. The log has the details.")}
    said = Markup('<div class="kv-saved" title="{}">Saved as {}</div>').format(path.parent.name, path.name)
    return {download: str(path), words: said}


def _refused(words: str) -> str:
    return Markup('<div class="kv-notice" role="alert">{}</div>').format(text(words))
