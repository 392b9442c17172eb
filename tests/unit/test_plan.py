"""The arithmetic of plans: bytes, crossings, what fits, several devices. No torch anywhere."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import Architecture, FixedState, LayerFootprint, MemoryRequest, TokenStream
from kvdemo.planner import catalog, plan
from kvdemo.planner.by_hand import by_hand

LLAMA_8B = catalog.architecture("Llama-3.1-8B")
GIB = 2**30


@pytest.mark.parametrize(
    ("name", "dtype", "bytes_per_token"),
    [
        ("GPT-2 124M", "bfloat16", 36_864),
        ("SmolLM2-135M", "float32", 46_080),
        ("SmolLM2-1.7B", "bfloat16", 196_608),
        ("Llama-3.1-8B", "bfloat16", 131_072),
        ("Llama-3.1-70B", "bfloat16", 327_680),
        ("Qwen3-4B", "bfloat16", 147_456),
        ("DeepSeek-V3", "bfloat16", 70_272),
        ("Qwen3-Next-80B-A3B", "bfloat16", 24_576),
    ],
)
def test_bytes_per_token_of_known_models(name: str, dtype: str, bytes_per_token: int) -> None:
    made = plan.make_plan(catalog.architecture(name), MemoryRequest(100, 3, dtype))
    assert made.bytes_per_token == bytes_per_token
    assert made.held_bytes - made.fixed_state_bytes == 3 * 100 * bytes_per_token


def test_three_named_figures_differ_where_windows_do() -> None:
    made = plan.make_plan(catalog.architecture("gpt-oss-20b"), MemoryRequest(131_072))
    assert (made.held_bytes, made.reserved_bytes, made.uniform_bytes) == (3_224_346_624, 3_224_371_200, 6_442_450_944)
    made = plan.make_plan(catalog.architecture("Gemma-3-27B"), MemoryRequest(131_072))
    assert (made.held_bytes, made.reserved_bytes) == (11_173_199_872, 11_173_625_856)
    made = plan.make_plan(catalog.architecture("Qwen3-Next-80B-A3B"), MemoryRequest(262_144))
    assert (made.reserved_attention_bytes, made.fixed_state_bytes) == (6_442_450_944, 77_856_768)


@pytest.mark.parametrize(("batch", "length"), [(1, 122_533), (8, 15_317)])
def test_the_cache_passes_the_weights_at_the_smallest_whole_length(batch: int, length: int) -> None:
    made = plan.make_plan(LLAMA_8B, MemoryRequest(1024, batch))
    assert made.crossover_tokens == length
    weights = made.weight_bytes
    assert weights == 2 * 8_030_261_248
    assert plan.make_plan(LLAMA_8B, MemoryRequest(length, batch)).reserved_bytes >= weights
    assert plan.make_plan(LLAMA_8B, MemoryRequest(length - 1, batch)).reserved_bytes < weights


def test_a_cache_that_does_not_grow_never_passes_the_weights() -> None:
    for name in ("Mamba-130M", "Mistral-7B-v0.1"):
        assert plan.make_plan(catalog.architecture(name), MemoryRequest(1)).crossover_tokens is None
    mistral = plan.make_plan(catalog.architecture("Mistral-7B-v0.1"), MemoryRequest(1, 1000))
    assert mistral.crossover_tokens is not None
    assert mistral.crossover_tokens < 4096


def test_a_fixed_state_larger_than_the_weights_passes_them_at_once() -> None:
    found = Architecture(
        "s", "s", (LayerFootprint(0, "state", fixed=(FixedState(1000, 4),)),), 100, None, "float32", "traced"
    )
    assert plan.make_plan(found, MemoryRequest(1)).crossover_tokens == 1


def test_what_fits_beside_the_weights_with_a_share_kept_free() -> None:
    made = plan.make_plan(LLAMA_8B, MemoryRequest(32_768, 8, budget_gib=80))
    capacity = made.capacity
    assert capacity is not None
    assert (capacity.fits, capacity.most_at_once, capacity.budget_bytes) == (True, 14, 80 * GIB)
    longest = {batch: (length, capped) for batch, length, capped in capacity.longest_by_batch}
    assert longest[1] == longest[2] == (131_072, True)
    assert (longest[4], longest[8], longest[16]) == ((116_822, False), (58_411, False), (29_205, False))
    usable = capacity.usable_bytes
    for batch in (4, 8, 16):
        length = longest[batch][0]
        assert plan.make_plan(LLAMA_8B, MemoryRequest(length, batch)).reserved_bytes <= usable
        assert plan.make_plan(LLAMA_8B, MemoryRequest(length + 1, batch)).reserved_bytes > usable
    far = plan.make_plan(LLAMA_8B, MemoryRequest(131_072, 8, budget_gib=80)).capacity
    assert far is not None
    assert (far.fits, far.most_at_once) == (False, 3)


def test_nothing_fits_where_the_weights_alone_do_not() -> None:
    made = plan.make_plan(LLAMA_8B, MemoryRequest(10, 2, budget_gib=8))
    assert made.capacity is not None
    assert made.capacity.usable_bytes < 0
    assert (made.capacity.fits, made.capacity.most_at_once) == (False, 0)
    assert made.capacity.longest_by_batch == ((2, 0, False),)
    mamba = plan.make_plan(catalog.architecture("Mamba-2.8B"), MemoryRequest(10, budget_gib=1)).capacity
    assert mamba is not None
    assert not mamba.fits


def test_the_budget_is_filled_where_weights_and_cache_reach_it() -> None:
    made = plan.make_plan(LLAMA_8B, MemoryRequest(1024, 8, budget_gib=80))
    at = made.budget_crossover_tokens
    assert at is not None
    assert made.weight_bytes is not None
    assert plan.make_plan(LLAMA_8B, MemoryRequest(at, 8)).reserved_bytes + made.weight_bytes >= 80 * GIB
    assert plan.make_plan(LLAMA_8B, MemoryRequest(at - 1, 8)).reserved_bytes + made.weight_bytes < 80 * GIB


@pytest.mark.parametrize(("devices", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (3, 8)])
def test_kv_heads_are_divided_over_devices_and_copied_where_they_do_not_divide(devices: int, heads: int) -> None:
    made = plan.make_plan(LLAMA_8B, MemoryRequest(1000, tensor_parallel=devices))
    assert made.held_bytes == 32 * heads * 2 * 128 * 2 * 1000
    assert made.weight_bytes == -(-2 * 8_030_261_248 // devices)


def test_a_latent_cache_is_whole_on_every_device() -> None:
    one, eight = (
        plan.make_plan(catalog.architecture("DeepSeek-V3"), MemoryRequest(1000, tensor_parallel=devices))
        for devices in (1, 8)
    )
    assert one.held_bytes == eight.held_bytes == 70_272 * 1000
    assert any("8 devices" in note for note in eight.notes)


def test_weights_have_their_own_dtype() -> None:
    sizes = {
        dtype: plan.make_plan(LLAMA_8B, MemoryRequest(10, weights_dtype=dtype)).weight_bytes
        for dtype in (None, "float32", "float8", "int4")
    }
    assert sizes == {None: 16_060_522_496, "float32": 32_121_044_992, "float8": 8_030_261_248, "int4": 4_015_130_624}


def test_a_length_beyond_the_models_own_limit_is_said() -> None:
    assert any("131,072" in note for note in plan.make_plan(LLAMA_8B, MemoryRequest(131_073)).notes)
    assert plan.make_plan(LLAMA_8B, MemoryRequest(131_072)).notes == ()


def test_float8_names_the_scales_it_does_not_count() -> None:
    made = plan.make_plan(LLAMA_8B, MemoryRequest(8192, cache_dtype="float8"))
    assert made.held_bytes == 536_870_912
    assert any("256 bytes" in note for note in made.notes)


def test_what_one_layer_holds_is_predicted_for_growing_and_fixed_caches() -> None:
    sliding = LayerFootprint(0, "sliding", 2, 16, 2, 16, window=8, held_window=7)
    assert [plan.predict_layer(sliding, "dynamic", n, 3, 4) for n in (5, 8, 20)] == [3 * 256 * n for n in (5, 7, 7)]
    assert [plan.predict_layer(sliding, "static", n, 3, 4) for n in (5, 8, 20)] == [3 * 256 * n for n in (5, 8, 8)]
    state = LayerFootprint(0, "state", fixed=(FixedState(10), FixedState(10, 4)))
    assert plan.predict_layer(state, "dynamic", 99, 1, 2) == 10 * 2 + 10 * 4


def test_entries_of_a_compressed_cache_close_every_few_tokens() -> None:
    closed, waiting, once = (
        TokenStream(10, every=4),
        TokenStream(6, every=4, remainder=True),
        TokenStream(5, 4, once=True),
    )
    assert [closed.elements_at(n) for n in (3, 4, 9)] == [0, 10, 20]
    assert [waiting.elements_at(n) for n in (3, 4, 9)] == [18, 0, 6]
    assert [once.elements_at(n) for n in (3, 4, 9)] == [0, 5, 5]


def test_charts_get_points_that_agree_with_plans() -> None:
    request = MemoryRequest(1000, 2)
    gemma = catalog.architecture("Gemma-3-1B")
    made = plan.make_plan(gemma, request)
    assert plan.growth(gemma, request, [1000])[0] == (1000, made.held_bytes, made.reserved_bytes)
    assert plan.growth_by_users(gemma, request, [2, 4]) == [
        (2, made.held_bytes, made.reserved_bytes),
        (4, 2 * made.held_bytes, 2 * made.reserved_bytes),
    ]
    layers = plan.by_layers(gemma, request)
    assert (len(layers), layers[-1]) == (26, (26, made.held_bytes, made.reserved_bytes))


def test_what_sharing_heads_saves_goes_from_one_head_to_one_for_each_attention_head() -> None:
    heads = plan.by_kv_heads(LLAMA_8B, MemoryRequest(1000))
    assert [count for count, *_ in heads] == [1, 2, 4, 8, 16, 32]
    assert [held for _, held, _ in heads] == [16_384 * 1000 * count for count in (1, 2, 4, 8, 16, 32)]
    assert plan.by_kv_heads(catalog.architecture("DeepSeek-V3"), MemoryRequest(10)) == []
    assert plan.by_kv_heads(catalog.architecture("Mamba-130M"), MemoryRequest(10)) == []


def test_lengths_for_a_chart_rise_from_small_to_the_longest() -> None:
    lengths = plan.lengths_up_to(131_072)
    assert (lengths[0], lengths[-1]) == (128, 131_072)
    assert all(a < b for a, b in itertools.pairwise(lengths))
    assert plan.lengths_up_to(1) == [1]


def test_the_document_is_plain_json_with_the_agreed_keys() -> None:
    document = plan.as_document(plan.make_plan(LLAMA_8B, MemoryRequest(32_768, 8, budget_gib=80)))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert list(document) == [
        "model",
        "weights",
        "request",
        "cache",
        "engine",
        "layers",
        "crossover_tokens",
        "capacity",
        "notes",
        "method",
    ]
    assert document["layers"][0] == {
        "index": 0,
        "kind": "full",
        "kv_heads": 8,
        "key_dim": 128,
        "value_dim": 128,
        "window": None,
        "held_bytes": 1_073_741_824,
        "reserved_bytes": 1_073_741_824,
    }
    assert document["cache"]["reserved_bytes"] == 32 * GIB
    assert document["capacity"]["fits"] is True
    assert plan.as_document(plan.make_plan(LLAMA_8B, MemoryRequest(1)))["capacity"] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq_len", 0),
        ("seq_len", -1),
        ("seq_len", 10**12),
        ("seq_len", "7"),
        ("batch_size", 0),
        ("batch_size", 1.5),
        ("cache_dtype", "int3"),
        ("weights_dtype", "int3"),
        ("budget_gib", 0),
        ("budget_gib", float("nan")),
        ("keep_free", 1.0),
        ("keep_free", -0.1),
        ("tensor_parallel", 0),
        ("encoder_len", 0),
    ],
)
def test_a_request_that_cannot_be_names_its_field(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        MemoryRequest(**{"seq_len": 100, field: value})  # type: ignore[arg-type]
    assert refused.value.field == field


layers = st.builds(
    lambda heads, key, value, window, state: LayerFootprint(
        0,
        "full" if window is None else "sliding",
        heads,
        key,
        heads,
        value,
        window=window,
        held_window=window - 1 if window and window > 1 else None,
        fixed=(FixedState(state, 4),) if state else (),
    ),
    st.integers(1, 16),
    st.integers(1, 256),
    st.integers(1, 256),
    st.none() | st.integers(1, 5000),
    st.integers(0, 10_000),
)


@given(
    st.lists(layers, min_size=1, max_size=6),
    st.integers(1, 10**9),
    st.integers(1, 64),
    st.integers(1, 300_000),
    st.floats(0.01, 500),
)
def test_crossings_and_capacity_agree_with_plans_at_those_lengths(
    kinds: list[LayerFootprint], parameters: int, batch: int, length: int, budget: float
) -> None:
    found = Architecture(
        "x",
        "x",
        tuple(replace(kind, index=i) for i, kind in enumerate(kinds)),
        parameters,
        262_144,
        "bfloat16",
        "traced",
    )
    made = plan.make_plan(found, MemoryRequest(length, batch, budget_gib=budget))
    assert made.held_bytes <= made.reserved_bytes <= made.uniform_bytes or any(kind.window == 1 for kind in kinds)
    assert made.weight_bytes is not None

    def reserved(tokens: int, requests: int = batch) -> int:
        return plan.make_plan(found, MemoryRequest(tokens, requests)).reserved_bytes

    crossing = made.crossover_tokens
    if crossing is None:
        assert reserved(100_000_000) < made.weight_bytes
    elif crossing <= 100_000_000:
        assert reserved(crossing) >= made.weight_bytes
        assert crossing == 1 or reserved(crossing - 1) < made.weight_bytes
    capacity = made.capacity
    assert capacity is not None
    assert capacity.fits == (made.reserved_bytes <= capacity.usable_bytes)
    for requests, longest, capped in capacity.longest_by_batch:
        assert longest == 0 or reserved(longest, requests) <= capacity.usable_bytes
        assert capped or longest >= 262_144 or reserved(longest + 1, requests) > capacity.usable_bytes
    most = capacity.most_at_once
    assert most == 0 or most * reserved(length, 1) <= capacity.usable_bytes < (most + 1) * reserved(length, 1)


def test_plans_and_the_catalogue_need_no_torch() -> None:
    code = (
        "import sys\n"
        "import kvdemo.planner.architecture\n"
        "from kvdemo.planner import catalog, plan\n"
        "from kvdemo.facts.plans import MemoryRequest\n"
        "[plan.make_plan(catalog.architecture(name), MemoryRequest(4096, 8, budget_gib=80)) for name in catalog.names()]\n"
        "assert not {'torch', 'transformers', 'pandas', 'gradio'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_geometry_by_hand_has_a_plan_without_weights() -> None:
    made = plan.make_plan(by_hand(16, 4, 64), MemoryRequest(10, budget_gib=1))
    assert (made.weight_bytes, made.crossover_tokens) == (None, None)
    assert made.capacity is not None
    assert made.capacity.fits
    assert any("weights are not counted" in note for note in made.notes)
