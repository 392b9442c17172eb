"""Every causal model type of transformers as a small config that runs on a CPU in milliseconds.

Widths, layers, experts and vocabularies are cut; what kind of layer follows what is kept. MISSING holds values that a
type's default config lacks and that every real config of the type has.
"""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "decoder_vocab_size", "unpadded_vocab_size"), 64),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim", "lru_width"), 64),
    **dict.fromkeys(
        ("intermediate_size", "moe_intermediate_size", "decoder_ffn_dim", "encoder_ffn_dim", "ffn_dim", "n_inner", "dff",
         "dim_ff", "shared_expert_intermediate_size", "shared_experts_intermediate_size", "shared_intermediate_size",
         "ffn_hidden_size", "expert_ffn_hidden_size", "intermediate_size_mlp", "dense_intermediate_size",
         "moe_shared_expert_intermediate_size", "hidden_size_per_layer_input"), 32),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "decoder_layers", "encoder_layers", "num_encoder_layers",
         "num_decoder_layers"), 4),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "attention_heads", "decoder_attention_heads",
         "encoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads", "swa_num_attention_heads"),
        4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads", "num_query_groups"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "kv_channels", "attention_head_dim", "dim_head"), 16),
    **dict.fromkeys(
        ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "index_head_dim"), 16),
    "qk_rope_head_dim": 8,
    "qk_head_dim": 24,
    "index_n_heads": 2,
    "index_topk": 4,
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "attention_window_size", "sliding_window_size",
                     "window_size", "local_attention"), 8),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 16),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size"), 16),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size", "mamba_n_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 16),
    "mamba_d_ssm": 128,
    "max_position_embeddings": 128,
}  # fmt: skip
GEMMA_3N = {
    "num_hidden_layers": 10,
    "num_kv_shared_layers": 4,
    "intermediate_size": 32,
    "activation_sparsity_pattern": [0.0] * 10,
}
TOKEN_FIELDS = ("token_id", "token_index")
QUERY_SPARSE = {
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
}
NESTED = ("text_config", "decoder")
# What a type's default config lacks and every real config of the type has.
MISSING: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        }
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2, "num_hidden_layers": 4},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4},
    "ministral": {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 4},
    "xmod": {"default_language": "en_XX"},
}
# Where the cut needs other numbers, so that every kind of layer of the type is there.
FITTED: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "codegen": {"rotary_dim": 8},
    "dory": {"n_input_layers": 1, "n_output_layers": 1},
    "dots3_note": {
        "text_config": {"num_key_value_heads": 4},
        "vision_config": {"adapter_out_dim": 64},
        "audio_config": {"adapter_out_dim": 64},
    },
    "dots3_note_text": {"num_key_value_heads": 4},
    "gemma3": {"text_config": {"num_hidden_layers": 6}},
    "gemma3_text": {"num_hidden_layers": 6},
    "gemma3n": {"text_config": GEMMA_3N},
    "gemma3n_text": GEMMA_3N,
    "gptj": {"rotary_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "longcat_flash": {"head_dim": 8, "num_layers": 2},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"] * 2, "index_block_size": 4},
    "deepseek_v4": {
        "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"] * 2,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    },
    "qwen4_exp": {"text_config": QUERY_SPARSE},
    "qwen4_exp_text": QUERY_SPARSE,
    "xlm": {"emb_dim": 64},
    "zamba": {"num_hidden_layers": 14},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "n_mamba_heads": 8},
    "zaya": {"num_experts_per_tok": 1},
}


def default_config(model_type: str) -> Any:
    """The type's default config, with what it lacks."""
    from transformers import CONFIG_MAPPING

    return _as_decoder(CONFIG_MAPPING[model_type](**MISSING.get(model_type, {})))


def shrunk_config(model_type: str) -> Any:
    """The type's config cut down; whatever its class raises where the cut makes no sense."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[model_type]
    fields = _cut(made(**MISSING.get(model_type, {})).to_dict())
    for changes in (MISSING.get(model_type, {}), FITTED.get(model_type, {})):
        for key, value in changes.items():
            fields[key] = {**fields[key], **value} if isinstance(value, dict) and key in fields else value
    return _as_decoder(made(**fields))


def _as_decoder(config: Any) -> Any:
    """An encoder's config serves as a decoder where it can."""
    if hasattr(config, "is_decoder") and not config.is_encoder_decoder:
        config.is_decoder = True
    return config


def _cut(fields: dict[str, Any]) -> dict[str, Any]:
    """The small value of every field that the config has, one level of nesting down as well."""
    found = {key: value for key, value in SMALL.items() if isinstance(fields.get(key), int)}
    found |= {key: 0 for key, value in fields.items() if key.endswith(TOKEN_FIELDS) and isinstance(value, int)}
    if "kv_lora_rank" in found:
        for key in ("head_dim", "qk_head_dim"):
            found.pop(key, None)
        found["num_key_value_heads"] = found["num_attention_heads"]
    return found | {key: _cut(fields[key]) for key in NESTED if isinstance(fields.get(key), dict)}
