"""Somebody's script or module run as if Python had been started with it: arguments, __main__, imports, exceptions, exit code."""

from __future__ import annotations

import io
import os
import runpy
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

from kvdemo.watching.record import INTERRUPTED

__all__ = ["Program"]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Program:
    """A script (a path) or a module (a name) with its arguments."""

    def __init__(self, target: str, arguments: Sequence[str] = (), *, module: bool = False) -> None:
        self.target, self.arguments, self.module = target, tuple(arguments), module

    @property
    def name(self) -> str:
        """What it is called in a record: never where it lies."""
        return self.target if self.module else os.path.basename(os.path.normpath(self.target))

    @property
    def folder(self) -> str:
        return os.getcwd() if self.module else os.path.dirname(os.path.realpath(self.target))

    def problem(self) -> str | None:
        """Why it cannot be run, in a sentence; None where it can."""
        if self.module:
            return None if self.target else "name a module after -m"
        if not os.path.exists(self.target):
            return f"there is no file {self.target}"
        if os.path.isdir(self.target) and not os.path.isfile(os.path.join(self.target, "__main__.py")):
            return f"{self.target} is a folder without a __main__.py"
        return None

    def run(self) -> int:
        """Run it to its end, the end of its threads included; its exit status, as Python would have given it.

        An exception that it does not catch is printed by its own sys.excepthook, without our frames.
        """
        before = sys.argv, list(sys.path), sys.modules.get("__main__")
        try:
            status = self._status_of_main()
            _wait_for_threads()
            return status
        finally:
            _flush()
            sys.argv, sys.path[:] = before[0], before[1]
            if before[2] is not None:
                sys.modules["__main__"] = before[2]

    def _status_of_main(self) -> int:
        try:
            self._execute()
        except SystemExit as leaving:
            return _status(leaving.code)
        except BaseException as error:  # as the interpreter does at the end of a script
            _flush()
            error.__traceback__ = _own(error.__traceback__)  # what is printed is the exception's own
            sys.excepthook(type(error), error, error.__traceback__)
            return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
        return 0

    def _execute(self) -> None:
        if self.module:
            sys.argv = [self.target, *self.arguments]
            _first_path(os.getcwd())
            runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            return
        sys.argv = [self.target, *self.arguments]
        if not os.path.isfile(self.target) or self.target.endswith((".pyc", ".zip", ".pyz")):
            _first_path(None)
            runpy.run_path(self.target, run_name="__main__")
            return
        _first_path(self.folder)
        main, path = ModuleType("__main__"), os.path.abspath(self.target)  # sys.argv keeps what was typed
        main.__file__, main.__loader__ = path, SourceFileLoader("__main__", path)
        main.__dict__.update(
            {"__builtins__": __builtins__, "__cached__": None, "__annotations__": {}, "__spec__": None}
        )
        main.__package__ = None
        sys.modules["__main__"] = main
        exec(_code(path), main.__dict__)


def _code(path: str) -> CodeType:
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _first_path(folder: str | None) -> None:
    """Python puts the script's folder first; there stands what started us."""
    if not sys.flags.safe_path:
        sys.path[:1] = [] if folder is None else [folder]


def _wait_for_threads() -> None:
    """As Python does at its end: threads that are no daemons belong to the program."""
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.current_thread(), threading.main_thread()):
            thread.join()


def _status(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    _flush()
    print(code, file=sys.stderr)
    return 1


def _own(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first frame on."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith((PACKAGE, "<frozen runpy")):
        traceback = traceback.tb_next
    return traceback


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or nobody reads it any more
            continue
