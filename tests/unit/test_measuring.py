"""Caches of a loaded model, weighed beside the prediction: exact where it can be, with a cause where it differs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kvdemo.backend import Backend
from kvdemo.caches.strategies import strategy_of
from kvdemo.engine.measuring import _measured
from kvdemo.facts.plans import LayerFootprint, MeasuredPoint
from kvdemo.facts.records import LayerBytes
from kvdemo.facts.requests import MeasureSpec
from kvdemo.planner.needs import layer_needs
from tests.tiny_backend import ready_backend

FULL = LayerFootprint(0, "full", kv_heads=2, key_dim=16, value_heads=2, value_dim=16)


def windowed() -> Any:
    """A seeded Mistral whose layers all look back 16 tokens."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        sliding_window=16,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=257,
    )
    return MistralForCausalLM(config).eval()


@contextmanager
def windowed_backend() -> Iterator[Backend]:
    with closing(ready_backend(model=windowed)) as backend:
        yield backend


def points_of(backend: Backend, spec: MeasureSpec) -> list[MeasuredPoint]:
    return [told for told in backend.measure_memory(spec) if isinstance(told, MeasuredPoint)]


def test_windows_are_measured_below_at_and_above_and_hold_what_waslayer_needs() -> None:
    with windowed_backend() as backend:
        points = points_of(backend, MeasureSpec((8, 16, 64)))
    assert {point.seq_len for point in points} == {8, 16, 64}
    for point in points:
        assert [layer.held_bytes - layer.predicted_bytes for layer in point.layers] == [0, 0]
        assert {layer.kind for layer in point.layers} == {"sliding"}


def test_a_windows_view_is_named_as_the_cause_of_the_storage_behind_it() -> None:
    with windowed_backend() as backend:
        (point,) = points_of(backend, MeasureSpec((64,), ("dynamic",)))
    assert point.storage_bytes == 2 * 2 * 2 * 16 * 4 * 64
    assert point.held_bytes == 2 * 2 * 2 * 16 * 4 * 15
    assert all("the whole prompt's storage stays" in layer.cause for layer in point.layers)


def test_eight_bit_floats_are_predicted_with_their_scales() -> None:
    assert layer_needs(FULL, strategy_of("fp8"), 10, 4) == 2 * 2 * 16 * 10 + 8


def test_a_quantised_cache_is_predicted_by_its_values_and_the_rest_is_named() -> None:
    strategy = strategy_of("quanto-4bit")
    predicted = layer_needs(FULL, strategy, 10, 4)
    assert predicted == 2 * 2 * 16 * 10 // 2
    layer = _measured(LayerBytes(0, "Layer", 200, 200, 0, 80, 480, "cpu"), FULL, predicted, strategy)
    assert layer.cause == "a quantised cache keeps scales and zero points beside its 4-bit values"


def test_a_difference_without_a_cause_is_not_explained_away() -> None:
    strategy = strategy_of("dynamic")
    layer = _measured(LayerBytes(0, "Layer", 8, 8, 0, 0, 16, "cpu"), FULL, 12, strategy)
    assert layer.cause == "not explained: please report it"
