"""A comparison as JSON: the agreed keys, strict numbers, and the same comparison when it is opened again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, Literal

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.documents import document, dumps, from_document, loads
from kvdemo.experiments.json_documents import decoded
from kvdemo.experiments.summary import summarise
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.faster.words import headline, scope
from tests.made_up import growth_of, prefix_of, prompt_set_of
from tests.made_up_model import ENVIRONMENT, MODEL, ROWS
from tests.scripted import even_times, record


def result_of(rounds: int = 6) -> ComparisonResult:
    steps = {"none": 0.4, "dynamic": 0.1}
    runs = [
        record(
            key,
            even_times(step, step, 5),
            round=number,
            order=1,
            warmup=number == 0,
            text='<b>=1+1</b>, "ok"\r\n😀',
            positions_computed=(4, 1, 1, 1, 1),
            cache_bytes_by_token=((1, 2),) * 5,
            cache_bytes_by_device={"cpu": 10},
        )
        for number in range(rounds + 1)
        for key, step in steps.items()
    ]
    return summarise(
        CompareSpec("The red cat was", rounds=rounds), runs, model=MODEL, environment=ENVIRONMENT, strategies=ROWS
    )


def test_the_agreed_keys_are_there() -> None:
    made = document(result_of())
    assert made["schema"] == 1
    assert {"environment", "model", "request", "runs", "comparisons"} <= set(made)
    assert {"prompt", "as_chat", "max_new_tokens", "fixed_length"} <= set(made["request"])
    assert {
        "strategy", "round", "order", "warmup", "prompt_tokens", "new_tokens", "finish_reason", "status", "token_ids",
        "token_times_s", "positions_computed", "positions_read", "queue_s", "prepare_s", "prefill_s", "ttft_s",
        "tpot_s", "decode_s", "decode_tokens_per_s", "generation_s", "request_s", "cache_bytes",
        "cache_storage_bytes", "peak_bytes", "text", "error",
    } <= set(made["runs"][0])  # fmt: skip
    assert {
        "baseline", "candidate", "metric", "ratio", "low", "high", "coverage", "rounds", "same_output",
        "first_difference",
    } <= set(made["comparisons"][0])  # fmt: skip
    assert [item["metric"] for item in made["comparisons"]] == ["generation_s", "ttft_s", "tpot_s", "request_s"]


def test_a_first_look_has_no_interval() -> None:
    first = document(result_of(rounds=1))["comparisons"][0]
    assert (first["low"], first["high"], first["coverage"], first["rounds"]) == (None, None, None, 1)


def test_opened_again_it_is_the_same_comparison() -> None:
    result = result_of()
    again = from_document(loads(dumps(document(result))))
    assert again == result
    assert document(again) == document(result)
    assert (headline(again), scope(again)) == (headline(result), scope(result))


def test_a_document_from_before_it_was_recorded_opens_and_does_not_say_where_it_was_measured() -> None:
    older = document(result_of())
    del older["environment"]["on_page"]
    assert from_document(loads(dumps(older))).environment.on_page is None


def test_where_a_result_was_measured_comes_back_from_its_document() -> None:
    made = replace(result_of(), environment=replace(ENVIRONMENT, on_page=True))
    assert document(made)["environment"]["on_page"] is True
    assert from_document(loads(dumps(document(made)))) == made


def test_nan_and_infinity_become_null_and_small_numbers_stay_exact() -> None:
    result = summarise(
        CompareSpec("Why?"),
        [record("none", (1.785e-08,), round=1, queue_s=math.nan, peak_bytes=None, request_s=math.inf)],
        model=MODEL,
        environment=ENVIRONMENT,
        strategies=ROWS,
    )
    text = dumps(document(result))
    run = json.loads(text, parse_constant=pytest.fail)["runs"][0]
    assert (run["queue_s"], run["request_s"], run["token_times_s"]) == (None, None, [1.785e-08])


BROKEN: list[tuple[str, Any, str]] = [
    ("schema", 2, "schema: this version opens"),
    ("runs", {}, "runs: must be a list"),
    ("runs.0.token_times_s", [1, "x", 3, 4, 5], r"runs\[0\]\.token_times_s\[1\]: must be a number"),
    ("runs.0.token_times_s", [3, 2, 1, 4, 5], "must not go backwards"),
    ("runs.0.token_times_s", [1], "one time per token"),
    ("runs.1.status", "fine", r"runs\[1\]\.status: is not one of ok"),
    ("runs.1.status", ["ok"], r"runs\[1\]\.status: is not one of ok"),
    ("runs.1.finish_reason", "bored", r"runs\[1\]\.finish_reason: is not one of stop, stop_string, length"),
    ("runs.0.peak_kind", "guessed", r"runs\[0\]\.peak_kind: is not one of allocator"),
    ("strategies.0.keeping", "maybe", r"strategies\[0\]\.keeping: is not one of crop, copy, append, no"),
    ("runs.0.strategy", "warp", "not among the strategies"),
    ("runs.0.prompt_tokens", 4.5, "must be a whole number"),
    ("runs.0.prompt_tokens", 10**400, "usual size"),
    ("runs.0.prompt_tokens", True, "must be a whole number"),
    ("runs.0.text", "\ud800", "surrogate"),
    ("runs.0.cache_bytes_by_device", [], "must be an object"),
    ("request.max_new_tokens", 0, r"request\.max_new_tokens: must be between 1"),
    ("request.prompt", "", r"request\.prompt: is empty"),
    ("model", None, "model: must be an object"),
    ("environment.torch", 3, r"environment\.torch: must be text"),
    ("comparisons.0.metric", "luck", "is not one of generation_s"),
    ("comparisons.0.candidate", "warp", "not among the strategies"),
    ("comparisons.0.ratio", math.nan, "usual size"),
    ("stopped_because", "tired", "stopped_because: is not one of"),
]


@pytest.mark.parametrize(("where", "value", "words"), BROKEN)
def test_a_mistake_in_a_document_is_named_by_its_place(where: str, value: Any, words: str) -> None:
    made: Any = json.loads(dumps(document(result_of())))
    *path, last = [int(part) if part.isdigit() else part for part in where.split(".")]
    inner = made
    for part in path:
        inner = inner[part]
    inner[last] = value
    with pytest.raises(InvalidRequest, match=words):
        from_document(made)


def test_a_missing_key_is_named() -> None:
    made = document(result_of())
    del made["model"]["dtype"]
    with pytest.raises(InvalidRequest, match=r"model\.dtype: is missing"):
        from_document(made)


@pytest.mark.parametrize("text", ["", "[1", "[" * 100_000, b"\xff\xfe\x00", "9" * 5000])
def test_text_that_is_not_json_is_refused_in_words(text: str | bytes) -> None:
    with pytest.raises(InvalidRequest, match="file: is not"):
        from_document(loads(text))


def test_broken_json_is_named_by_line_and_column() -> None:
    with pytest.raises(InvalidRequest, match="line 2, column 6"):
        loads('{"a": 1,\n "b" 2}')


def test_times_too_small_for_a_speed_still_make_strict_json() -> None:
    tiny = [record(key, (0.0, 5e-324, 1e-323), round=1, order=1) for key in ("none", "dynamic")]
    made = document(summarise(CompareSpec("x"), tiny, model=MODEL, environment=ENVIRONMENT, strategies=ROWS))
    assert from_document(loads(dumps(made))).runs[0].token_times_s == (0.0, 5e-324, 1e-323)


@pytest.mark.parametrize(
    ("made", "where", "words"),
    [
        (growth_of, ("stopped_because",), "stopped_because: is not one of points, budget, stopped, limit"),
        (prompt_set_of, ("stopped_because",), "stopped_because: is not one of prompts, budget, stopped, limit"),
        (prefix_of, ("stopped_because",), "stopped_because: is not one of questions, budget, stopped, limit, failed"),
        (prefix_of, ("pairs", 0, "first"), r"pairs\[0\]\.first: is not one of fresh, kept"),
        (prefix_of, ("pairs", 0, "kept", "status"), r"pairs\[0\]\.kept\.status: is not one of ok, cancelled"),
        (growth_of, ("points", 0, "runs", 0, "status"), r"points\[0\]\.runs\[0\]\.status: is not one of ok"),
    ],
)
def test_a_word_that_no_document_has_is_named_by_its_place_in_every_kind(
    made: Any, where: tuple[str | int, ...], words: str
) -> None:
    whole: Any = json.loads(dumps(any_document(made())))
    inner = whole
    for part in where[:-1]:
        inner = inner[part]
    assert inner[where[-1]]
    inner[where[-1]] = "tired"
    with pytest.raises(InvalidRequest, match=words):
        from_any_document(whole)


@pytest.mark.parametrize("value", ["three", 1, None, ["one"], True])
def test_a_closed_vocabulary_is_read_word_for_word(value: object) -> None:
    assert decoded(Literal["one", "two"], "two", "here") == "two"
    assert decoded(Literal["one", "two"] | None, None, "here") is None
    with pytest.raises(InvalidRequest, match="here: is not one of one, two"):
        decoded(Literal["one", "two"], value, "here")


def test_a_long_document_is_written_without_spaces_and_reads_the_same() -> None:
    long = {"numbers": list(range(300_000))}
    assert len(dumps(long)) < 0.7 * len(json.dumps(long, indent=2))
    assert loads(dumps(long)) == long
    assert "\n" in dumps({"short": [1]})
