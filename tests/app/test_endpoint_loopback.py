"""Is my endpoint caching, asked over HTTP of servers whose answers are known: our own generation, and work that takes its time.

What is timed is real. A busy machine may end in "cannot tell", and then it is asked again; it must never end in the opposite.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kvdemo.backend import Backend
from kvdemo.cli.main import main
from kvdemo.errors import InvalidRequest
from kvdemo.facts.endpoint import Endpoint
from kvdemo.questions.endpoint.spec import EndpointResult, EndpointSpec, Subject
from kvdemo.questions.endpoint.timings import judgements
from kvdemo.settings import Settings
from tests import judged
from tests.loopback_engine import MODEL_ID, WorkEngine, own_engine, serving

KEY = "sk-a-secret-of-mine"
LENGTHS = 5  # requests that find out which lengths can be told apart
STEPS, PREFIXES = LENGTHS + 24, LENGTHS + 24 + 25  # requests up to the end of these parts


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """Without a model: none is needed."""
    backend = Backend(Settings())
    yield backend
    backend.close()


def checked(backend: Backend, url: str) -> EndpointResult:
    return judged.checked(backend, Endpoint(url, MODEL_ID, KEY), asking())


def found_in(backend: Backend, url: str, expected: dict[Subject, str], requests: int = 240) -> None:
    judged.found_in(backend, Endpoint(url, MODEL_ID, KEY), asking(requests), expected)


def asking(requests: int = 240) -> EndpointSpec:
    return EndpointSpec(requests=requests, seconds=150)


@pytest.mark.slow
def test_our_own_generation_without_a_cache_is_found_not_to_use_one(backend: Backend) -> None:
    with own_engine(cached=False) as url:
        found_in(backend, url, {"kv_cache": "not in use"}, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("prefixes", [True, False])
def test_our_own_generation_with_a_cache_is_found_to_use_it_and_to_keep_prefixes_or_not(
    backend: Backend, prefixes: bool
) -> None:
    expected: dict[Subject, str] = {"kv_cache": "in use", "prefix_reuse": "in use" if prefixes else "not in use"}
    with own_engine(cached=True, prefixes=prefixes) as url:
        found_in(backend, url, expected, PREFIXES)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_requests_that_are_served_together_or_one_after_the_other_are_found_so(
    backend: Backend, together: bool
) -> None:
    """A fake with a real clock: its waits follow from the work that it would do."""
    expected: dict[Subject, str] = {
        "kv_cache": "in use",
        "prefix_reuse": "in use",
        "batching": "in use" if together else "not in use",
    }
    with serving(WorkEngine(together=together, prefixes=True, reports=True).answer) as url:
        found_in(backend, url, expected)


@pytest.mark.parametrize("answers", [0, 3, 9])
def test_a_server_that_refuses_further_requests_is_never_guessed_at(backend: Backend, answers: int) -> None:
    engine = WorkEngine(cached=False, answers=answers, each_s=0.00005, own_s=0.001)
    with serving(engine.answer) as url:
        result = checked(backend, url)
    for found in judgements(result).values():
        assert found.verdict == "cannot tell"
        assert "429" in found.evidence
    assert engine.sent == result.requests_sent


def test_a_model_that_it_does_not_list_and_an_address_where_nothing_is_are_refused_in_a_sentence(
    backend: Backend,
) -> None:
    with (
        serving(WorkEngine().answer) as url,
        pytest.raises(InvalidRequest, match="lists tiny/served"),
    ):
        list(backend.ask(EndpointSpec(), owner="test", endpoint=Endpoint(url, "another")))
    with pytest.raises(InvalidRequest, match="url: give the address"):
        list(backend.ask(EndpointSpec(), owner="test"))


def test_the_command_writes_json_and_says_the_key_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(WorkEngine(each_s=0.00005, own_s=0.001).answer) as url:
        asked = ["endpoint", "--url", url, "--key-env", "MY_KEY", "--requests", "20", "--json", "-"]
        assert main(asked) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["kind"] == "endpoint"
    assert document["requests_sent"] <= 20
    assert {"verdicts", "requests_sent", "tokens_used", "message"} <= set(document)
    assert KEY not in out + err
