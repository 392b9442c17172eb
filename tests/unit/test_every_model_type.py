"""Every causal model type of transformers: traced once, the prediction equals what a real cache holds after a real run.

The runs are on a CPU with a config cut down (tests/shrunk.py), on meta where that would still be too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import MemoryRequest
from kvdemo.planner import architecture, plan
from tests.shrunk import default_config, shrunk_config

LENGTHS = (5, 8, 21)  # below, at and above the windows, which are 8
BATCHES = (1, 3)
ENCODER_TOKENS = 6
MOST_PARAMETERS = 40_000_000  # more than that runs on meta

# The types that have no cache we can plan, and what the refusal says. It cannot grow unnoticed: every other type must pass.
REFUSED = {
    "blt": "has no attribute 'num_hidden_layers'",  # nor can its own generate make a cache
    "gemma4_assistant": "at least one has to keep its own cache",  # reads the cache of another model
    "gemma4_unified_assistant": "at least one has to keep its own cache",
    "openai-gpt": "recomputes every token",
    "reformer": "memory of its own kind",  # buckets
    "rwkv": "memory of its own kind",  # a list of states
    "xlnet": "the model's own code cannot work with these fields",  # mems, and positions made on the CPU
    "xlstm": "memory of its own kind",  # an xLSTMCache
}
# Types whose forward needs what `generate` prepares between two steps: one prefill of the whole length instead.
ONE_FORWARD = ("cpmant", "git", "prophetnet", "xlm")
# Decoders of sound take an id per codebook and position.
SEVERAL_IDS = ("musicgen_decoder", "musicgen_melody_decoder")
# One of each kind of cache, for every run of the tests.
SAMPLE = (
    "llama",
    "mistral",
    "deepseek_v3",
    "deepseek_v32",
    "gemma3n_text",
    "mamba",
    "falcon_h1",
    "minimax",
    "minimax_m3_vl_text",
    "deepseek_v4",
    "bart",
    "cpmant",
    "llama4_text",
    "rwkv",
)


def model_types() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


@pytest.mark.parametrize("model_type", SAMPLE)
def test_a_cache_of_each_kind_holds_what_was_predicted(model_type: str) -> None:
    check(model_type)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [name for name in model_types() if name not in SAMPLE])
def test_the_cache_of_every_model_type_holds_what_was_predicted(model_type: str) -> None:
    check(model_type)


def test_the_types_that_are_refused_are_few_and_known() -> None:
    assert set(REFUSED) <= set(model_types())
    assert len(model_types()) - len(REFUSED) >= 175


def check(model_type: str) -> None:
    """Trace, predict at three lengths and two batch sizes, run at the same, and weigh."""
    if model_type in REFUSED:
        text = default_config(model_type).to_json_string()
        with pytest.raises(InvalidRequest, match=REFUSED[model_type]):
            architecture.from_config(architecture.parse_config(text))
        return
    import torch

    from kvdemo.planner import tracing

    config = shrunk_config(model_type)
    found = architecture.from_config(architecture.parse_config(config.to_json_string()))
    model = tracing.trace(config, 3).model
    device, dtypes = "meta", ["bfloat16"]
    if sum(parameter.numel() for parameter in model.parameters()) < MOST_PARAMETERS:
        device, dtypes = "cpu", ["float32", "bfloat16"]
    lead = max(layer.lead_tokens for layer in found.layers)
    for dtype in dtypes:
        if device == "cpu":
            torch.manual_seed(0)
            model = type(model)._from_config(model.config, dtype=getattr(torch, dtype)).eval()
        for length in LENGTHS:
            for batch in BATCHES:
                made = plan.make_plan(found, MemoryRequest(length, batch, dtype, encoder_len=ENCODER_TOKENS))
                held = weigh(run(model, length, batch, device))
                assert held == [layer.held_bytes for layer in made.layers], (length, batch, dtype, "dynamic")
                if found.static:
                    held = weigh(run(model, length, batch, device, static_slots=length + lead))
                    assert held == [layer.reserved_bytes for layer in made.layers], (length, batch, dtype, "static")


def run(model: Any, length: int, batch: int, device: str, static_slots: int | None = None) -> Any:
    """The cache after a prompt of length - 1 tokens and one token more."""
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
    crossed = hasattr(cache, "self_attention_cache")
    found = []
    for part in (cache.self_attention_cache, cache.cross_attention_cache) if crossed else (cache,):
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
