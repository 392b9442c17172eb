"""The strategies table: every row that can run here, run; every row that cannot, with its reason."""

from __future__ import annotations

import json

import pytest

from kvdemo.caches.strategies import STRATEGIES, available_strategy, rows, slots_for, strategy_of
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Finished
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from kvdemo.palette import of_strategy
from tests.known import ended, known
from tests.tiny import PROMPT

KEYS = [
    "none",
    "dynamic",
    "static",
    "static-compiled",
    "offloaded",
    "offloaded-static",
    "fp8",
    "quanto-4bit",
    "quanto-2bit",
    "hqq-8bit",
    "hqq-4bit",
]


def greedy(loaded: LoadedModel, key: str, new_tokens: int = 20) -> tuple[int, ...]:
    *_, last = stream(loaded, GenerationRequest(PROMPT, new_tokens, key, fixed_length=True), turnstile=Turnstile(2))
    assert isinstance(last, Finished)
    return known(last.record.token_ids)


def test_the_keys_are_the_ones_that_others_rely_on() -> None:
    assert [strategy.key for strategy in STRATEGIES] == KEYS


def test_every_strategy_has_a_colour_and_no_two_of_one_comparison_look_alike() -> None:
    looks = {key: of_strategy(key) for key in KEYS}
    apart = ["none", "dynamic", "static", "static-compiled", "fp8", "offloaded"]
    assert len({(looks[key].fill, looks[key].dash, looks[key].marker) for key in apart}) == len(apart)


@pytest.mark.parametrize("key", [key for key in KEYS if key != "static-compiled"])
def test_each_strategy_equals_the_uncached_run_or_is_lossy_or_says_why_it_cannot_run(
    tiny: LoadedModel, key: str
) -> None:
    strategy = strategy_of(key)
    if strategy.reason(tiny.model) is not None:
        with pytest.raises(InvalidRequest, match="is not available here"):
            greedy(tiny, key)
    elif strategy.exact:
        assert greedy(tiny, key) == greedy(tiny, "none")
    else:
        assert len(greedy(tiny, key)) == 20


@pytest.mark.slow
def test_the_compiled_static_cache_equals_the_uncached_run_and_can_be_stopped(tiny: LoadedModel) -> None:
    if (reason := strategy_of("static-compiled").reason(tiny.model)) is not None:
        pytest.skip(reason)
    assert greedy(tiny, "static-compiled") == greedy(tiny, "none")
    running = stream(tiny, GenerationRequest(PROMPT, 400, "static-compiled", fixed_length=True), turnstile=Turnstile(2))
    for _ in range(6):
        next(running)
    running.close()
    assert greedy(tiny, "static-compiled") == greedy(tiny, "none")


def test_reasons_name_what_is_missing(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {row.key: row.unavailable_reason for row in rows(tiny.model)}
    assert told["none"] is told["dynamic"] is told["static"] is told["fp8"] is None
    assert "runs on cpu" in known(told["offloaded"])
    monkeypatch.setenv("PATH", "")
    assert "C++ compiler" in known(strategy_of("static-compiled").reason(tiny.model))


def test_a_model_with_sliding_layers_is_refused_a_quantised_cache_with_the_kinds_named() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    sliding = MistralForCausalLM(
        MistralConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            sliding_window=8,
        )
    )
    with pytest.raises(InvalidRequest, match="this model has sliding_attention layers"):
        available_strategy("fp8", sliding)


def test_a_compiled_cache_reserves_a_power_of_two_of_at_least_512_and_another_just_enough() -> None:
    compiled, static = strategy_of("static-compiled"), strategy_of("static")
    assert [slots_for(compiled, needed) for needed in (1, 512, 513, 1025)] == [512, 512, 1024, 2048]
    assert slots_for(static, 513) == 513


def test_a_short_run_after_a_long_one_reserves_only_what_it_needs(tiny: LoadedModel) -> None:
    def reserved(new_tokens: int) -> int:
        last = ended(stream(tiny, GenerationRequest(PROMPT, new_tokens, "static"), turnstile=Turnstile(2)))
        return known(last.record.cache_bytes)

    assert [reserved(10), reserved(100)] == [28 * 1024, 118 * 1024]
    assert reserved(10) == 28 * 1024


def test_a_row_says_in_code_and_in_settings_how_its_cache_is_made(tiny: LoadedModel) -> None:
    told = {row.key: (row.code, json.loads(row.settings or '""')) for row in rows(tiny.model)}
    assert told["none"] == ("", {"use_cache": False})
    assert told["dynamic"] == ("DynamicCache(config=model.config)", {"use_cache": True})
    static = {"use_cache": True, "cache_implementation": "static"}
    code = "StaticCache(config=model.config, max_cache_len={slots})"
    assert told["static"] == (code, {**static, "disable_compile": True})
    assert told["static-compiled"] in ((code, None), ("", ""))  # a file cannot ask for compiling on a CPU
    fp8 = {"use_cache": True, "cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    assert told["fp8"] == ('QuantizedCache(config=model.config, backend="fp8")', fp8)
    assert told["offloaded"] == ("", "")  # it cannot run here


@pytest.mark.parametrize(
    ("kv_heads", "head_dim", "group", "packed_group"),
    [(3, 64, 64, 32), (8, 64, 64, 64), (2, 16, 32, 16), (32, 80, 64, 64), (1, 256, 64, 64)],
)
def test_groups_divide_what_every_token_brings(kv_heads: int, head_dim: int, group: int, packed_group: int) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=kv_heads * head_dim, num_attention_heads=kv_heads, head_dim=head_dim)
    for key, expected in (("quanto-4bit", group), ("hqq-8bit", group), ("hqq-4bit", packed_group)):
        maker = strategy_of(key).cache
        assert maker is not None
        assert maker.settings(config)["cache_config"]["q_group_size"] == expected
