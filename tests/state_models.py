"""Tiny seeded models with state layers, built in code."""

from __future__ import annotations

from typing import Any

__all__ = ["jamba", "mamba", "mamba2", "measured"]

COMMON = {"vocab_size": 258, "hidden_size": 32, "eos_token_id": 256, "pad_token_id": 257, "bos_token_id": None}


def mamba() -> Any:
    import torch
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    return MambaForCausalLM(MambaConfig(**COMMON, num_hidden_layers=2, state_size=4, initializer_range=0.3)).eval()


def jamba() -> Any:
    """Attention in every second layer, states in the others."""
    import torch
    from transformers import JambaConfig, JambaForCausalLM

    torch.manual_seed(0)
    config = JambaConfig(
        **COMMON,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=1,
        use_mamba_kernels=False,
        mamba_d_state=4,
        mamba_dt_rank=4,
        initializer_range=0.3,
    )
    return JambaForCausalLM(config).eval()


def mamba2() -> Any:
    """States alone, which several tokens at once do take up."""
    import torch
    from transformers import Mamba2Config, Mamba2ForCausalLM

    torch.manual_seed(0)
    config = Mamba2Config(
        **COMMON, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=4, n_groups=1, initializer_range=0.3
    )
    return Mamba2ForCausalLM(config).eval()


def measured(model: Any) -> Any:
    """The same with the fields of its config that a tiny LoadedModel is described by."""
    model.config.max_position_embeddings = 512
    model.config.num_key_value_heads, model.config.head_dim = 2, 8
    return model
