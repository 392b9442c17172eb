"""Where in the program does something come from: the file and line of its own frame, libraries left out."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

__all__ = ["Places"]

LIBRARIES = frozenset({"transformers", "torch", "accelerate", "peft", "optimum", "kvdemo"})
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
STANDARD = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


class Places:
    """Names files from `folders`, the first that holds them; else by their last two parts, so that no home is told."""

    def __init__(self, folders: tuple[str, ...] = ()) -> None:
        self._folders = tuple(os.path.join(os.path.realpath(folder), "") for folder in (*folders, os.getcwd()))

    def of(self, frame: FrameType | None) -> str | None:
        """The innermost frame that is the program's own; None where every frame is a library's.

        A program may be installed itself, so a frame among installed files is taken where there is none outside.
        """
        installed = None
        while frame is not None:
            path = frame.f_code.co_filename
            top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            ours = path.startswith((PACKAGE, "<frozen")) or top in LIBRARIES
            if any(part in path for part in INSTALLED):
                if installed is None and not ours:
                    installed = self._named(path, frame.f_lineno)
            elif not ours and not path.startswith(STANDARD):
                return self._named(path, frame.f_lineno)
            frame = frame.f_back
        return installed

    def here(self) -> str | None:
        """Of whoever called into a library that called us."""
        return self.of(sys._getframe(1))

    def _named(self, path: str, line: int) -> str:
        if not path.startswith("<"):
            real = os.path.realpath(path)
            inside = next((real.removeprefix(folder) for folder in self._folders if real.startswith(folder)), None)
            path = inside or os.path.join(*real.split(os.sep)[-2:])
        return f"{path}:{line}"
