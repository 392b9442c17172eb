"""Files that a visitor saves: made when asked for, under names of ours, in a private folder, gone after an hour."""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

__all__ = ["Exports"]

KEPT_S = 3600.0


class Exports:
    """A folder of this process; it disappears with it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvdemo-", ignore_cleanup_errors=True)

    def write(self, stem: str, suffix: str, content: str) -> Path:
        """A new file with this content; files older than an hour are deleted on the way."""
        folder = Path(self._folder.name)
        self._forget(folder)
        place = folder / uuid.uuid4().hex
        place.mkdir(mode=0o700)
        path = place / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.{suffix}"
        path.write_text(content, encoding="utf-8", newline="")
        return path

    @staticmethod
    def _forget(folder: Path) -> None:
        for place in folder.iterdir():
            if time.time() - place.stat().st_mtime > KEPT_S:
                for path in place.iterdir():
                    path.unlink(missing_ok=True)
                place.rmdir()
