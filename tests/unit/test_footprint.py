"""What a live cache weighs, against sizes worked out by hand."""

from __future__ import annotations

from typing import Any

import torch

from kvdemo.caches.footprint import cached_tokens, weigh, weigh_layers


def config(**changes: Any) -> Any:
    from transformers import LlamaConfig

    fields = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_size": 32}
    return LlamaConfig(**{**fields, "vocab_size": 64, "intermediate_size": 32, **changes})


def sliding_config(window: int) -> Any:
    from transformers import MistralConfig

    return MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=window,
    )


def fill(cache: Any, tokens: int, *, at_once: bool = True, heads: int = 2, dim: int = 16) -> Any:
    for step in [tokens] if at_once else [1] * tokens:
        for layer in range(2):
            cache.update(torch.ones(1, heads, step, dim), torch.ones(1, heads, step, dim), layer)
    return cache


def test_a_dynamic_cache_holds_keys_and_values_of_every_token() -> None:
    from transformers import DynamicCache

    cache = fill(DynamicCache(config=config()), 26)
    weight = weigh(cache)
    assert weight.held_bytes == weight.storage_bytes == 2 * 2 * 2 * 26 * 16 * 4
    assert weight.by_device == {"cpu": weight.held_bytes}
    assert cached_tokens(cache) == 26
    assert [(layer.keys_bytes, layer.values_bytes) for layer in weigh_layers(cache)] == [(26 * 2 * 16 * 4,) * 2] * 2


def test_a_static_cache_holds_its_slots_and_counts_its_tokens() -> None:
    from transformers import StaticCache

    cache = fill(StaticCache(config=config(), max_cache_len=100), 26)
    assert weigh(cache).held_bytes == 2 * 2 * 2 * 100 * 16 * 4
    assert cached_tokens(cache) == 26


def test_a_sliding_layer_holds_its_window_less_one_but_keeps_the_storage_of_a_long_prompt() -> None:
    from transformers import DynamicCache

    cache = fill(DynamicCache(config=sliding_config(8)), 26)
    per_token = 2 * 2 * 2 * 16 * 4
    assert weigh(cache).held_bytes == 7 * per_token
    assert weigh(cache).storage_bytes == 26 * per_token
    stepped = weigh(fill(cache, 1, at_once=False))
    assert (stepped.held_bytes, stepped.storage_bytes) == (7 * per_token, 8 * per_token)


def test_an_fp8_cache_holds_a_byte_per_element_and_two_scales_per_layer() -> None:
    from transformers import QuantizedCache

    assert weigh(fill(QuantizedCache(backend="fp8", config=config()), 26)).held_bytes == 3_328 + 2 * 8


def test_a_cropped_cache_shows_less_and_still_keeps_its_storage() -> None:
    from transformers import DynamicCache

    cache = fill(DynamicCache(config=config()), 26)
    cache.crop(-20)
    per_token = 2 * 2 * 2 * 16 * 4
    assert (weigh(cache).held_bytes, weigh(cache).storage_bytes) == (6 * per_token, 26 * per_token)


def test_states_of_a_model_without_attention_are_counted_as_states() -> None:
    from transformers import DynamicCache, MambaConfig, MambaForCausalLM

    model = MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4)).eval()
    with torch.inference_mode():
        cache = model(torch.tensor([[1, 2, 3]]), use_cache=True, cache=DynamicCache(config=model.config)).cache
    layers = weigh_layers(cache)
    assert [layer.states_bytes for layer in layers] == [(32 * 4 + 32 * 4) * 4] * 2
    assert [layer.keys_bytes for layer in layers] == [0, 0]


def test_keys_and_values_that_are_one_tensor_are_counted_once() -> None:
    from transformers import DynamicCache

    cache = fill(DynamicCache(config=config()), 4)
    for layer in cache.layers:
        layer.values = layer.keys
    assert weigh(cache).held_bytes == weigh(cache).storage_bytes == 2 * 2 * 4 * 16 * 4


def test_no_cache_weighs_nothing() -> None:
    assert (weigh(None).held_bytes, cached_tokens(None)) == (0, 0)
