"""Real engines behind a URL, started as people start them, with the default model as a folder."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from kvdemo.facts.endpoint import Endpoint
from kvdemo.models.conversion import convert
from kvdemo.models.loader import unpack_gguf
from kvdemo.models.source import resolve
from kvdemo.settings import Settings
from tests.known import known
from tests.served import PATIENCE_S, wait_until

__all__ = ["Engine", "model_folder", "started", "with_its_log"]

START_S = 240.0


@dataclass(frozen=True)
class Engine:
    """A server that answers at `url`. said: its log until now."""

    url: str
    model: str
    process: subprocess.Popen[bytes]
    said: Callable[[], str]

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, self.model)

    @property
    def connections(self) -> int:
        """That this process has open to it."""
        port = int(self.url.rpartition(":")[2].partition("/")[0])
        mine = psutil.Process().net_connections("tcp")
        return sum(bool(one.raddr) and one.raddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in mine)


def model_folder() -> Path:
    """The default model as a folder of safetensors, which is made once on a machine."""
    settings = Settings.from_environment(os.environ)
    source = resolve(None, settings.home, allow_network=False)
    path = known(source.path)
    return convert(path, settings.home, unpack=unpack_gguf, progress=print) if source.kind == "embedded" else path


@contextmanager
def started(
    command: Sequence[str | Path], port: int, model: str, environment: Mapping[str, str] | None = None
) -> Iterator[Engine]:
    """The server that this command starts, from the moment it is healthy until the block ends."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", **(environment or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
        )

        def said() -> str:
            log.seek(0)
            return log.read().decode(errors="replace")

        def healthy() -> bool:
            assert process.poll() is None, said()
            try:
                return httpx.get(f"http://127.0.0.1:{port}/health", timeout=10, trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        try:
            wait_until(healthy, "the server is healthy", START_S, every_s=0.25)
            yield Engine(f"http://127.0.0.1:{port}/v1", model, process, said)
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:  # its threads do not let it go
                process.kill()
                process.wait(PATIENCE_S)


def with_its_log(test: Callable[..., None]) -> Callable[..., None]:
    """A failure shows the end of what the server said."""

    @functools.wraps(test)
    def told(*given: Any, engine: Engine, **named: Any) -> None:
        try:
            test(*given, engine=engine, **named)
        except BaseException as error:
            error.add_note(f"the server's log ends:\n{engine.said()[-6000:]}")
            raise

    return told
