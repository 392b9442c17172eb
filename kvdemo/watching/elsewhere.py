"""A program watched in a process of its own: how such a process is started, and what it does."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdemo.watching.environment import environment_here
from kvdemo.watching.observer import watch
from kvdemo.watching.override import Override
from kvdemo.watching.record import INTERRUPTED, Watched
from kvdemo.watching.script import Program

__all__ = ["Elsewhere", "leave_as", "observe_here", "observed", "why_not"]

ENTRY = Path(__file__).with_name("__main__.py")
OLDEST = (3, 11)
PROBE = """
import sys
from importlib.util import find_spec
print(*sys.version_info[:2], *(int(find_spec(name) is not None) for name in ("torch", "transformers")))
"""
PROBE_S = 60
LAST_LINES = 12


def observed(program: Program, *, override: Override | None = None, keep_ids: bool = False) -> Watched:
    """Run it in this process and say what was seen, its exit status among it."""
    with watch(override=override, keep_ids=keep_ids, folders=(program.folder,), name=program.name) as seen:
        status = program.run()
    return dataclasses.replace(seen.record(status), environment=environment_here())


_interrupted = threading.Event()


def leave_as(status: int) -> int:
    """End as the program did: a script that nobody kept from an interrupt ends by the signal, so that a shell stops, too."""
    if status == INTERRUPTED and os.name == "posix" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        _interrupted.set()
    return status


@atexit.register  # before the program runs, and so called after whatever it registers
def _by_the_signal() -> None:
    if _interrupted.is_set():
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def observe_here(arguments: Sequence[str]) -> int:
    """What the process does that `Elsewhere` starts; its arguments are ours, so none of them is wrong."""
    at = arguments.index("--")
    own, rest = list(arguments[:at]), list(arguments[at + 1 :])
    given = dict(zip(own[::2], own[1::2], strict=True))
    module = rest[0] == "-m"
    program = Program(rest[module], rest[module + 1 :], module=module)
    cache = given.get("--cache")
    watched = observed(program, override=Override(cache) if cache else None, keep_ids=given.get("--ids") == "yes")
    Path(given["--record"]).write_text(json.dumps(dataclasses.asdict(watched)), encoding="utf-8")
    return leave_as(watched.script.exit_code or 0)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """How to run a program under observation in another process.

    python   the interpreter; cache: a key of the strategies table, None as it is
    """

    program: Program
    python: str = sys.executable
    cache: str | None = None

    def command(self, record: Path) -> list[str]:
        cache = ["--cache", self.cache] if self.cache else []
        target = ["-m", self.program.target] if self.program.module else [self.program.target]
        own = ["--record", str(record), "--ids", "yes", *cache]
        return [self.python, str(ENTRY), *own, "--", *target, *self.program.arguments]

    def run(self, *, loud: bool = False) -> tuple[Any, str]:
        """(the record as plain values, None where it left none; its last words on standard error where it failed).

        loud: its output is passed on, and not kept. Its standard input is empty. An interrupt ends it, and is passed on.
        """
        with tempfile.TemporaryDirectory(prefix="kvdemo-watch-") as folder:
            record, said = Path(folder, "record.json"), Path(folder, "stderr")
            with said.open("wb") as errors:
                child = subprocess.Popen(
                    self.command(record),
                    stdin=subprocess.DEVNULL,
                    stdout=None if loud else subprocess.DEVNULL,
                    stderr=None if loud else errors,
                )
                try:
                    status = child.wait()
                except BaseException:
                    child.terminate()
                    child.wait()
                    raise
            lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines() if status else []
            left = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else None
            if left is None and not lines:
                lines = [f"it ended with status {status} and left no record"]
            return left, "\n".join(lines[-LAST_LINES:])


def why_not(python: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Why a program cannot be watched with this interpreter, in a sentence; None where it can."""
    try:
        told = subprocess.run(
            [python, "-c", PROBE],
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        return f"{python} cannot be started: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        return f"{python} did not say its version within {PROBE_S} s"
    words = told.stdout.split()
    if len(words) < 4 or not all(word.isdigit() for word in words[:4]):
        if "find_spec" in told.stderr or "No module named" in told.stderr or "SyntaxError" in told.stderr:
            return f"{python} is older than Python 3.11; watching needs 3.11 or newer"
        return f"{python} is no Python that can be asked for its version"
    major, minor, *there = (int(word) for word in words[:4])
    if (major, minor) < OLDEST:
        return f"{python} is Python {major}.{minor}; watching needs 3.11 or newer"
    missing = [name for name, has in zip(("torch", "transformers"), there, strict=True) if not has]
    return f"{python} has no {' and no '.join(missing)}" if missing else None
