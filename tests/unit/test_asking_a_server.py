"""Questions asked of a server behind a URL, by the command line and by the backend: figures, no key, and nothing warm as cold."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvdemo.backend import Backend
from kvdemo.backend.endpoints import Served
from kvdemo.cli.main import main
from kvdemo.endpoints.client import Client
from kvdemo.endpoints.policy import checked_target
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.facts.endpoint import Counters, Endpoint, ServedModel
from kvdemo.facts.events import Finished, GenerationEvent, TokenEmitted
from kvdemo.facts.load import Arrival, ManyFinished, ManyRequest
from kvdemo.facts.reader import AT_ONCE
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.questions.grow.spec import GrowthSpec
from kvdemo.questions.load.spec import LoadResult, LoadSpec
from kvdemo.questions.prefix.spec import PrefixResult, PrefixSpec
from kvdemo.questions.prefix.words import headline
from kvdemo.settings import Settings
from tests.known import sure
from tests.loopback_engine import MODEL_ID, Asked, Usage, WorkEngine, serving
from tests.playing import EVENTS, HOLD, chunk, playing

KEY = "sk-very-secret-4711"
PROMPT = "What is a planet? " * 40


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend(Settings.from_environment({}))
    yield made
    made.close()


def warm(asked: Asked, usage: Usage) -> Iterator[str]:
    """Says of every prompt that a half of it was reused."""
    usage.prompt_tokens, usage.cached_tokens = 1000, 500
    yield from (f" {at}" for at in range(asked.max_tokens))


def test_a_prompt_is_asked_of_a_server_as_one_arm_without_a_ratio(backend: Backend) -> None:
    with serving(WorkEngine(each_s=0.00001, own_s=0.0002, prefixes=True, reports=True).answer) as url:
        *_, last = backend.ask(CompareSpec(PROMPT, max_new_tokens=6, rounds=2), endpoint=Endpoint(url, key=KEY))
    result = sure(ComparisonResult, last)
    assert result.comparisons == ()
    assert [run.status for run in result.runs] == ["ok"] * 3
    assert {run.text and run.new_tokens for run in result.runs if run.counts} == {6}
    assert all(run.strategy is None and run.arm == "endpoint" for run in result.runs)
    assert not any("Warm" in notice for run in result.runs for notice in run.notices), "every prompt was new"
    assert (result.model.vocab_size, result.model.weight_bytes) == (None, None)
    assert KEY not in repr(result)


def test_new_prompts_that_a_server_reuses_all_the_same_are_warm_and_give_no_ratio(backend: Backend) -> None:
    with serving(warm) as url:
        *_, last = backend.ask(
            LoadSpec((PromptRow(PROMPT, "one"),), requests=2, max_new_tokens=3, rounds=2), endpoint=Endpoint(url)
        )
    result = sure(LoadResult, last)
    assert result.comparisons == ()
    runs = [run for one in result.main.runs for run in one.record.runs]
    assert runs
    assert all(any("Warm, not comparable" in notice for notice in run.notices) for run in runs)


@pytest.mark.parametrize("mode", ["share", "space"])
def test_a_page_that_others_can_open_asks_no_server_that_its_operator_did_not_name(mode: str) -> None:
    with serving(warm) as url:
        refusing = Backend(Settings(mode=mode))
        asked: list[Callable[[], object]] = [
            lambda: refusing.endpoint_models(Endpoint(url)),
            lambda: list(refusing.ask(CompareSpec(PROMPT), endpoint=Endpoint(url))),
            lambda: list(refusing.chat((Message("user", "Hi"),), max_new_tokens=2, endpoint=Endpoint(url))),
        ]
        for ask in asked:
            with pytest.raises(InvalidRequest, match="--allow-endpoint"):
                ask()
        allowing = Backend(Settings(mode=mode, allowed_endpoints=(url.split("/")[2],)))
        assert [model.name for model in allowing.endpoint_models(Endpoint(url))] == [MODEL_ID]
        refusing.close()
        allowing.close()


def test_one_request_of_several_that_fails_on_our_side_fails_alone_and_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def count(text: str) -> int:
        raise ZeroDivisionError

    with playing((EVENTS, chunk('{"content":"Hello"}', '"stop"'), b"data: [DONE]\n\n")) as played:
        client = Client(checked_target(played.url, mode="local"))
        server = Served(client, ServedModel("m"), AT_ONCE, threading.Event(), count, 60.0)
        *_, last = server.many(ManyRequest("at-once", (Arrival("Hi", 3), Arrival("Hi", 3))), fresh=False)
        client.close()
    record = sure(ManyFinished, last).record
    assert [run.status for run in record.runs] == ["failed", "failed"]
    assert "on our side" in (record.error or "")
    assert "ZeroDivisionError" in caplog.text


def test_several_requests_end_when_their_time_is_over() -> None:
    with playing((EVENTS, chunk('{"content":"Hello"}'), HOLD)) as played:
        client = Client(checked_target(played.url, mode="local"))
        server = Served(client, ServedModel("m"), AT_ONCE, threading.Event(), lambda _: 1, 60.0)
        request = ManyRequest("at-once", (Arrival("Hi", 3), Arrival("Hi", 3)), timeout_s=0.2)
        *_, last = server.many(request, fresh=False)
        client.close()
    assert [run.status for run in sure(ManyFinished, last).record.runs] == ["timed_out"] * 2


def test_no_request_takes_longer_than_the_operator_allows_a_run() -> None:
    with playing((EVENTS, chunk('{"content":"Hello"}'), HOLD)) as played:
        client = Client(checked_target(played.url, mode="local"))
        server = Served(client, ServedModel("m"), AT_ONCE, threading.Event(), lambda _: 1, run_s=0.2)
        *_, last = server.run(GenerationRequest("Hi", 3, timeout_s=3600.0))
        client.close()
    assert sure(Finished, last).reason == "timed_out"


def test_where_reuse_is_the_question_counters_say_what_the_answers_do_not(backend: Backend) -> None:
    """As vLLM does unless told otherwise: its answers say nothing of reuse, its /metrics count it for everybody."""
    engine = WorkEngine(each_s=0.00001, own_s=0.0002, prefixes=True)
    with serving(engine.answer, engine.metrics) as url:
        *_, last = backend.ask(PrefixSpec(PROMPT, ("Mars?", "Venus?"), max_new_tokens=3), endpoint=Endpoint(url))
    result = sure(PrefixResult, last)
    assert result.page_tokens == 16
    for pair in result.pairs:
        assert (pair.fresh.reused_tokens, pair.kept.reused_tokens) == (0, 176)
    assert "352 tokens as reused of about 352 in the whole pages of 16 that could be (100 %)" in plain(headline(result))


def test_counters_that_show_somebody_elses_tokens_say_nothing_of_a_request() -> None:
    before = Counters(1000.0, 0.0)
    assert Counters(1100.0, 64.0).hits_of_one(100, before) == 64
    assert Counters(1150.0, 64.0).hits_of_one(100, before) is None
    assert Counters(1000.0, 0.0).hits_of_one(100, before) is None, "not counted yet"
    assert Counters(None, None).hits_of_one(100, before) is None


def test_the_beginning_of_a_template_that_every_prompt_has_is_not_warm(backend: Backend) -> None:
    """No salt stands before it, and an engine with small pages reuses it: two pages of 16 here, of prompts of 70 tokens."""

    def with_template(asked: Asked, usage: Usage) -> Iterator[str]:
        usage.prompt_tokens, usage.cached_tokens = 70, 32
        yield from (f" {at}" for at in range(asked.max_tokens))

    with serving(with_template) as url:
        *_, last = backend.ask(
            LoadSpec((PromptRow("Why?", "one"),), requests=2, max_new_tokens=3, rounds=2), endpoint=Endpoint(url)
        )
    result = sure(LoadResult, last)
    assert result.comparisons
    assert not any("Warm" in notice for one in result.main.runs for run in one.record.runs for notice in run.notices)


def test_a_question_for_the_model_here_is_not_asked_of_a_server(backend: Backend) -> None:
    with pytest.raises(InvalidRequest, match="of a model that runs here") as caught:
        next(backend.ask(GrowthSpec(PROMPT), endpoint=Endpoint("http://127.0.0.1:9")))
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--prompt", PROMPT, "--max-new-tokens", "4"], "From outside nobody can switch its cache off"),
        (["prompts", "{rows}", "--max-new-tokens", "4"], "First token after"),
        (["prefix", "{system}", "--question", "Mars?", "--max-new-tokens", "4"], "a hit rate is not a speed-up"),
        (["load", "--requests", "2", "--max-new-tokens", "4"], "to a server"),
    ],
)
def test_the_commands_ask_a_server_and_keep_the_key_to_themselves(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {"rows": tmp_path / "rows.jsonl", "system": tmp_path / "system.txt"}
    files["rows"].write_text(json.dumps({"id": "one", "prompt": PROMPT}) + "\n", encoding="utf-8")
    files["system"].write_text(PROMPT, encoding="utf-8")
    outputs = {"json": tmp_path / "r.json", "report": tmp_path / "r.html", "csv": tmp_path / "r.csv"}
    monkeypatch.setenv("KEY_OF_IT", KEY)
    with serving(WorkEngine(each_s=0.00001, own_s=0.0002, prefixes=True, reports=True).answer) as url:
        given = [one.format(**files) for one in arguments]
        wanted = [word for name, path in outputs.items() for word in (f"--{name}", str(path))]
        assert main([*given, "--url", url, "--key-env", "KEY_OF_IT", *wanted]) == 0
    said = capsys.readouterr()
    assert words in said.out
    assert KEY not in said.out + said.err
    assert KEY not in "".join(path.read_text(encoding="utf-8") for path in outputs.values())
    assert json.loads(outputs["json"].read_text(encoding="utf-8"))["model"]["vocab_size"] is None


@pytest.mark.parametrize(
    ("switches", "field"),
    [
        (["--key-env", "NO_SUCH_KEY"], "key_env"),
        (["--url", "http://127.0.0.1:9", "--key-env", "NO_SUCH_KEY"], "key_env"),
        (["--url", "http://10.0.0.7:8000"], "url"),
        (["--url", "nonsense"], "url"),
    ],
)
def test_switches_that_cannot_be_used_are_refused_by_name(
    switches: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--prompt", "Hello", *switches]) == 2
    assert capsys.readouterr().err.startswith(f"kvdemo: {field}: ")


def test_a_server_answers_in_chat_and_stop_closes_its_connection(backend: Backend) -> None:
    listed = b'{"data":[{"id":"m"}]}'
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(listed)}\r\n\r\n".encode()
    first = chunk('{"content":"Hello"}')
    with playing((head, listed), (EVENTS, first, HOLD)) as played:
        answer = backend.chat(
            (Message("user", "Hi"),), max_new_tokens=8, owner="ada", endpoint=Endpoint(played.url, key=KEY)
        )
        seen: list[GenerationEvent] = []
        for event in answer:
            seen.append(event)
            if isinstance(event, TokenEmitted):
                backend.stop("ada")
        assert played.gone.wait(10)
    finished = sure(Finished, seen[-1])
    assert (finished.reason, finished.record.text) == ("cancelled", "Hello")
    assert KEY not in repr(seen)


def test_chat_on_the_command_line_asks_a_server_and_says_what_it_does_not_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEY_OF_IT", KEY)
    kept = tmp_path / "run.json"
    with serving(WorkEngine(each_s=0.00001, own_s=0.0002).answer) as url:
        given = ["chat", "What is a planet?", "--max-new-tokens", "4", "--url", url, "--key-env", "KEY_OF_IT"]
        assert main([*given, "--json", str(kept)]) == 0
    said = capsys.readouterr()
    run = json.loads(kept.read_text(encoding="utf-8"))
    assert said.out.strip() == run["text"].strip()
    assert (run["strategy"], run["cache_bytes"], run["num_new_tokens"]) == (None, None, 4)
    assert "reused: not reported, cache: not reported" in said.err
    assert KEY not in said.out + said.err + kept.read_text(encoding="utf-8")


def test_chat_on_the_command_line_fails_in_a_sentence_where_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "Hi", "--url", "http://127.0.0.1:9"]) == 1
    assert "Nothing listens at 127.0.0.1:9." in capsys.readouterr().err
    assert main(["chat", "Hi", "--key-env", "KEY_OF_IT"]) == 2
