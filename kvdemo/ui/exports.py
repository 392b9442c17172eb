"""Files that a visitor saves: made when asked for, under names of ours, in a private folder, gone after an hour."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
import weakref
from pathlib import Path

__all__ = ["Exports"]

KEPT_S = 3600.0


class Exports:
    """A folder of this process; it disappears with it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="kvdemo-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def write(self, stem: str, suffix: str, content: str) -> Path:
        """A new file with this content; files older than an hour are deleted on the way."""
        self._forget()
        place = self._folder / uuid.uuid4().hex
        place.mkdir(mode=0o700)
        path = place / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.{suffix}"
        path.write_text(content, encoding="utf-8", newline="")
        return path

    def _forget(self) -> None:
        for place in self._folder.iterdir():
            if time.time() - place.stat().st_mtime > KEPT_S:
                for path in place.iterdir():
                    path.unlink(missing_ok=True)
                place.rmdir()
