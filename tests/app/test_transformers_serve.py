"""The real `transformers serve` with the default model, as people start it: one request after the other, and batched.

Its answers are its own; nothing of it is played.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from kvdemo.backend import Backend
from kvdemo.endpoints.answers import answered
from kvdemo.endpoints.client import Client
from kvdemo.endpoints.policy import checked_target
from kvdemo.errors import InvalidRequest, RunFailed, Unanswered
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.facts.endpoint import Endpoint, ServedModel
from kvdemo.facts.events import TokenEmitted
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.facts.results import ArmEvent
from kvdemo.models.conversion import convert
from kvdemo.models.loader import unpack_gguf
from kvdemo.models.source import resolve
from kvdemo.questions.endpoint.spec import EndpointSpec, Subject
from kvdemo.questions.load.spec import LoadResult, LoadSpec
from kvdemo.settings import Settings
from tests.judged import found_in
from tests.known import ended, known, sure
from tests.served import PATIENCE_S, free_port, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

START_S = 180.0
BATCHED = ("--continuous-batching", "--cb-num-blocks", "64", "--cb-max-batch-tokens", "128")
CAPITAL = (Message("user", "What is the capital of France?"),)
COUNT = (Message("user", "Write the numbers from one to five hundred in words, one after the other."),)
PROMPT = "The planets of the solar system are "


@dataclass(frozen=True)
class Engine:
    """A server that answers at `url`. said: its log until now."""

    url: str
    model: str
    batched: bool
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


@contextmanager
def serving(folder: Path, *, batched: bool) -> Iterator[Engine]:
    """`transformers serve FOLDER`, from the moment it is healthy until the block ends."""
    port = free_port()
    program = Path(sys.executable).with_name("transformers")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [program, "serve", folder, "--host", "127.0.0.1", "--port", str(port), *(BATCHED if batched else ())],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"},
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
            yield Engine(f"http://127.0.0.1:{port}/v1", str(folder), batched, process, said)
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


@pytest.fixture(scope="module")
def folder() -> Path:
    """The default model as a folder of safetensors, which is made once on a machine."""
    settings = Settings.from_environment(os.environ)
    source = resolve(None, settings.home, allow_network=False)
    path = known(source.path)
    return convert(path, settings.home, unpack=unpack_gguf, progress=print) if source.kind == "embedded" else path


@pytest.fixture(scope="module", params=[False, True], ids=["one-by-one", "batched"])
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    with serving(folder, batched=request.param) as started:
        yield started


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """Without a model: none is needed."""
    made = Backend(Settings())
    yield made
    made.close()


def answer(backend: Backend, engine: Engine, messages: tuple[Message, ...], tokens: int) -> tuple[RunRecord, list[str]]:
    """The record, and the pieces as they came."""
    events = list(backend.chat(messages, max_new_tokens=tokens, owner="ada", endpoint=engine.endpoint))
    return ended(events).record, [event.text for event in events if isinstance(event, TokenEmitted)]


def test_a_server_that_ends_in_the_middle_of_a_load_fails_its_requests_and_not_the_run(
    backend: Backend, folder: Path
) -> None:
    requests = 2
    spec = LoadSpec((PromptRow(PROMPT, "one"),), requests=requests, max_new_tokens=64, rounds=2)
    with serving(folder, batched=False) as engine:
        for step in backend.ask(spec, endpoint=engine.endpoint):
            timed = isinstance(step, ArmEvent) and step.arm == "at-once" and step.round == 1
            if timed and engine.connections == requests:
                engine.process.kill()
                engine.process.wait(PATIENCE_S)
    records = {(run.mode, run.round): run.record for run in sure(LoadResult, step).main.runs}
    assert records["one-by-one", 1].status == "ok"
    failed = records["at-once", 1]
    assert [run.status for run in failed.runs] == ["failed"] * requests
    assert all("broke off" in known(run.error) for run in failed.runs)
    assert "Nothing listens at 127.0.0.1" in known(records["one-by-one", 2].error)
    with pytest.raises(Unanswered, match=r"Nothing listens at 127\.0\.0\.1"):
        backend.endpoint_models(engine.endpoint)


@with_its_log
def test_it_lists_the_model_that_it_was_started_with(backend: Backend, engine: Engine) -> None:
    assert backend.endpoint_models(Endpoint(engine.url)) == (ServedModel(engine.model, engine="local"),)


@with_its_log
def test_an_answer_streams_with_tokens_counted_and_nothing_called_reused(backend: Backend, engine: Engine) -> None:
    record, pieces = answer(backend, engine, CAPITAL, 24)
    assert "Paris" in record.text
    assert "".join(pieces) == record.text
    assert len(pieces) > 4
    assert (record.status, record.finish_reason) == ("ok", "stop")
    reported = known(record.reported)
    assert reported.completion_tokens == record.new_tokens == len(record.times_by_token_s), "each has its time"
    assert known(reported.prompt_tokens) > 10
    assert (reported.cached_tokens, record.reused_tokens, record.cache_bytes) == (None, None, None)
    assert record.notices == ()


@with_its_log
def test_stop_closes_the_connection_and_the_next_request_is_served(backend: Backend, engine: Engine) -> None:
    pieces = 0
    for event in backend.chat(COUNT, max_new_tokens=1000, owner="ada", endpoint=engine.endpoint):
        if isinstance(event, TokenEmitted):
            pieces += 1
            backend.stop("ada")
    record = ended([event]).record
    assert (record.status, record.finish_reason) == ("cancelled", "cancelled")
    assert 0 < pieces < 1000
    wait_until(lambda: not engine.connections, "the connection is closed")
    after, _ = answer(backend, engine, CAPITAL, 8)
    assert after.status == "ok"
    assert after.text.startswith("The capital of France")


@with_its_log
def test_one_prompt_gives_figures_and_no_ratio(backend: Backend, engine: Engine) -> None:
    *_, last = backend.ask(CompareSpec(PROMPT, max_new_tokens=6, rounds=2), endpoint=engine.endpoint)
    result = sure(ComparisonResult, last)
    assert result.comparisons == ()
    assert [run.status for run in result.runs] == ["ok"] * 3
    for run in result.runs:
        assert known(run.ttft_s) > 0
        assert known(run.tpot_s) > 0
        assert known(run.reported).completion_tokens == run.new_tokens


@with_its_log
def test_under_load_every_request_is_answered(backend: Backend, engine: Engine) -> None:
    spec = LoadSpec((PromptRow(PROMPT, "one"),), requests=3, max_new_tokens=6)
    *_, last = backend.ask(spec, endpoint=engine.endpoint)
    served = {run.mode: run.record for run in sure(LoadResult, last).main.runs if run.round}
    assert sorted(served) == ["at-once", "one-by-one"]
    for record in served.values():
        assert [run.status for run in record.runs] == ["ok"] * 3
        assert known(record.throughput_tokens_per_s) > 0
        assert record.reused_tokens is None


@with_its_log
def test_another_model_and_another_path_have_a_sentence_each(backend: Backend, engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match=r"model: 127\.0\.0\.1:.* has no 'another'; it lists "):
        list(backend.ask(CompareSpec(PROMPT), endpoint=Endpoint(engine.url, "another")))
    with pytest.raises(Unanswered, match=r"knows no such model or address \(404\)\. It says: Not Found"):
        backend.endpoint_models(Endpoint(f"{engine.url}/wrong"))
    client = Client(checked_target(engine.url, mode="local"))
    asked = GenerationRequest(CAPITAL, 4)
    with pytest.raises(RunFailed, match=r"\(400\)\. It says: Server is pinned to .* requested 'another'") as caught:
        list(answered(client, ServedModel("another"), asked, stop=threading.Event()))
    client.close()
    assert caught.value.record.status == "failed"


@with_its_log
def test_what_it_does_is_found_from_outside(backend: Backend, engine: Engine) -> None:
    """Batched it keeps pages between requests, too; a prompt of which it has the pages takes a fraction of the time."""
    used = "in use" if engine.batched else "not in use"
    expected: dict[Subject, str] = {"kv_cache": "in use", "prefix_reuse": used, "batching": used}
    found_in(backend, engine.endpoint, EndpointSpec(seconds=240), expected, tries=2)
