"""Every causal model type of transformers: traced once, the prediction equals what a real cache holds after a real run.

The runs are on a CPU with a config cut down (tests/shrunk.py), on meta where that would be too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import Architecture, MemoryRequest
from kvdemo.planner import architecture, plan
from tests.shrunk import default_config, shrunk_config

LENGTHS = (5, 8, 21)  # below, at and above the window of 8
BATCHES = (1, 3)
ENCODER_TOKENS = 6
MOST_PARAMETERS = 40_000_000  # more than that runs on meta

# Types that have no cache we can plan, with what the code says.
REFUSED: dict[str, str] = {}
# Types whose own code does not run with a StaticCache.
NO_STATIC: dict[str, str] = {}
# Types whose forward needs what `generate` prepares between two steps: one prefill of the whole length.
ONE_FORWARD = ("cpmant", "git", "prophetnet", "xlm")
# Types that take an id per codebook and position.
SEVERAL_IDS = ("musicgen_decoder", "musicgen_melody_decoder")
SAMPLE = ("llama",)


def model_types() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def config_of(model_type: str) -> Any:
    try:
        return shrunk_config(model_type)
    except Exception:
        return default_config(model_type)


def check(model_type: str) -> None:
    import torch

    from kvdemo.planner import tracing

    config = config_of(model_type)
    found = architecture.from_config(architecture.parse_config(config.to_json_string()))
    model = tracing.trace(config, 7).model
    on_cpu = sum(parameter.numel() for parameter in model.parameters()) < MOST_PARAMETERS
    dtype = "bfloat16"
    if on_cpu:
        torch.manual_seed(0)
        model, dtype = type(model)._from_config(model.config).eval(), "float32"
    device = "cpu" if on_cpu else "meta"
    for length in LENGTHS:
        for batch in BATCHES:
            made = plan.make_plan(found, MemoryRequest(length, batch, dtype, encoder_len=ENCODER_TOKENS))
            cache = run(model, length, batch, device)
            assert weigh(cache) == [layer.held_bytes for layer in made.layers], (length, batch, "dynamic")
            if found.static and model_type not in NO_STATIC:
                lead = max(layer.lead_tokens for layer in found.layers)
                cache = run(model, length, batch, device, static_slots=length + lead)
                assert weigh(cache) == [layer.reserved_bytes for layer in made.layers], (length, batch, "static")


def run(model: Any, length: int, batch: int, device: str, static_slots: int | None = None) -> Any:
    """The cache after a prompt of length - 1 tokens and one token more."""
    import contextlib

    import torch
    from transformers import EncoderDecoderCache, StaticCache
    from transformers.modeling_outputs import BaseModelOutput

    from kvdemo.planner import tracing
    from kvdemo.planner.meta import on_meta

    with on_meta() if device == "meta" else torch.no_grad():
        cache = tracing.new_cache(model)
        crossed = hasattr(cache, "cross_attention_cache")
        if static_slots is not None:
            decoder = tracing.text_config(model.config)
            cache = StaticCache(config=decoder, max_cache_len=static_slots)
            if crossed:
                cache = EncoderDecoderCache(cache, StaticCache(config=decoder, max_cache_len=ENCODER_TOKENS))
        inputs: dict[str, Any] = {"use_cache": True}
        if crossed:
            width = getattr(model.config, "d_model", None) or model.config.hidden_size
            states = torch.zeros((batch, ENCODER_TOKENS, width), device=device, dtype=model.dtype)
            inputs["encoder_outputs"] = BaseModelOutput(last_hidden_state=states)
        name = "decoder_input_ids" if crossed else "input_ids"
        rows = batch * (model.config.num_codebooks if model.config.model_type in SEVERAL_IDS else 1)
        for tokens in (length,) if model.config.model_type in ONE_FORWARD else (length - 1, 1):
            ids = torch.ones((rows, tokens), dtype=torch.long, device=device)
            output = model(**inputs, **{name: ids}, **({} if cache is None else {"cache": cache}))
            cache = output.cache if cache is None else cache
    return cache


def weigh(cache: Any) -> list[int]:
    """Bytes of each layer: every tensor in it once, counters left out."""
    caches = (
        [cache.self_attention_cache, cache.cross_attention_cache] if hasattr(cache, "self_attention_cache") else [cache]
    )
    found = []
    for part in caches:
        extra = getattr(part, "linear_cache", [])
        for index in range(max(len(part.layers), len(extra))):
            inside = [vars(part.layers[index])] if index < len(part.layers) else []
            inside += extra[index : index + 1]
            tensors = {id(tensor): tensor for tensor in tensors_in(inside) if tensor.dim() >= 2}
            found.append(sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))
    return found


def tensors_in(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)
