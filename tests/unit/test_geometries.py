"""Geometries from the hub and by hand: what is refused, with the field's name, and what is never derived."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest, ModelUnavailable
from kvdemo.facts.plans import Architecture, MemoryRequest
from kvdemo.planner import catalog
from kvdemo.planner.geometries import fields_of, from_hub, typed, with_one_page_size
from kvdemo.planner.plan import make_plan
from kvdemo.settings import Settings


def held(geometry: Architecture, **request: Any) -> int:
    return make_plan(geometry, MemoryRequest(**request)).held_bytes


def test_a_geometry_typed_by_hand_holds_layers_times_heads_times_dims() -> None:
    assert held(typed(32, 8, 128), seq_len=1000) == 32 * 2 * 8 * 128 * 2 * 1000
    assert held(typed(3, [1, 2, 4], 64), seq_len=10) == 2 * (1 + 2 + 4) * 64 * 2 * 10
    assert typed(32, 8, 128).method == "by hand"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((0, 8, 128), "layers"),
        ((None, 8, 128), "layers"),
        ((32, 0, 128), "kv_heads"),
        ((32, [8, 0], 128), "kv_heads"),
        ((32, [8, 8], 128), "kv_heads"),
        ((32, True, 128), "kv_heads"),
        ((32, 8, -1), "head_dim"),
        ((32, 8, "128"), "head_dim"),
        ((10**400, 8, 128), "layers"),
    ],
)
def test_what_cannot_be_a_geometry_is_refused_by_name(values: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        typed(*values)
    assert refused.value.field == field


def test_parameters_by_hand_make_weights_and_none_leave_them_out() -> None:
    with_weights = typed(2, 2, 64, num_parameters=10**9)
    assert make_plan(with_weights, MemoryRequest(8)).weight_bytes == 2 * 10**9
    assert make_plan(typed(2, 2, 64), MemoryRequest(8)).weight_bytes is None
    with pytest.raises(InvalidRequest, match="parameters"):
        typed(2, 2, 64, num_parameters=0)


def test_fields_of_a_refused_config_are_read_as_they_stand_and_head_dim_is_never_derived() -> None:
    config = {"model_type": "new", "num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32}
    assert fields_of(json.dumps(config)) == {"layers": 40}
    nested = {"text_config": {"num_hidden_layers": 12, "num_key_value_heads": 4, "head_dim": 80}}
    assert fields_of(json.dumps(nested)) == {"layers": 12, "kv_heads": 4, "head_dim": 80}
    for text in ("", "{", "[]", "7", '{"num_hidden_layers": true}', '{"head_dim": -3}', '{"a": ' * 100_000):
        assert fields_of(text) == {}


def test_one_page_size_for_all_layers_is_the_uniform_figure() -> None:
    gemma, request = catalog.architecture("Gemma-3-27B"), MemoryRequest(131_072)
    plan = make_plan(with_one_page_size(gemma), request)
    assert plan.held_bytes == plan.reserved_bytes == make_plan(gemma, request).uniform_bytes


@pytest.mark.parametrize("mode", ["share", "space"])
def test_a_hub_id_is_refused_where_others_can_open_the_page(mode: str) -> None:
    with pytest.raises(ModelUnavailable, match=r"Paste the model's config\.json"):
        from_hub("Qwen/Qwen3-8B", Settings(mode=mode))


@pytest.mark.parametrize("name", ["gpt2", "/etc/passwd", "./folder", "a/b/c", "owner/na me", "http://a/b", ""])
def test_what_is_no_hub_id_is_refused_before_anything_is_read(name: str) -> None:
    with pytest.raises(InvalidRequest, match="model"):
        from_hub(name, Settings())


def test_without_a_network_the_way_out_is_named() -> None:
    with pytest.raises(ModelUnavailable, match=r"network is switched off\. Paste the model's config\.json"):
        from_hub("nobody/nothing-of-the-kind", Settings(), network_is_off=lambda: True)
