"""What a run is admitted for: the cache that it will really reserve, against the memory that is free for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvdemo.caches.prefix import KeptCaches
from kvdemo.caches.strategies import strategy_of
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Finished, PromptEncoded
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.admission import checked_slots
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from kvdemo.planner.needs import CacheNeeds
from tests.tiny import tiny_loaded

PER_TOKEN = 2 * 4 * 2 * 16 * 4  # keys and values, layers, heads, head_dim, float32


def windowed() -> Any:
    """Four layers that keep 8 tokens each, where the facts speak of what one more token adds below the window."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        sliding_window=8,
    )
    return MistralForCausalLM(config).eval()


def planned(loaded: LoadedModel) -> LoadedModel:
    return dataclasses.replace(loaded, cache_bytes=CacheNeeds(loaded.model))


@pytest.fixture(scope="module")
def tiny() -> Any:
    loaded = planned(tiny_loaded())
    yield loaded
    loaded.thread.close()


def admitted(loaded: LoadedModel, key: str, new_tokens: int, free: int, held_bytes: int = 0) -> int:
    request = GenerationRequest("x", new_tokens, key)
    return checked_slots(loaded, request, strategy_of(key), 1, held_bytes=held_bytes, free_bytes=lambda _device: free)


def test_a_window_is_not_counted_at_full_length() -> None:
    loaded = planned(tiny_loaded(windowed()))
    try:
        assert admitted(loaded, "dynamic", 500, 7 * PER_TOKEN) == 500
        assert admitted(loaded, "static", 500, 8 * PER_TOKEN) == 500
        with pytest.raises(InvalidRequest, match=r"8\.0 KiB and 7\.0 KiB are free") as refused:
            admitted(loaded, "static", 500, 7 * PER_TOKEN)
        assert refused.value.field == "max_new_tokens"
    finally:
        loaded.thread.close()


def test_an_8_bit_cache_is_counted_in_bytes(tiny: LoadedModel) -> None:
    scales = 4 * 2 * 4  # two float32 for each layer
    assert admitted(tiny, "fp8", 400, 100 * PER_TOKEN + scales) == 400
    with pytest.raises(InvalidRequest, match="are free"):
        admitted(tiny, "fp8", 400, 100 * PER_TOKEN + scales - 1)
    with pytest.raises(InvalidRequest, match="are free"):
        admitted(tiny, "dynamic", 400, 399 * PER_TOKEN)


def test_a_compiled_run_is_counted_with_all_the_slots_that_it_reserves(tiny: LoadedModel) -> None:
    assert admitted(tiny, "static-compiled", 20, 512 * PER_TOKEN) == 512
    with pytest.raises(InvalidRequest, match="are free"):
        admitted(tiny, "static-compiled", 20, 511 * PER_TOKEN)


def test_a_model_that_cannot_be_traced_is_counted_at_full_width() -> None:
    loaded = tiny_loaded()
    try:
        assert admitted(loaded, "fp8", 400, 400 * PER_TOKEN) == 400
        with pytest.raises(InvalidRequest, match="are free"):
            admitted(loaded, "fp8", 400, 399 * PER_TOKEN)
    finally:
        loaded.thread.close()


def test_what_is_kept_for_this_conversation_is_not_needed_twice(tiny: LoadedModel) -> None:
    assert admitted(tiny, "dynamic", 300, 100 * PER_TOKEN, held_bytes=200 * PER_TOKEN) == 300
    with pytest.raises(InvalidRequest, match="are free"):
        admitted(tiny, "dynamic", 301, 100 * PER_TOKEN, held_bytes=200 * PER_TOKEN)


@pytest.mark.parametrize(("free_tokens", "reserved"), [(600, 512), (100, 40)])
def test_a_kept_cache_reserves_for_later_turns_only_where_that_fits(
    tiny: LoadedModel, free_tokens: int, reserved: int
) -> None:
    kept = KeptCaches(lambda _total: 10**9, 900)
    request = GenerationRequest(tuple(range(1, 32)), 10, "static")
    events = list(
        stream(
            tiny,
            request,
            turnstile=Turnstile(1),
            kept=kept,
            owner="me",
            free=lambda _device: free_tokens * PER_TOKEN,
        )
    )
    encoded = next(event for event in events if isinstance(event, PromptEncoded))
    assert encoded.reserved_tokens == reserved
    assert isinstance(events[-1], Finished)
    assert kept.storage_bytes("me") == reserved * PER_TOKEN
