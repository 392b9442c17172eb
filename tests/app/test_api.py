"""The three endpoints as another program calls them: their signatures, their defaults, what they yield."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import closing
from types import UnionType
from typing import Any

import httpx
import pytest
from gradio_client import Client

from tests.served import Served, served
from tests.tiny import PROMPT
from tests.tiny_backend import tiny_backend
from tests.visitor import api_events, api_result

REQUIRED = inspect.Parameter.empty
SIGNATURES: dict[str, dict[str, tuple[type | UnionType, Any]]] = {
    "/chat": {
        "message": (str, REQUIRED),
        "system_prompt": (str, ""),
        "max_new_tokens": (int, 128),
        "strategy": (str, "dynamic"),
        "temperature": (float, 0),
        "seed": (int, 0),
    },
    "/compare": {
        "prompt": (str, REQUIRED),
        "max_new_tokens": (int, 64),
        "strategies": (list, ["none", "dynamic"]),
        "rounds": (int, 1),
    },
    "/memory": {
        "seq_len": (int, REQUIRED),
        "batch_size": (int, 1),
        "config": (str, ""),
        "weights_dtype": (str, ""),
        "budget_gib": (float | None, None),
        "keep_free": (float, 0.1),
    },
}
JSON_TYPES: dict[object, str] = {str: "string", int: "integer", float: "number", list: "array"}
RUN_FIELDS = re.findall(
    r"\w+",
    "strategy round order warmup prompt_tokens new_tokens finish_reason status token_ids token_times_s "
    "positions_computed positions_read queue_s prepare_s prefill_s ttft_s tpot_s decode_s decode_tokens_per_s "
    "generation_s request_s cache_bytes cache_storage_bytes peak_bytes text error",
)

CONFIG = json.dumps(
    {
        "model_type": "llama",
        "vocab_size": 1000,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "torch_dtype": "bfloat16",
    }
)
FIRST: dict[str, dict[str, Any]] = {"chat": {"message": "hi"}, "compare": {"prompt": "hi"}, "memory": {"seq_len": 8}}


@pytest.fixture(scope="module")
def client(tiny_page: Served) -> Iterator[Client]:
    one = Client(tiny_page.url, verbose=False)
    yield one
    one.close()


@pytest.mark.parametrize("endpoint", sorted(SIGNATURES))
def test_an_endpoint_takes_these_parameters_with_these_defaults(http: httpx.Client, endpoint: str) -> None:
    told = http.get("/gradio_api/info").json()["named_endpoints"][endpoint]["parameters"]
    assert [one["parameter_name"] for one in told] == list(SIGNATURES[endpoint])
    for one in told:
        kind, default = SIGNATURES[endpoint][one["parameter_name"]]
        assert one["type"].get("type") == JSON_TYPES.get(kind), one
        assert one["parameter_has_default"] is (default is not REQUIRED), one
        if default is not REQUIRED:
            assert one["parameter_default"] == default


def test_chat_streams_its_events_in_order_and_ends_with_the_whole_run(page: Served, client: Client) -> None:
    page.puppet.answer = b"Mercury, Venus and Earth."
    told = list(client.submit(message="Name three planets.", api_name="/chat"))
    kinds = [event["event"] for event in told if event["event"] != "working"]
    tokens = [event for event in told if event["event"] == "token"]
    while kinds[0] == "waiting":
        kinds.pop(0)
    progress = kinds.count("prefill_progress")
    assert kinds == ["prompt_encoded", *["prefill_progress"] * progress, *["token"] * len(tokens), "finished"]
    assert [event["index"] for event in tokens] == list(range(26))
    assert "".join(event["text"] for event in tokens) == "Mercury, Venus and Earth."
    assert [event["cache_tokens"] for event in tokens] == list(range(37, 37 + 26))
    finished = told[-1]
    assert (finished["reason"], finished["text"], finished["new_tokens"]) == ("stop", "Mercury, Venus and Earth.", 26)
    assert finished["token_ids"] == [event["token_id"] for event in tokens]
    assert [event["event"] for event in told].count("finished") == 1


def test_chat_passes_on_what_it_is_given(page: Served, client: Client) -> None:
    page.puppet.answer = b"x" * 200
    settings = {"system_prompt": "Be brief.", "max_new_tokens": 7, "strategy": "none", "temperature": 0.0, "seed": 3}
    finished = list(client.submit(message=PROMPT, **settings, api_name="/chat"))[-1]
    assert (finished["reason"], finished["new_tokens"], finished["strategy"]) == ("length", 7, "none")
    prompt = f"<system>Be brief.\n<user>{PROMPT}\n<assistant>"
    assert finished["prompt_tokens"] == len(prompt)
    assert finished["cache_bytes"] == 0


def test_the_same_seed_gives_the_same_text_and_another_seed_another(page: Served, http: httpx.Client) -> None:
    def ids(seed: int) -> Any:
        settings = {"message": PROMPT, "max_new_tokens": 20, "temperature": 1.5, "seed": seed}
        return api_result(http, "chat", **settings)[1][0]["token_ids"]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)


def test_compare_ends_with_the_commands_document(page: Served, http: httpx.Client) -> None:
    told = [data[0] for _, data in api_events(http, "compare", prompt=PROMPT, max_new_tokens=8)]
    assert {event.get("event") for event in told[:-2]} == {"progress"}
    made = told[-1]
    assert list(made)[:1] == ["schema"]
    assert {"schema", "environment", "model", "request", "runs", "comparisons"} <= set(made)
    assert made["schema"] == 1
    assert {"prompt": PROMPT, "as_chat": False, "max_new_tokens": 8, "fixed_length": True}.items() <= made[
        "request"
    ].items()
    for run in made["runs"]:
        assert set(RUN_FIELDS) <= set(run)
    timed = [run for run in made["runs"] if not run["warmup"]]
    assert [run["strategy"] for run in timed] == ["none", "dynamic"]
    assert [len(run["token_ids"]) for run in timed] == [8, 8]
    assert timed[0]["token_ids"] == timed[1]["token_ids"]
    # N x P + N(N-1)/2 against P + N - 1.
    assert [sum(run["positions_computed"]) for run in timed] == [8 * 19 + 28, 19 + 7]
    metrics = [(one["baseline"], one["candidate"], one["metric"]) for one in made["comparisons"]]
    assert metrics == [("none", "dynamic", metric) for metric in ("generation_s", "ttft_s", "tpot_s", "request_s")]
    for one in made["comparisons"]:
        assert {"ratio", "low", "high", "coverage", "rounds", "same_output", "first_difference"} <= set(one)
        assert (one["low"], one["high"], one["coverage"], one["rounds"]) == (None, None, None, 1)
        assert (one["same_output"], one["first_difference"]) == (True, None)


def test_compare_takes_strategies_and_rounds(page: Served, client: Client) -> None:
    strategies = ["dynamic", "static", "none"]
    asked = {"prompt": PROMPT, "max_new_tokens": 4, "strategies": strategies, "rounds": 2}
    made = list(client.submit(**asked, api_name="/compare"))[-1]
    timed = [(run["round"], run["strategy"]) for run in made["runs"] if not run["warmup"]]
    assert sorted(timed) == sorted((number, key) for number in (1, 2) for key in strategies)
    assert {one["baseline"] for one in made["comparisons"]} == {"dynamic"}


def test_memory_answers_for_the_loaded_model_and_for_a_config(page: Served, client: Client) -> None:
    loaded = client.predict(seq_len=1000, batch_size=3, api_name="/memory")
    assert set(loaded) >= {"model", "request", "cache", "layers", "crossover_tokens"}
    assert loaded["model"]["name"] == "tiny"
    # 2 x 4 layers x 2 heads x 16 x 4 bytes
    assert loaded["cache"]["bytes_per_token"] == 1024
    assert loaded["cache"]["held_bytes"] == 3 * 1000 * 1024
    assert len(loaded["layers"]) == 4
    assert loaded["weights"] == {"bytes": loaded["model"]["weight_bytes"], "how": "as loaded: float32"}
    assert loaded["capacity"]["budget_source"] in ("this machine", "this container", "this machine's accelerator")
    pasted = client.predict(seq_len=10, config=CONFIG, api_name="/memory")
    assert pasted["cache"]["held_bytes"] == 2 * 3 * 4 * 32 * 2 * 10
    assert (pasted["capacity"]["budget_source"], pasted["capacity"]["budget_bytes"]) == ("default", 80 * 2**30)
    given = client.predict(seq_len=10, config=CONFIG, budget_gib=1, weights_dtype="int4", api_name="/memory")
    assert (given["capacity"]["budget_source"], given["weights"]["how"]) == ("given", "in int4")


def test_a_model_that_is_not_there_yet_is_said_in_words_and_memory_of_a_config_works_without_it() -> None:
    with closing(tiny_backend()) as backend, served(backend) as page, httpx.Client(base_url=page.url) as http:
        refusals = {name: api_result(http, name, **asked) for name, asked in FIRST.items()}
        with_config = api_result(http, "memory", seq_len=10, config=CONFIG)
    for event, told in refusals.values():
        assert event == "error"
        assert "still loading" in told["error"]
    assert with_config[0] == "complete"
