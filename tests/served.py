"""The page over HTTP: in this process around any backend, or as app.py in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kvdemo.facts.model import Ready
from kvdemo.settings import Settings
from tests.puppet import Puppet
from tests.tiny_backend import ready_backend

__all__ = ["Served", "free_port", "real_app", "served", "served_puppet", "wait_until"]

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60.0
# The first start on a machine converts the embedded model.
REAL_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Served:
    """A page that answers at `url`; demo, backend and puppet are None where it runs in a process of its own."""

    url: str
    demo: Any = None
    backend: Any = None
    puppet: Any = None


@contextmanager
def served(backend: Any, settings: Settings | None = None, *, puppet: Puppet | None = None) -> Iterator[Served]:
    """The real page over this backend, with the settings of its mode, until the block ends."""
    from kvdemo.ui.page import build_page, page_style
    from kvdemo.web.launch import calm_queue, launch_settings, open_page

    settings = settings or getattr(backend, "settings", None) or Settings()
    launched = launch_settings(settings, port=free_port())
    demo = build_page(backend, settings).queue(**launched.queue)
    calm_queue(demo)
    url, _ = open_page(demo, launched, page_style())
    try:
        yield Served(url.rstrip("/"), demo, backend, puppet)
    finally:
        if puppet is not None:
            puppet.let_go()
        demo.close(verbose=False)


@contextmanager
def served_puppet(**options: Any) -> Iterator[Served]:
    """The real page and the real backend around a tiny model on strings."""
    puppet = Puppet()
    backend = ready_backend(model=puppet.model, **options)
    try:
        assert isinstance(backend.status(), Ready), backend.status()
        with served(backend, puppet=puppet) as page:
            yield page
    finally:
        backend.close()


@contextmanager
def real_app(**environment: str) -> Iterator[Served]:
    """`python app.py` with the default model, from the moment the model answers; ended as a container would end it."""
    port = free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            page = Served(f"http://127.0.0.1:{port}")

            def said() -> str:
                log.seek(0)
                return log.read().decode(errors="replace")

            def answers() -> bool:
                assert process.poll() is None, said()
                try:
                    return "weights" in httpx.get(f"{page.url}/config", timeout=10).text and "is loaded" in said()
                except httpx.TransportError:
                    return False

            wait_until(answers, "the app answers", REAL_PATIENCE_S, every_s=0.25)
            yield page
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        assert process.returncode == 0, said()
        assert "Traceback" not in said(), said()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S, every_s: float = 0.02) -> Any:
    """Ask again until it is so; what it then is."""
    until_s = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < until_s, f"this did not happen: {what}"
        time.sleep(every_s)
    return value
