"""Ctrl-C and SIGTERM end the program at once in every phase, and leave nothing half-made that is trusted later."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

from kvdemo.models.conversion import _target, converted_folder
from tests.model_files import write_tiny_gguf
from tests.served import free_port, wait_until

ROOT = Path(__file__).parents[2]
# For what ends at once; without the mend each of these would wait for ever.
PATIENCE_S = 60.0
CTRL_C, SIGTERM = pytest.param(signal.SIGINT, id="Ctrl-C"), pytest.param(signal.SIGTERM, id="SIGTERM")
# Both ways have one handler: where a process takes long to start, make test ends it the way that it is mostly ended.
SLOW_CTRL_C, SLOW_SIGTERM = (pytest.param(*one.values, id=one.id, marks=pytest.mark.slow) for one in (CTRL_C, SIGTERM))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@contextmanager
def conversion_held(gguf: Path, home: Path) -> Iterator[None]:
    """Whoever loads this file meanwhile stands still in the model's thread."""
    target = _target(gguf, home)
    target.parent.mkdir(parents=True)
    with FileLock(target.with_name(target.name + ".lock")):
        yield


@pytest.mark.parametrize("ending", [CTRL_C, SLOW_SIGTERM])
def test_a_command_ends_at_once_while_the_model_loads(gguf: Path, tmp_path: Path, ending: signal.Signals) -> None:
    home = tmp_path / "home"
    here, there = pty.openpty()  # steps are told where a person is looking
    with (
        conversion_held(gguf, home),
        subprocess.Popen(
            [sys.executable, "-m", "kvdemo", "chat", "hi", "--model", str(gguf)],
            cwd=ROOT,
            env={**os.environ, "KVDEMO_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=there,
        ) as process,
    ):
        try:
            said = ""
            while "waiting for another process" not in said:
                said += os.read(here, 1000).decode()
            process.send_signal(ending)
            assert process.wait(PATIENCE_S) == 130
            said += os.read(here, 1000).decode()
        finally:
            process.kill()
    os.close(here)
    os.close(there)
    assert said.splitlines()[-1] == "kvdemo: stopped"
    assert "Traceback" not in said


@pytest.mark.parametrize("ending", [SLOW_CTRL_C, SIGTERM])
def test_the_page_ends_at_once_while_the_model_loads(gguf: Path, tmp_path: Path, ending: signal.Signals) -> None:
    home, port = tmp_path / "home", free_port()
    with (
        conversion_held(gguf, home),
        subprocess.Popen(
            [sys.executable, "app.py", "--model", str(gguf), "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "KVDEMO_HOME": str(home), "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert "kvdemo is at" in said
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/gradio_api/call/v2/chat", timeout=60) as client:

                def loading() -> bool:
                    event = client.post("", json={"message": "hi"}).json()["event_id"]
                    return "waiting for another process" in client.get(f"/{event}").text

                wait_until(loading, "the model's thread stands still", every_s=0.2)
            process.send_signal(ending)
            assert process.wait(PATIENCE_S) == 0
            said += process.stdout.read()
        finally:
            process.kill()
    assert said.endswith("\nkvdemo has ended.\n")
    assert "Traceback" not in said
    assert not list(tmp_path.glob("kvdemo-*")), "the folder of saved files is gone with the page"


UNPACKING = """
    import sys, threading
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from kvdemo.ending import end_on_signals
    from kvdemo.models.conversion import convert
    from tests.unit.test_gguf import unpack

    def stuck(gguf, folder, progress):
        unpack(gguf, folder, progress)
        progress("unpacking")
        threading.Event().wait()

    end_on_signals(7, "ended", sys.stderr)
    gguf, home = map(Path, sys.argv[1:])
    # Python waits at its end for the threads of a pool, as libraries start them.
    convertible = lambda: convert(gguf, home, unpack=stuck, progress=lambda words: print(words, flush=True))
    ThreadPoolExecutor().submit(convertible).result()
"""


@pytest.mark.parametrize("ending", [CTRL_C, SIGTERM])
def test_an_ended_conversion_leaves_neither_a_folder_nor_a_thread(
    gguf: Path, tmp_path: Path, ending: signal.Signals
) -> None:
    home = tmp_path / "home"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(UNPACKING), str(gguf), str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "unpacking\n"
            process.send_signal(ending)
            assert process.wait(PATIENCE_S) == 7
            assert process.stderr is not None
            assert process.stderr.read() == "ended\n"
        finally:
            process.kill()
    assert converted_folder(gguf, home) is None
    assert [path.name for path in (home / "converted").iterdir() if path.suffix != ".lock"] == []


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "from kvdemo.ending import end_on_signals; end_on_signals(7, 'ended', sys.stderr); "
        "from types import SimpleNamespace; from kvdemo.cli.session import stopping_on_ctrl_c\n"
        "with stopping_on_ctrl_c(SimpleNamespace()): os.kill(os.getpid(), signal.SIGINT)\n"
        "os.kill(os.getpid(), signal.SIGINT); print('still here')"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (told.returncode, told.stdout, told.stderr) == (0, "still here\n", "")


def test_tests_and_their_children_have_the_default_signals_however_they_were_started() -> None:
    """Run in the background of a shell without job control: there SIGINT is ignored."""
    inner = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    code = f"import subprocess, sys, tests.conftest; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = f"trap '' INT; exec {sys.executable} -c \"$CODE\""
    told = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env={**os.environ, "CODE": code}, capture_output=True, text=True
    )
    assert (told.stdout, told.stderr) == ("True\n", "")


def test_a_test_that_hangs_ends_and_shows_where_every_thread_stands(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_hanging.py").write_text(
        "import threading\n\n"
        "def in_another_thread():\n    threading.Event().wait()\n\n"
        "def test_hangs():\n"
        "    threading.Thread(target=in_another_thread, daemon=True).start()\n"
        "    threading.Event().wait()\n"
    )
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout=0.5", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    said = told.stdout + told.stderr
    assert told.returncode == 1
    assert re.search(r"Timeout \(>0\.5s\)", said)
    assert "in_another_thread" in said
