"""Quantised caches of optimum-quanto and hqq: that they run at any length, and what they weigh. `make test-quantized` runs it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator

import pytest

from kvdemo.caches.footprint import layers_of
from kvdemo.caches.prefix import KeptCaches
from kvdemo.caches.strategies import strategy_of
from kvdemo.experiments.summary import first_difference
from kvdemo.facts.events import Finished
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.logits import largest_gap
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from tests.known import known, returned
from tests.tiny import PROMPT, tiny_loaded

MISSING = [name for name in ("hqq", "optimum") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (make test-quantized)")

BITS = {"quanto-4bit": 4, "quanto-2bit": 2, "hqq-8bit": 8, "hqq-4bit": 4}
TOKEN_VALUES = 2 * 16  # KV heads x head_dim of the tiny model: what one token adds to a layer's keys
RESIDUAL = 128  # tokens that transformers keeps in full precision before it quantises them together


@pytest.fixture(scope="module")
def odd_heads() -> Iterator[LoadedModel]:
    """Three KV heads of 64, as the default model has: an odd number of groups for hqq to pack in pairs."""
    loaded = tiny_loaded(hidden_size=192, num_attention_heads=3, num_key_value_heads=3, num_hidden_layers=2)
    yield loaded
    loaded.thread.close()


def run(loaded: LoadedModel, key: str, prompt: str = PROMPT, new_tokens: int = 20, **options: object) -> RunRecord:
    request = GenerationRequest(prompt, new_tokens, key, fixed_length=True)
    *_, last = stream(loaded, request, turnstile=Turnstile(2), **options)  # type: ignore[arg-type]
    assert isinstance(last, Finished)
    return last.record


@pytest.mark.parametrize("key", BITS)
@pytest.mark.parametrize("prompt_tokens", [1, 2, 19, 40])
def test_each_runs_at_even_and_odd_lengths(
    tiny: LoadedModel, odd_heads: LoadedModel, key: str, prompt_tokens: int
) -> None:
    for loaded in (tiny, odd_heads):
        record = run(loaded, key, "x" * prompt_tokens, 5)
        assert (record.status, record.new_tokens, record.cache_tokens) == ("ok", 5, prompt_tokens + 4)


@pytest.mark.parametrize("key", BITS)
def test_packed_values_scales_and_the_residual_are_all_counted(tiny: LoadedModel, key: str) -> None:
    group = {"hqq-4bit": 16}.get(key, 32)

    def keys_bytes(quantised: int, residual: int) -> int:
        values = quantised * TOKEN_VALUES
        return values * BITS[key] // 8 + values // group * 2 * 4 + residual * TOKEN_VALUES * 4

    long = run(tiny, key, "x" * 200, RESIDUAL + 12)  # the residual was quantised once, and 11 tokens are new since
    for record, quantised, residual in ((run(tiny, key, "x" * 20, 20), 20, 19), (long, 200 + RESIDUAL, 11)):
        layer = record.cache_layers[0]
        assert (layer.keys_bytes, layer.values_bytes) == (keys_bytes(quantised, residual),) * 2
        assert layer.other_bytes == layer.states_bytes == 0
        assert record.cache_bytes == 4 * layer.held_bytes
        assert known(record.cache_storage_bytes) >= known(record.cache_bytes)


@pytest.mark.parametrize("key", BITS)
def test_fewer_bits_lie_further_from_the_uncached_run(tiny: LoadedModel, key: str) -> None:
    prompt = tuple(PROMPT.encode())
    made = known(run(tiny, "none").token_ids)
    gap = known(returned(largest_gap(tiny, Turnstile(1), prompt, made[:10], "none", key)))
    assert gap > 1e-3
    assert (
        first_difference(made, known(run(tiny, key).token_ids)) != 0
    )  # the first token comes before anything was quantised


@pytest.mark.parametrize("key", BITS)
def test_a_kept_cache_is_continued_and_never_cropped(tiny: LoadedModel, key: str) -> None:
    kept = KeptCaches(lambda _: 2**30, 900.0)
    assert strategy_of(key).keeping == "append"
    first = run(tiny, key, "x" * 19, 5, kept=kept, owner="one")
    sequence = "x" * 19 + "".join(chr(token) for token in known(first.token_ids) if token < 128)
    if len(sequence) == 24:
        assert run(tiny, key, sequence + "more", 5, kept=kept, owner="one").reused_tokens == 23
    other = run(tiny, key, "x" * 10 + "y" * 30, 5, kept=kept, owner="one")
    assert (other.status, other.reused_tokens) == ("ok", 0)


@pytest.mark.parametrize("key", BITS)
def test_the_code_and_the_settings_of_a_row_make_the_same_layers(tiny: LoadedModel, key: str) -> None:
    from transformers import QuantizedCache

    row = strategy_of(key).row(tiny.model)
    shown = eval(row.code, {"QuantizedCache": QuantizedCache, "model": tiny.model})
    settings = json.loads(row.settings)["cache_config"]
    for cache in (shown, strategy_of(key).make(tiny.model.config, 64)):
        for layer in layers_of(cache):
            assert (layer.nbits, layer.q_group_size) == (settings["nbits"], settings["q_group_size"])
