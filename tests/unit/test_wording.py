"""Headlines and scope lines: words as strong as the evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.summary import summarise
from kvdemo.questions.faster.words import headline, scope
from tests.made_up_model import ENVIRONMENT, MODEL, ROWS
from tests.scripted import even_times, record


def result_of(
    seconds: dict[str, list[float]],
    *,
    tokens: int = 120,
    prompt: str = "Why?",
    ids: dict[str, list[int]] | None = None,
    dtype: str = "float32",
    spec: dict[str, Any] | None = None,
    **options: Any,
) -> ComparisonResult:
    """A comparison whose arms took these totals, one per round."""
    runs = [
        record(
            strategy,
            even_times(total / tokens, total / tokens, tokens),
            (ids or {}).get(strategy),
            round=number,
            order=1,
            cache_bytes=0 if strategy == "none" else 5_662_310,
        )
        for strategy, totals in seconds.items()
        for number, total in enumerate(totals, 1)
    ]
    fields = {"prompt": prompt, "strategies": tuple(seconds), "rounds": len(next(iter(seconds.values())))}
    return summarise(
        CompareSpec(**{**fields, **(spec or {})}),
        runs,
        model=replace(MODEL, dtype=dtype),
        environment=ENVIRONMENT,
        strategies=ROWS,
        **options,
    )


def test_six_rounds_give_times_ratio_interval_tokens_and_bytes() -> None:
    result = result_of({"none": [17.3] * 5 + [18.4], "dynamic": [4.1] * 5 + [4.08]})
    pieces = headline(result)
    assert plain(pieces) == (
        "4.1 s with the cache, 17.3 s without: 4.2 times faster (4.2 to 4.5 in 6 paired rounds)."
        " Same 120 tokens. It held 5.4 MiB."
    )
    assert [text for text, strong in pieces if strong] == [
        "4.1 s with the cache, 17.3 s without: 4.2 times faster",
        "Same 120 tokens.",
    ]


def test_one_round_is_a_first_look() -> None:
    words = plain(headline(result_of({"none": [4.2], "dynamic": [1.0]})))
    assert words == (
        "First look: 4.2 times faster in one round. Same 120 tokens. It held 5.4 MiB."
        " Enough to go on, not enough to decide: run 6 rounds."
    )


def test_three_rounds_are_called_a_range() -> None:
    words = plain(headline(result_of({"none": [4.0, 4.2, 4.4], "dynamic": [1.0] * 3})))
    assert words.startswith("First look: 4.2 times faster in 3 rounds (range 4.0 to 4.4).")
    assert "run 6 rounds" in words


def test_an_interval_around_one_is_no_difference() -> None:
    result = result_of({"none": [0.97, 1.0, 1.01, 1.01, 1.02, 1.06], "dynamic": [1.0] * 6}, tokens=20)
    assert plain(headline(result)).startswith(
        "No difference we can see: 1.01 times (0.97 to 1.06 in 6 paired rounds)."
        " At 20 new tokens there is little to recompute; try a longer prompt or answer."
    )


def test_slower_is_said_first() -> None:
    words = plain(headline(result_of({"none": [2.0] * 6, "dynamic": [2.5] * 6})))
    assert words.startswith(
        "The cache made this slower: 2.5 s with the cache, 2.0 s without: 1.25 times as long (1.25 to 1.25 in 6 paired rounds)."
    )


def test_the_cache_is_the_subject_even_when_it_is_the_baseline() -> None:
    words = plain(headline(result_of({"dynamic": [1.0] * 6, "none": [4.0] * 6})))
    assert words.startswith("1.0 s with the cache, 4.0 s without: 4.0 times faster (4.0 to 4.0 in 6 paired rounds).")


def test_the_demonstration_prompt_is_named_as_one() -> None:
    words = plain(headline(result_of({"none": [4.0] * 6, "dynamic": [1.0] * 6}, prompt="The red cat was ")))
    assert words.endswith("This is the demonstration prompt. Your decision needs your prompts.")


def test_two_caches_are_called_by_their_labels_and_the_rest_follow() -> None:
    words = plain(headline(result_of({"none": [4.0] * 6, "dynamic": [1.0] * 6, "fp8": [2.0] * 6})))
    assert words.startswith("1.0 s with dynamic cache, 4.0 s without: 4.0 times faster")
    assert words.endswith("Beside no cache: 2.0 times faster with 8-bit float cache (2.0 to 2.0).")


def test_a_fault_is_called_a_fault_and_low_precision_is_not() -> None:
    ids = {"none": [1] * 120, "dynamic": [1] * 31 + [2] * 89}
    seconds = {"none": [4.0] * 6, "dynamic": [1.0] * 6}
    assert "differ from token 32 on: in greedy float32 this is a fault." in plain(headline(result_of(seconds, ids=ids)))
    words = plain(headline(result_of(seconds, ids=ids, dtype="bfloat16")))
    assert "differ from token 32 on: in bfloat16 the two round differently. This is no test of quality." in words


def test_a_lossy_cache_says_why_the_tokens_differ() -> None:
    ids = {"none": [1] * 120, "fp8": [2] * 120}
    words = plain(headline(result_of({"none": [4.0] * 6, "fp8": [1.0] * 6}, ids=ids)))
    assert "differ from token 1 on: a lossy cache may change them." in words
    words = plain(headline(result_of({"none": [4.0] * 6, "fp8": [1.0] * 6}, ids=ids, gaps={"fp8": 0.25})))
    assert "from token 1 on (largest difference of logits up to there 0.25): a lossy cache" in words


def test_different_counts_are_said_and_compared_per_token() -> None:
    runs = [
        record(key, even_times(0.05, decode_s / (count - 1), count), round=number, order=1)
        for number in range(1, 7)
        for key, decode_s, count in (("none", 8.2, 42), ("dynamic", 3.2, 65))
    ]
    result = summarise(
        CompareSpec("Why?", fixed_length=False, rounds=6), runs, model=MODEL, environment=ENVIRONMENT, strategies=ROWS
    )
    words = plain(headline(result))
    assert words.startswith("20.0 tok/s with the cache, 5.0 tok/s without: 4.0 times faster per token (4.0 to 4.0 in 6")
    assert "The answers have 65 and 42 tokens, so the time per token is compared." in words


def test_a_gain_that_the_complete_request_lacks_gets_a_sentence() -> None:
    runs = [
        record(key, even_times(total / 10, total / 10, 10), round=number, order=1, request_s=30.0)
        for number in range(1, 7)
        for key, total in (("none", 4.0), ("dynamic", 1.0))
    ]
    result = summarise(CompareSpec("Why?", rounds=6), runs, model=MODEL, environment=ENVIRONMENT, strategies=ROWS)
    assert "The complete request shows no such gain: 1.00 times." in plain(headline(result))


@pytest.mark.parametrize(
    ("reason", "spec", "words"),
    [
        ("stopped", {"rounds": 9}, "Stopped after 6 of 9 rounds."),
        ("clear", {"time_budget_s": 60}, "Clear after 6 rounds: the interval is within 5 % of the ratio."),
        ("budget", {"time_budget_s": 60}, "The time budget ended after 6 rounds"),
    ],
)
def test_the_headline_says_why_the_rounds_ended(reason: str, spec: dict[str, Any], words: str) -> None:
    result = result_of({"none": [4.0] * 6, "dynamic": [1.0] * 6}, spec=spec, stopped_because=reason)
    assert words in plain(headline(result))


def test_without_a_whole_round_it_says_what_went_wrong() -> None:
    runs = [record("none", status="failed", finish_reason=None, error="out of memory", round=0, warmup=True)]
    result = summarise(CompareSpec("Why?"), runs, model=MODEL, environment=ENVIRONMENT, strategies=ROWS)
    words = plain(headline(result))
    assert words.startswith(
        "No round was completed, so there is nothing to compare. The run with no cache failed: out of memory."
    )


def test_the_scope_line_names_model_dtype_machine_and_prompt() -> None:
    result = result_of({"none": [4.0], "dynamic": [1.0]})
    assert scope(result) == (
        "SmolLM2-135M-Instruct, float32, 2 CPU cores, 4 prompt tokens. Other models, machines and lengths give other numbers."
    )
    on_gpu = replace(
        result, model=replace(MODEL, device="cuda:0"), environment=replace(ENVIRONMENT, accelerator="NVIDIA T4")
    )
    assert "float32, NVIDIA T4, 4 prompt" in scope(on_gpu)


def test_a_further_arm_that_is_slower_is_said_to_take_longer() -> None:
    words = plain(headline(result_of({"dynamic": [1.0] * 6, "static": [0.5] * 6, "fp8": [1.25] * 6})))
    assert words.startswith("500 ms with static cache, 1.0 s with dynamic cache: 2.0 times faster")
    assert words.endswith("Beside dynamic cache: 1.25 times as long with 8-bit float cache (1.25 to 1.25).")
