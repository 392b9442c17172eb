"""A config -> the model's own code on meta, a few tokens through it, and the cache that this leaves behind.

Nothing is downloaded and no weight gets memory. torch and transformers are imported inside the functions. It changes no
global state of torch (the default dtype above all), so that it may run beside a model that is generating.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import LayerFootprint
from kvdemo.planner import reading
from kvdemo.planner.building import MOST_POSITIONS, built, model_class_of, prepare, shorten_positions, text_config
from kvdemo.planner.meta import on_meta

__all__ = [
    "Run",
    "Trace",
    "has_static",
    "layers",
    "new_cache",
    "run",
    "skeleton",
    "text_config",
    "trace",
]

# What a model's own code raises on a config that it cannot use.
MODEL_CODE_ERRORS = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)
ENCODER_TOKENS = 5  # enough to read shapes; any number would do


@dataclass(frozen=True, slots=True)
class Trace:
    """A model on meta, what each of its layers keeps, and notes on what had to be left out.

    num_parameters   of the whole model, parameters that are shared counted once
    whole            the whole model, where `model` is only its text decoder
    """

    model: Any
    layers: tuple[LayerFootprint, ...]
    num_parameters: int
    whole: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """What one prefill left: the cache (None: the model keeps none) after num_tokens of one sequence."""

    cache: Any
    num_tokens: int
    encoder_tokens: int


def trace(config: Any, num_tokens: int, model_class: Any = None) -> Trace:
    """Build the model of a transformers config, run num_tokens through it and read its cache.

    Where the whole of a model for pictures or sound cannot be built or run on text, its language model is.
    InvalidRequest when there is no text-generating class; whatever the model's own code raises otherwise.
    """
    prepare(config)
    text = text_config(config)
    nested = type(text) is not type(config)
    model_class = model_class or model_class_of(config)
    if nested and model_class.config_class is type(text):
        return _trace(model_class, text, num_tokens)
    try:
        return _trace(model_class, config, num_tokens)
    except ImportError as error:
        if not nested:
            raise
        return replace(_trace(model_class_of(text), text, num_tokens), notes=(_without_parts(error),))
    except MODEL_CODE_ERRORS:
        if not nested:
            raise
        whole = built(model_class, config)
        found = _trace(model_class_of(text), text, num_tokens)
        return replace(found, num_parameters=_parameters(whole), whole=whole)


def skeleton(config: Any) -> Any:
    """The model of a transformers config on meta, not run; ValueError or InvalidRequest where there is none."""
    prepare(config)
    return built(model_class_of(config), config)


def _trace(model_class: Any, config: Any, num_tokens: int) -> Trace:
    missing = shorten_positions(config)
    model = built(model_class, config)
    tables = [
        parameter
        for parameter in model.parameters()
        if parameter.dim() and 0 <= parameter.shape[0] - MOST_POSITIONS < 4
    ]
    rows = sum(missing * parameter[0].numel() for parameter in tables) if missing else 0
    return Trace(model, tuple(layers(model, num_tokens)), _parameters(model) + rows, model)


def _parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _without_parts(error: ImportError) -> str:
    """A note that names the package without which the parts for pictures or sound cannot be built."""
    package = str(error).split("requires the ")[-1].split()[0] if "requires the " in str(error) else "a package"
    return f"Only the language model is counted: its picture or sound parts need {package}, which is not installed."


def layers(model: Any, num_tokens: int) -> list[LayerFootprint]:
    """One footprint per layer of a model on meta, cross-attention after the layers that look at the text itself."""
    first = run(model, num_tokens)
    if not hasattr(first.cache, "layers") and not hasattr(first.cache, "self_attention_cache"):
        kept = "nothing" if first.cache is None else f"a {type(first.cache).__name__}"
        raise InvalidRequest(
            "config",
            f"{type(model).__name__} has a memory of its own kind instead of a cache (its forward hands back {kept}),"
            " which is not counted here",
        )
    own = _read(model, first, lambda run: getattr(run.cache, "self_attention_cache", run.cache))
    if not hasattr(first.cache, "cross_attention_cache"):
        return own
    tokens = replace(first, num_tokens=first.encoder_tokens)
    cross = _read(model, tokens, lambda run: run.cache.cross_attention_cache)
    return own + [
        replace(layer, index=len(own) + layer.index, kind="cross", window=None, held_window=None) for layer in cross
    ]


def _read(model: Any, first: Run, part: Callable[[Run], Any]) -> list[LayerFootprint]:
    """Footprints from the first run, with further prefills only where a layer keeps more than the usual tensors."""
    views = reading.view(part(first))
    others = [run(model, length) for length in reading.needs_lengths(views)]
    observed = [(first.num_tokens, views), *((other.num_tokens, reading.view(part(other))) for other in others)]
    decoder = text_config(model.config)
    return reading.footprints(observed, getattr(decoder, "layer_types", None) or (), decoder)


def has_static(model: Any) -> bool:
    """Does transformers have a cache of fixed size for every layer of this model?"""
    from transformers import StaticCache

    if not getattr(model, "_supports_default_dynamic_cache", lambda: True)():
        return False
    try:
        StaticCache(config=text_config(model.config), max_cache_len=2)
    except KeyError:  # a type of layer without a class of fixed size
        return False
    return True


def run(model: Any, num_tokens: int, *, batch_size: int = 1, encoder_tokens: int = ENCODER_TOKENS) -> Run:
    """One prefill of num_tokens through a model on meta with the cache that `generate` would give it."""
    import torch

    model.eval()
    with on_meta():
        try:
            cache, output = _forward(model, _inputs(model, num_tokens, batch_size, encoder_tokens))
        except RuntimeError:
            if "inputs_embeds" not in inspect.signature(model.forward).parameters:
                raise
            # a decoder of sound takes several ids per position; embeddings have one shape everywhere
            states = torch.zeros((batch_size, num_tokens, _width(model)), dtype=torch.bfloat16)
            cache, output = _forward(model, {"inputs_embeds": states})
    if cache is None:
        names = ("cache", "past_key_values", "cache_params", "state", "mems")
        cache = next((output[name] for name in names if output.get(name) is not None), None)
    return Run(cache, num_tokens, encoder_tokens)


def _inputs(model: Any, num_tokens: int, batch_size: int, encoder_tokens: int) -> dict[str, Any]:
    """Token ids, and for an encoder-decoder what its encoder would hand over."""
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    ids = torch.zeros((batch_size, num_tokens), dtype=torch.long)
    if not _is_encoder_decoder(model):
        return {"input_ids": ids}
    states = torch.zeros((batch_size, encoder_tokens, _width(model)), dtype=torch.bfloat16)
    return {"decoder_input_ids": ids, "encoder_outputs": BaseModelOutput(last_hidden_state=states)}


def _forward(model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """(the cache that was given, None if the model makes its own; what the forward returned)"""
    cache = new_cache(model)
    output = model(**inputs, use_cache=True, **({} if cache is None else {"cache": cache}))
    return cache, output


def _width(model: Any) -> int:
    """Width of the states between layers."""
    width: int = getattr(model.config, "d_model", None) or model.config.hidden_size
    return width


def new_cache(model: Any) -> Any:
    """An empty growing cache as `generate` would make it; None for a model that makes its own."""
    from transformers import DynamicCache, EncoderDecoderCache

    if hasattr(model, "_supports_default_dynamic_cache") and not model._supports_default_dynamic_cache():
        return None
    decoder = text_config(model.config)
    cache = DynamicCache(config=decoder)
    for index, layer in enumerate(cache.layers):
        if getattr(layer, "sliding_window", 1) < 1:
            fields = [
                name
                for name, value in decoder.to_dict().items()
                if ("window" in name or "chunk" in name) and value == layer.sliding_window
            ]
            raise InvalidRequest(
                "config",
                f"{' or '.join(fields) or 'a field of windows'} gives layer {index} a window of {layer.sliding_window}"
                " tokens; write null for none",
            )
    if _is_encoder_decoder(model):
        return EncoderDecoderCache(cache, DynamicCache(config=decoder))
    return cache


def _is_encoder_decoder(model: Any) -> bool:
    return bool(model.config.is_encoder_decoder) and "encoder_outputs" in inspect.signature(model.forward).parameters
