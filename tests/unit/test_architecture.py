"""The planner's reading of configs: traced by the model's own code, refused in words, or typed by hand."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import FixedState, LayerFootprint, MemoryRequest
from kvdemo.planner import architecture, plan
from tests.tiny import tiny_model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 258,
    "max_position_embeddings": 1024,
}


def test_a_config_is_traced_to_one_footprint_per_layer() -> None:
    found = architecture.from_config({**LLAMA, "torch_dtype": "bfloat16"}, name="tiny")
    full = LayerFootprint(index=0, kind="full", kv_heads=2, key_dim=16, value_heads=2, value_dim=16)
    assert [layer.index for layer in found.layers] == [0, 1, 2, 3]
    assert found.layers[0] == full
    assert (found.name, found.model_type, found.method, found.dtype) == ("tiny", "llama", "traced", "bfloat16")
    assert (found.context_limit, found.attention_heads, found.static, found.notes) == (1024, 4, True, ())


def test_a_loaded_model_gives_what_its_config_gives_and_counts_its_own_parameters() -> None:
    model = tiny_model()
    found = architecture.from_loaded(model)
    assert found.layers == architecture.from_config(LLAMA).layers
    assert found.num_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.dtype == "float32"


def test_tracing_leaves_the_default_dtype_and_a_loaded_config_alone() -> None:
    import torch

    model = tiny_model()
    before = model.config.to_dict()
    seen: set[torch.dtype] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(torch.get_default_dtype())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        architecture.from_loaded(model)
        architecture.from_config({"model_type": "gemma3", "dtype": "bfloat16", "text_config": {"num_hidden_layers": 6}})
    finally:
        done.set()
        watcher.join()
    assert seen == {torch.float32}
    assert model.config.to_dict() == before
    assert next(model.parameters()).device.type == "cpu"


def test_a_recurrent_state_keeps_its_own_dtype_and_a_convolution_follows_the_cache() -> None:
    found = architecture.from_config(
        {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16}
    )
    assert found.layers[0].fixed == (FixedState(128 * 4), FixedState(128 * 16, 4))
    sizes = {
        dtype: plan.make_plan(found, MemoryRequest(100, cache_dtype=dtype)).fixed_state_bytes
        for dtype in ("float32", "bfloat16", "float8")
    }
    assert sizes == {"float32": 2 * (2048 + 8192), "bfloat16": 2 * (1024 + 8192), "float8": 2 * (1024 + 8192)}


def test_layers_that_share_name_the_layer_whose_cache_they_read() -> None:
    config = {
        "model_type": "gemma3n_text",
        "hidden_size": 64,
        "num_hidden_layers": 10,
        "num_kv_shared_layers": 5,
        "intermediate_size": 32,
        "activation_sparsity_pattern": [0.0] * 10,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 2,
    }
    found = architecture.from_config(config)
    assert [layer.shares for layer in found.layers] == [None] * 5 + [3, 3, 3, 3, 4]
    assert all(layer.elements_per_token == 0 for layer in found.layers[5:])


def test_cross_attention_is_apart_and_keeps_what_the_encoder_hands_over() -> None:
    found = architecture.from_config({"model_type": "t5", "num_layers": 2})
    assert [layer.kind for layer in found.layers] == ["full", "full", "cross", "cross"]
    short, long = (plan.make_plan(found, MemoryRequest(n, encoder_len=50)) for n in (10, 20))
    assert [layer.held_bytes for layer in long.layers[2:]] == [layer.held_bytes for layer in short.layers[2:]]
    assert short.layers[2].held_bytes == 2 * 50 * found.layers[2].elements_per_token


def test_experts_are_counted_all_and_tied_weights_once() -> None:
    dense = architecture.from_config({**LLAMA, "tie_word_embeddings": True}).num_parameters
    apart = architecture.from_config({**LLAMA, "tie_word_embeddings": False}).num_parameters
    assert apart is not None
    assert dense is not None
    assert apart - dense == 258 * 64
    few, many = (
        architecture.from_config({**LLAMA, "model_type": "mixtral", "num_local_experts": experts}).num_parameters
        for experts in (4, 8)
    )
    assert few is not None
    assert many is not None
    assert many - few == 4 * (4 * 3 * 64 * 128 + 4 * 64)


def test_a_quantised_checkpoint_says_so_and_keeps_its_cache() -> None:
    found = architecture.from_config({**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}})
    assert found.layers == architecture.from_config(LLAMA).layers
    assert any("awq" in note for note in found.notes)


def test_an_old_table_of_positions_is_counted_at_its_full_length() -> None:
    short, long = (
        architecture.from_config(
            {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": positions}
        )
        for positions in (1024, 100_000)
    )
    assert short.num_parameters is not None
    assert long.num_parameters is not None
    assert long.num_parameters - short.num_parameters == 64 * (100_000 - 1024)
    assert long.context_limit == 100_000


REFUSED_TEXTS = [
    ("", "is empty"),
    ("   \n", "is empty"),
    ('{"model_type": "llama",\n "hidden_size": }', "line 2, column 17"),
    ('{"model_type": "llama"', "is not JSON at line 1"),
    (
        '{\n<<<<<<< HEAD\n"a": 1\n=======\n"a": 2\n>>>>>>> other\n}',
        "holds a merge marker (<<<<<<<) at line 2, column 1",
    ),
    ('{\n"a": 1,\n  >>>>>>> other\n}', "(>>>>>>>) at line 3, column 3"),
    ('["llama"]', "is not an object"),
    ("3", "is not an object"),
    ('{"model_type": "llama", "hidden_size": NaN}', "NaN"),
    ('{"model_type": "llama", "hidden_size": Infinity}', "hidden_size is inf"),
    ('{"model_type": "llama", "hidden_size": 64, "hidden_size": 128}', "hidden_size is there twice"),
    ('{"a": ' + "1" * 5000 + "}", "thousands of digits"),
    ('{"a":' * 2000 + "1" + "}" * 2000, "nested too deeply"),
    ('{"hidden_size": 64}', "has no model_type"),
    ('{"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}', "auto_map"),
    ('{"model_type": "llama", "num_hidden_layers": 0}', "num_hidden_layers is 0"),
    ('{"model_type": "llama", "num_hidden_layers": 1000000000}', "num_hidden_layers is 1000000000"),
    ('{"model_type": "llama", "num_attention_heads": -4}', "num_attention_heads is -4"),
    ('{"model_type": "llama", "hidden_size": "wide"}', "hidden_size is the text 'wide'"),
    ('{"model_type": "llama", "head_dim": 1.5}', "head_dim is 1.5"),
    ('{"model_type": "llama", "vocab_size": 99999999999}', "vocab_size is above"),
    (
        '{"model_type": "gemma3n_text", "num_hidden_layers": 4, "num_kv_shared_layers": 4}',
        "num_kv_shared_layers is 4 of 4",
    ),
    ('{"model_type": "gemma3n_text", "num_kv_shared_layers": -1}', "num_kv_shared_layers is -1"),
    ('{"model_type": "llama", "num_hidden_layers": true}', "num_hidden_layers is true"),
    ('{"model_type": "llama", "partial_rotary_factor": 1.5}', "partial_rotary_factor is 1.5"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED_TEXTS, ids=[said for _, said in REFUSED_TEXTS])
def test_a_text_that_is_no_usable_config_is_refused_with_its_place_or_field(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        architecture.parse_config(text)
    assert refused.value.field == "config"
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


REFUSED_CONFIGS = [
    ({"model_type": "openelm"}, "does not know the model type 'openelm'"),
    ({"model_type": "vit"}, "no text-generating model"),
    ({"model_type": "openai-gpt"}, "recomputes every token"),
    ({**LLAMA, "num_key_value_heads": 3}, "cannot work with these fields"),
    ({**LLAMA, "hidden_size": 65}, "cannot work with these fields"),
    (
        {"model_type": "mistral", **{k: v for k, v in LLAMA.items() if k != "model_type"}, "sliding_window": 0},
        "sliding_window gives layer 0 a window of 0",
    ),
    ({**LLAMA, "model_type": "mamba", "state_size": 16, "time_step_rank": -3}, "time_step_rank is -3"),
    ({**LLAMA, "model_type": "mamba", "state_size": 16, "conv_kernel": 10**10}, "conv_kernel is above"),
    ({**LLAMA, "hidden_act": "sillu"}, "hidden_act is 'sillu'"),
    ({**LLAMA, "layer_types": ["full_attention"]}, "cannot work with these fields"),
]


@pytest.mark.parametrize(("config", "said"), REFUSED_CONFIGS, ids=[said for _, said in REFUSED_CONFIGS])
def test_a_config_that_no_model_can_have_is_refused_and_not_planned_at_0_bytes(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        architecture.from_config(config)
    assert refused.value.field == "config"
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


SMALL: dict[str, dict[str, Any]] = {
    "llama": {**LLAMA, "num_hidden_layers": 2, "head_dim": 16, "rope_theta": 10_000.0, "rms_norm_eps": 1e-5},
    "mistral": {**LLAMA, "model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 64},
    "gpt_oss": {
        **LLAMA,
        "model_type": "gpt_oss",
        "num_hidden_layers": 2,
        "head_dim": 16,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 32,
    },
    "gemma3n_text": {
        **LLAMA,
        "model_type": "gemma3n_text",
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 1,
        "intermediate_size": 32,
        "activation_sparsity_pattern": [0.0] * 5,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"] * 2,
        "laurel_rank": 8,
    },
    "gpt2": {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 128, "n_inner": 96},
}
ODD: list[Any] = [-1, 0, 10**11, 10**400, "x", None, [], {}, True, 1.5]


@pytest.mark.parametrize("model_type", SMALL)
def test_whatever_a_field_holds_it_is_planned_or_refused_by_its_name(model_type: str) -> None:
    config = SMALL[model_type]
    unnamed = []
    for field in (key for key in config if key != "model_type"):
        for value in ODD:
            try:
                architecture.from_config(architecture.parse_config(json.dumps({**config, field: value})))
            except InvalidRequest as refused:
                if field not in str(refused):
                    unnamed.append((field, value, str(refused)))
    assert unnamed == []


def test_a_field_of_the_text_decoder_is_named_with_its_place() -> None:
    with pytest.raises(InvalidRequest, match=r"text_config\.hidden_activation is 'gelluu'"):
        architecture.from_config(
            {"model_type": "gemma3", "text_config": {"num_hidden_layers": 2, "hidden_activation": "gelluu"}}
        )


@pytest.mark.parametrize(
    "field", ["rope_theta", "tokens_seen", "training_size"], ids=["a value", "a note", "a size that no code reads"]
)
def test_a_large_whole_number_is_refused_only_where_it_is_a_size_that_is_used(field: str) -> None:
    found = architecture.from_config(architecture.parse_config(json.dumps({**LLAMA, field: 100_000_000_000})))
    assert found.layers == architecture.from_config(LLAMA).layers


def test_an_open_limit_written_as_infinity_is_no_mistake() -> None:
    for written in ("Infinity", '{"__float__": "Infinity"}'):
        text = (
            '{"model_type": "bamba", "num_hidden_layers": 2, "attn_layer_indices": [1], "time_step_limit": [0.0, %s]}'
        )
        assert [layer.kind for layer in architecture.from_config(architecture.parse_config(text % written)).layers] == [
            "state",
            "full",
        ]


def test_a_loop_that_somebody_made_absurdly_long_ends() -> None:
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 4}
    architecture.from_config(config)  # what it imports is not to be interrupted
    with pytest.raises(InvalidRequest, match="was not done"):
        architecture.from_config({**config, "hc_sinkhorn_iters": 10**8}, limit_s=0.5)


def test_a_geometry_is_typed_by_hand_with_one_number_of_heads_or_one_per_layer() -> None:
    found = architecture.by_hand(3, [1, 2, 3], 64, value_dim=32, num_parameters=1_000)
    assert [layer.kv_heads for layer in found.layers] == [1, 2, 3]
    assert [layer.elements_per_token for layer in found.layers] == [96, 192, 288]
    assert (found.method, found.num_parameters) == ("by hand", 1_000)
    assert plan.make_plan(found, MemoryRequest(10)).held_bytes == 2 * 10 * (96 + 192 + 288)
    assert architecture.by_hand(2, 4, 8, window=16).layers[0].held_window == 15


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((0, 1, 64), "layers"),
        ((2, [1], 64), "kv_heads"),
        ((2, 0, 64), "kv_heads"),
        ((2, [1, -1], 64), "kv_heads"),
        ((2, 1, 0), "head_dim"),
        ((2, 1, True), "head_dim"),
        ((10**9, 1, 64), "layers"),
    ],
)
def test_a_geometry_typed_wrong_names_the_field(arguments: tuple[Any, ...], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        architecture.by_hand(*arguments)
    assert refused.value.field == field


def test_a_config_survives_the_way_through_json() -> None:
    assert architecture.parse_config("\ufeff" + json.dumps(LLAMA)) == LLAMA


def test_a_real_float8_cache_holds_what_is_predicted_for_it() -> None:
    import torch
    from transformers import QuantizedCache

    from kvdemo.caches.footprint import weigh_layers

    model = tiny_model()
    cache = QuantizedCache(backend="fp8", config=model.config)
    with torch.no_grad():
        for tokens in (9, 1):
            model(torch.ones((2, tokens), dtype=torch.long), cache=cache, use_cache=True)
    footprints = architecture.from_loaded(model).layers
    held = [layer.held_bytes for layer in weigh_layers(cache)]
    assert held == [plan.predict_layer(layer, "fp8", 10, 2, 4) for layer in footprints]
    assert held[0] == 2 * 10 * 64 + 8


@pytest.mark.parametrize("odd", ["fp8", ["x"], 5])
def test_odd_words_about_weights_and_names_in_a_config_do_not_stop_the_plan(odd: object) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "vocab_size": 100,
    }
    found = architecture.from_config({**config, "quantization_config": odd, "_name_or_path": [odd]})
    assert found.name == "llama"
    assert any("quantised" in note for note in found.notes)
