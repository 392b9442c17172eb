"""Weights as published: one layer of every method worked out by hand, and the models that are known for their size."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import MemoryRequest
from kvdemo.planner import architecture, catalog, plan

GIB = 2**30
ONE_LAYER: dict[str, Any] = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 258,
    "tie_word_embeddings": False,
}
REST = 2 * (2 * 258 * 64 + 3 * 64)  # embedding, head and three norms, which every method leaves in bfloat16
# rows x columns of the seven matrices: q and o, k and v, gate and up, down
ELEMENTS = 2 * 64 * 64 + 2 * 32 * 64 + 2 * 128 * 64 + 64 * 128
CT = {"quant_method": "compressed-tensors", "ignore": ["lm_head"]}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}

BY_HAND = [
    # a byte each, and a float32 per block of 64 x 64: one for q, o, k, v; two for gate, up and down
    (
        "fp8 in blocks",
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        ELEMENTS + 4 * (4 * 1 + 3 * 2),
        "fp8",
    ),
    (
        "fp8 by matrix",
        {"quant_method": "fp8", "weight_block_size": None, "ignored_layers": ["lm_head"]},
        ELEMENTS + 4 * 7,
        "fp8",
    ),
    (
        # half a byte each; per 32 columns and row a float16 and half a byte; an int32 per column (six of 64, one of 128)
        "gptq",
        {"quant_method": "gptq", "bits": 4, "group_size": 32},
        ELEMENTS // 2 + 2 * ELEMENTS // 32 + ELEMENTS // 32 // 2 + 4 * (6 * 64 + 128),
        "gptq, 4 bits",
    ),
    (
        # 3 bits: q and o 64 rows of 6 int32, k and v 32 of 6, gate and up 128 of 6, down 64 of 12; zero points 3 bits a row
        "gptq with one group, in 3 bits",
        {"quant_method": "gptq", "bits": 3, "group_size": -1},
        4 * (2 * 64 * 6 + 2 * 32 * 6 + 2 * 128 * 6 + 64 * 12)
        + 2 * (2 * 64 + 2 * 32 + 2 * 128 + 64)
        + 4 * (2 * 6 + 2 * 3 + 2 * 12 + 6)
        + 4 * (6 * 64 + 128),
        "gptq, 3 bits",
    ),
    (
        "awq",
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
        ELEMENTS // 2 + 2 * ELEMENTS // 32 + ELEMENTS // 32 // 2,
        "awq, 4 bits",
    ),
    (
        # half a byte each, a float32 per 64, and for each of seven matrices the 16 values in float32
        "bitsandbytes in 4 bits",
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        ELEMENTS // 2 + 4 * ELEMENTS // 64 + 7 * 16 * 4,
        "bitsandbytes, 4 bits",
    ),
    (
        # the scales in a byte, a float32 per 256 of them (fewer than 256 in each), 256 values and an offset in float32
        "bitsandbytes in 4 bits, its scales quantised again",
        {"load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        ELEMENTS // 2 + ELEMENTS // 64 + 7 * (4 + 256 * 4 + 4 + 16 * 4),
        "bitsandbytes, 4 bits",
    ),
    (
        # a byte each, and a float32 per row
        "bitsandbytes in 8 bits",
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        ELEMENTS + 4 * (2 * 64 + 2 * 32 + 2 * 128 + 64),
        "bitsandbytes, 8 bits",
    ),
    (
        # half a byte each, 16 bits per 32, and two int64 for the shape
        "compressed-tensors packed",
        {**CT, "format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}}},
        ELEMENTS // 2 + 2 * ELEMENTS // 32 + 7 * 16,
        "compressed-tensors, 4 bits",
    ),
    (
        # a byte each, and 16 bits per row
        "compressed-tensors in float8",
        {**CT, "format": "float-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights": FP8}}},
        ELEMENTS + 2 * (2 * 64 + 2 * 32 + 2 * 128 + 64),
        "compressed-tensors, 8 bits",
    ),
    (
        # half a byte each, a byte per 16, and a float32 for each matrix
        "compressed-tensors in nvfp4",
        {
            **CT,
            "format": "nvfp4-pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": NVFP4}},
        },
        ELEMENTS // 2 + ELEMENTS // 16 + 7 * 4,
        "compressed-tensors, 4 bits",
    ),
    (
        # the attention's four matrices in 8 bits by channel, the other three in 4
        "compressed-tensors in two groups",
        {
            **CT,
            "format": "mixed-precision",
            "config_groups": {
                "a": {"targets": ["re:.*self_attn.*"], "weights": FP8, "format": "float-quantized"},
                "b": {"targets": ["re:.*mlp.*"], "weights": INT4, "format": "pack-quantized"},
            },
        },
        (2 * 64 * 64 + 2 * 32 * 64) + 2 * (2 * 64 + 2 * 32) + (3 * 128 * 64) // 2 + 2 * (3 * 128 * 64) // 32 + 3 * 16,
        "compressed-tensors, 4 and 8 bits",
    ),
]


@pytest.mark.parametrize(
    ("quantised", "layer_bytes", "how"), [case[1:] for case in BY_HAND], ids=[case[0] for case in BY_HAND]
)
def test_one_layer_of_each_method_takes_what_was_worked_out_by_hand(
    quantised: dict[str, Any], layer_bytes: int, how: str
) -> None:
    found = architecture.from_config({**ONE_LAYER, "quantization_config": quantised})
    made = plan.make_plan(found, MemoryRequest(10))
    assert made.weight_bytes == REST + layer_bytes
    assert made.weights_how == f"as published: {how}"
    assert found.layers == architecture.from_config(ONE_LAYER).layers


def test_experts_in_mxfp4_take_4_and_a_quarter_bits_and_all_else_stays() -> None:
    config = {
        "model_type": "gpt_oss",
        "torch_dtype": "bfloat16",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 258,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    plain = plan.make_plan(architecture.from_config(config), MemoryRequest(10)).weight_bytes
    stored = plan.make_plan(
        architecture.from_config({**config, "quantization_config": {"quant_method": "mxfp4"}}), MemoryRequest(10)
    ).weight_bytes
    experts = 2 * 4 * (64 * 2 * 96 + 96 * 64)
    assert plain is not None
    assert stored == plain - 2 * experts + experts * 17 // 32


def test_experts_that_one_tensor_holds_are_stored_as_the_matrices_of_their_files() -> None:
    config = {**ONE_LAYER, "model_type": "mixtral", "intermediate_size": 96, "num_local_experts": 3}
    plain = plan.make_plan(architecture.from_config(config), MemoryRequest(10)).weight_bytes
    fp8 = {"quant_method": "fp8", "weight_block_size": [64, 64], "modules_to_not_convert": [".*self_attn", "lm_head"]}
    stored = plan.make_plan(architecture.from_config({**config, "quantization_config": fp8}), MemoryRequest(10))
    assert plain is not None
    # 96 rows of gate and of up begin a second block each, so do 96 columns of down
    assert stored.weight_bytes == plain - 3 * 3 * 96 * 64 + 4 * 3 * 3 * 2


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8), ("DeepSeek-V3", 627)])
def test_known_models_weigh_what_their_files_do(name: str, gib: float) -> None:
    made = plan.make_plan(catalog.architecture(name), MemoryRequest(4096, budget_gib=80))
    assert made.weight_bytes == pytest.approx(gib * GIB, rel=0.01)
    assert made.capacity is not None
    assert made.capacity.fits is (gib < 80)


def test_the_layer_that_only_the_files_of_deepseek_hold_is_said() -> None:
    assert any("1 more layer" in note for note in catalog.architecture("DeepSeek-V3").notes)


def test_another_dtype_can_be_chosen_and_is_named() -> None:
    made = plan.make_plan(catalog.architecture("gpt-oss-20b"), MemoryRequest(10, weights_dtype="bfloat16"))
    assert (made.weight_bytes, made.weights_how) == (2 * 20_914_757_184, "in bfloat16")
    assert not any("counted" in note for note in made.notes)
    told = plan.as_document(plan.make_plan(catalog.architecture("gpt-oss-20b"), MemoryRequest(10)))
    assert told["weights"] == {"bytes": told["model"]["weight_bytes"], "how": "as published: mxfp4"}


@pytest.mark.parametrize(
    "quantised",
    [
        {"quant_method": "aqlm"},
        "fp8",
        {"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*down.*": {}}},
        {**CT, "format": "marlin-24", "config_groups": {"a": {"targets": ["Linear"], "weights": INT4}}},
        {"quant_method": "fp8", "modules_to_not_convert": ["(.*)*x"]},
    ],
    ids=["unknown method", "a word", "rules of its own", "sparse", "a pattern that may run for ever"],
)
def test_a_layout_that_is_not_known_is_counted_in_the_configs_dtype_and_labelled(quantised: object) -> None:
    found = architecture.from_config({**ONE_LAYER, "quantization_config": quantised})
    made = plan.make_plan(found, MemoryRequest(10))
    assert made.weight_bytes == 2 * (found.num_parameters or 0)
    assert (made.weights_how or "").endswith("counted in bfloat16")


@pytest.mark.parametrize(
    ("quantised", "field"),
    [
        ({"quant_method": "gptq", "bits": 0}, "bits"),
        ({"quant_method": "gptq", "bits": "four"}, "bits"),
        ({"quant_method": "awq", "group_size": 0}, "group_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": 7}, "modules_to_not_convert"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["["]}, "quantization_config"),
        ({**CT, "config_groups": {"a": 3}}, "config_groups"),
    ],
)
def test_a_wrong_field_of_a_quantization_config_is_named(quantised: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(field)):
        architecture.from_config({**ONE_LAYER, "quantization_config": quantised})


def test_what_is_left_alone_is_what_transformers_leaves_alone() -> None:
    from transformers.quantizers.quantizers_utils import should_convert_module

    from kvdemo.planner.published import Matrix, _kept

    model = architecture.on_meta(ONE_LAYER)
    names = [name for name, _ in model.named_modules() if name]
    lists = (["lm_head"], ["model.layers.*.self_attn"], ["layers.0.mlp"], ["mlp"], ["model.layers.0.mlp.up"], ["proj"])
    for patterns in lists:
        kept = _kept(model, {"skip": patterns}, "skip")
        found = {name for name in names if kept(Matrix(name, "Linear", 1, 1))}
        assert found == {name for name in names if not should_convert_module(name, patterns)}
