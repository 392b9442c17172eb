"""Model files to find and load: a small real GGUF (the tiny model, unquantised), and a folder that only looks complete."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from tests.tiny import EOS_ID, PAD_ID, tiny_model, tiny_tokenizer

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(
    path: Path, model: Any = None, *, architecture: str = "llama", eot_token_id: int | None = None
) -> Path:
    """Write the tiny model (or a changed one) to `path`. Its vocabulary has 259 entries: 256 bytes, end, padding, " t"."""
    import gguf

    model = model or tiny_model(vocab_size=259)
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    vocabulary = tiny_tokenizer().get_vocab()
    tokens = [token for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])] + ["Ġt"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if index in (EOS_ID, PAD_ID) else 1 for index in range(len(tokens))])
    writer.add_token_merges(["Ġ t"])
    writer.add_eos_token_id(EOS_ID)
    writer.add_pad_token_id(PAD_ID)
    if eot_token_id is not None:
        writer.add_eot_token_id(eot_token_id)
    writer.add_add_bos_token(False)
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        part = next((part for part in heads if part in name), None)
        if part is not None:  # llama.cpp turns pairs of neighbours where transformers turns halves
            rows = data.reshape(heads[part], 2, -1, data.shape[-1])
            data = rows.swapaxes(1, 2).reshape(data.shape)
        writer.add_tensor(_gguf_name(name), data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_folder(folder: Path) -> Path:
    """A folder in which everything is there and whole, with one tensor of two zeros."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return folder


def _gguf_name(name: str) -> str:
    outside = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in outside:
        return outside[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"
