"""What a model in memory weighs, and what one more token adds to its cache: read off the tensors, never off the config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["cache_bytes_per_token", "weigh"]


def weigh(model: PreTrainedModel) -> tuple[int, int]:
    """Elements of the parameters, and bytes of parameters and saved buffers; what is tied counts once."""
    parameters = {tensor.data_ptr(): tensor for tensor in model.parameters()}
    saved = {tensor.data_ptr(): tensor for tensor in model.state_dict(keep_vars=True).values()}
    weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in saved.values())
    return sum(tensor.numel() for tensor in parameters.values()), weight_bytes


def cache_bytes_per_token(model: PreTrainedModel) -> int:
    """Bytes that one more token adds to a growing cache of one sequence, found by adding one (the model's first steps)."""
    import torch
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    ids = torch.zeros((1, 2), dtype=torch.long, device=model.device)
    with torch.inference_mode():
        model(input_ids=ids, cache=cache, use_cache=True)
        before = _held_bytes(cache)
        model(input_ids=ids[:, :1], cache=cache, use_cache=True)
    return _held_bytes(cache) - before


def _held_bytes(cache: Any) -> int:
    """Logical bytes of every tensor that the cache's layers hold, whatever the layers call them."""
    import torch

    return sum(
        value.numel() * value.element_size()
        for layer in cache.layers
        for value in vars(layer).values()
        if isinstance(value, torch.Tensor)
    )
