"""A real vLLM with the default model on the CPU, in an environment of its own, which `make test-vllm` installs (3.4 GB)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvdemo.backend import Backend
from kvdemo.cli.main import main
from kvdemo.endpoints.client import Client
from kvdemo.endpoints.policy import checked_target
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.documents import loads
from kvdemo.facts.endpoint import ServedModel
from kvdemo.facts.events import TokenEmitted
from kvdemo.facts.plans import MemoryRequest
from kvdemo.facts.requests import Message
from kvdemo.planner import catalog
from kvdemo.planner.paging import paged
from kvdemo.questions.documents import from_any_document
from kvdemo.questions.endpoint.spec import EndpointSpec
from kvdemo.questions.load.spec import LoadResult
from kvdemo.questions.load.summary import summarise_mode
from kvdemo.settings import Settings
from tests.judged import found_in
from tests.known import ended, known, sure
from tests.real_engine import Engine, model_folder, started, with_its_log
from tests.served import free_port, wait_until

PYTHON = os.environ.get("KVDEMO_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.real,
    pytest.mark.skipif(not PYTHON, reason="make test-vllm names the Python that has vLLM: KVDEMO_VLLM_PYTHON"),
]

LENGTH, CACHE_GIB, CPU_PAGE = 2048, 2, 128
TWO_FIGURES = re.compile(
    r"KV cache size: ([\d,]+) tokens, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x"
)
COUNT = (Message("user", "Write the numbers from one to five hundred in words, one after the other."),)
PROMPT = "The planets of the solar system are "


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    folder = str(model_folder())
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--dtype", "float32"]
    limits = ["--enforce-eager", "--max-model-len", str(LENGTH), "--enable-prompt-tokens-details"]
    on_cpu = {
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with started([*command, *limits], free_port(), folder, on_cpu) as server:
        yield server


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """Without a model: none is needed."""
    made = Backend(Settings())
    yield made
    made.close()


@with_its_log
def test_what_it_says_at_its_start_is_what_memory_says_it_would(engine: Engine) -> None:
    """Its CPU pages have 128 tokens; the memory, the length and the dtype are those that it was started with."""
    tokens, length, at_once = known(TWO_FIGURES.search(engine.said())).groups()
    model = replace(catalog.architecture("SmolLM2-135M"), dtype="float32")
    ours = known(paged(model, MemoryRequest(LENGTH, cache_dtype="float32", page_tokens=CPU_PAGE), CACHE_GIB * 2**30))
    assert int(length.replace(",", "")) == LENGTH
    assert ours.tokens == int(tokens.replace(",", ""))
    assert f"{ours.at_once:.2f}" == at_once


@with_its_log
def test_it_lists_its_model_with_the_longest_request(backend: Backend, engine: Engine) -> None:
    assert backend.endpoint_models(engine.endpoint) == (ServedModel(engine.model, LENGTH, "vllm"),)


@with_its_log
def test_an_answer_streams_and_what_it_reuses_is_as_it_says(backend: Backend, engine: Engine) -> None:
    question = (Message("user", "What is the capital of France? " * 40),)
    records = []
    for _ in range(2):
        events = list(backend.chat(question, max_new_tokens=8, owner="ada", endpoint=engine.endpoint))
        records.append(ended(events).record)
        assert "".join(event.text for event in events if isinstance(event, TokenEmitted)) == records[-1].text
    cold, warm = records
    assert known(cold.reported).completion_tokens == cold.new_tokens == len(cold.times_by_token_s)
    assert cold.reused_tokens == 0, "a 0 of this engine is a count"
    assert known(warm.reused_tokens) == known(warm.prompt_tokens) // CPU_PAGE * CPU_PAGE, "whole pages are reused"
    assert warm.text == cold.text
    assert warm.cache_bytes is None


@with_its_log
def test_stop_closes_the_connection_and_the_next_request_is_served(backend: Backend, engine: Engine) -> None:
    for event in backend.chat(COUNT, max_new_tokens=1000, owner="ada", endpoint=engine.endpoint):
        if isinstance(event, TokenEmitted):
            backend.stop("ada")
    assert ended([event]).record.finish_reason == "cancelled"
    wait_until(lambda: not engine.connections, "the connection is closed")
    *_, last = backend.chat(COUNT, max_new_tokens=4, owner="ada", endpoint=engine.endpoint)
    assert ended([last]).record.new_tokens == 4


@with_its_log
def test_new_prompts_are_not_warm_by_its_own_counters(backend: Backend, engine: Engine) -> None:
    client = Client(checked_target(engine.url, mode="local"))
    before = known(client.counters())
    *_, last = backend.ask(CompareSpec(PROMPT * 60, max_new_tokens=6, rounds=2), endpoint=engine.endpoint)
    after = known(client.counters())
    client.close()
    result = sure(ComparisonResult, last)
    assert [run.new_tokens for run in result.runs] == [6] * 3, "no end token ends them"
    assert known(after.hit_share_since(before)) < 0.01
    assert not any("Warm" in notice for run in result.runs for notice in run.notices)


@with_its_log
def test_what_it_does_is_found_from_outside(backend: Backend, engine: Engine) -> None:
    expected = {"kv_cache": "in use", "prefix_reuse": "in use", "batching": "in use"}
    found_in(backend, engine.endpoint, EndpointSpec(), expected)  # type: ignore[arg-type]


@with_its_log
def test_under_load_every_request_of_every_mode_is_answered(engine: Engine, tmp_path: Path) -> None:
    kept = tmp_path / "load.json"
    asked = ["load", "--prompt", PROMPT, "--requests", "4", "--max-new-tokens", "16", "--url", engine.url]
    assert main([*asked, "--json", str(kept)]) == 0
    result = sure(LoadResult, from_any_document(loads(kept.read_bytes())))
    assert [run.status for one in result.main.runs for run in one.record.runs] == ["ok"] * 16
    assert known(summarise_mode(result.spec, result.main, "at-once").throughput_tokens_per_s) > 0


@with_its_log
def test_a_request_longer_than_it_allows_is_refused_in_its_own_words(backend: Backend, engine: Engine) -> None:
    *_, last = backend.ask(CompareSpec(PROMPT * 400, max_new_tokens=6), endpoint=engine.endpoint)
    (error,) = {run.error for run in sure(ComparisonResult, last).runs}
    assert "did not take the request (400). It says: " in known(error)
