"""What happens at the same time in several threads: provoked many times over, so that a race shows itself."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from kvdemo.backend.memory import Memory
from kvdemo.components.exports import KEPT_S, Exports
from kvdemo.errors import ModelUnavailable
from kvdemo.facts.decision import InspectSpec
from kvdemo.in_force.inspect import _warnings_into
from kvdemo.models.thread import ModelThread
from kvdemo.settings import Settings

WAIT_S = 30


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def at_once(*jobs: Callable[[], Any]) -> list[Future[Any]]:
    """All jobs, each in a thread of its own, begun at the same moment and ended."""
    ready = threading.Barrier(len(jobs))

    def begin(job: Callable[[], Any]) -> Any:
        ready.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [pool.submit(begin, job) for job in jobs]


def test_saves_at_the_same_time_all_succeed_while_old_files_are_removed(hasty_threads: None) -> None:
    exports = Exports()
    long_ago = time.time() - KEPT_S - 60
    for _ in range(40):
        for _ in range(5):
            old = exports.write("old", "txt", "x")
            os.utime(old.parent, (long_ago, long_ago))
        done = at_once(*[lambda: exports.write("new", "txt", "y")] * 4)
        written = {future.result() for future in done}
        assert len(written) == 4
        assert all(path.read_text() == "y" for path in written)
    assert not old.exists()


def test_a_job_given_while_the_models_thread_is_closed_runs_or_is_cancelled_but_never_waits(
    hasty_threads: None,
) -> None:
    for _ in range(20):
        thread = ModelThread()
        given: list[Future[int]] = []

        def keep_asking(thread: ModelThread = thread, given: list[Future[int]] = given) -> None:
            asked = thread.submit(lambda: 1)
            given.append(asked)
            while not asked.cancelled():
                asked = thread.submit(lambda: 1)
                given.append(asked)

        at_once(thread.close, *[keep_asking] * 3)
        assert not wait(given, WAIT_S).not_done


def test_an_answer_takes_the_warnings_of_its_own_thread_only(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("transformers.generation.utils")
    conflicts: list[str] = []
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        with _warnings_into(conflicts):
            logger.warning("a cache of this call")
            other = threading.Thread(target=logger.warning, args=("a cache of somebody's run",))
            other.start()
            other.join()
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert conflicts == ["a cache of this call"]
    assert "a cache of somebody's run" in caplog.messages
    assert "a cache of this call" not in caplog.messages
    assert logging.getLogger("transformers.generation").propagate


def test_the_same_question_has_the_same_answer_the_second_time() -> None:
    logger: Any = logging.getLogger("transformers.generation.utils")
    told: list[list[str]] = [[], []]
    for conflicts in told:
        with _warnings_into(conflicts):
            logger.warning_once("this cache is deprecated")
    assert told == [["this cache is deprecated"]] * 2


def test_nobody_waits_for_a_file_that_somebody_elses_question_waits_for(tmp_path: Path) -> None:
    """A named pipe stands for the network: it is opened when somebody writes into it."""
    for name, content in (("config.json", '{"model_type": "llama"}'), ("tokenizer.json", "{}")):
        (tmp_path / name).write_text(content)
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    slow = tmp_path / "generation_config.json"
    os.mkfifo(slow)
    backend = Memory(Settings(model=str(tmp_path)))
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(backend.inspect, InspectSpec())
        config = '{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "vocab_size": 9, "n_positions": 8}'
        other = pool.submit(backend.inspect, InspectSpec(config=config))
        try:
            assert other.result(WAIT_S * 2).value is True
            assert not waiting.done()
        finally:
            slow.write_text("[]")
        with pytest.raises(ModelUnavailable, match=r"generation_config\.json is not a JSON object"):
            waiting.result(WAIT_S)
    backend.close()
