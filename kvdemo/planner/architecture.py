"""A config -> one footprint per layer, by asking the model's own code on meta; or a geometry typed by hand.

It needs no weights and no network, and takes about a second whatever the size of the model. It does not know how
long or how many: that is arithmetic on the footprints (plan.py).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvdemo.caches.footprint import layer_tensors, layers_of
from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import Architecture, LayerFootprint, StoredWeights
from kvdemo.planner.by_hand import by_hand
from kvdemo.planner.config_text import check_fields, check_sizes, parse_config, suspects
from kvdemo.planner.limit import TookTooLong, time_limit

if TYPE_CHECKING:
    from kvdemo.planner.tracing import Trace

__all__ = ["by_hand", "config_object", "from_config", "from_loaded", "keeps_cache", "on_meta", "parse_config"]

TRACE_S = 60.0
PREFILL_TOKENS = 3  # fewer than any rate of compression that is in use
WAY_OUT = "enter its layers, KV heads and head_dim by hand"


def from_config(config: dict[str, Any], *, name: str = "", limit_s: float = TRACE_S) -> Architecture:
    """What does each layer of the model described by this config.json keep?

    limit_s   how long the model's own code may take, s
    Raises InvalidRequest("config", ...) with what is wrong and what to do.
    """
    made = config_object(config)
    path = config.get("_name_or_path")
    known = path if isinstance(path, str) and path else config["model_type"]
    found = _traced(made, name=name or known, dtype=_dtype_name(config), said=config, limit_s=limit_s)
    return replace(found, notes=(*found.notes, *_left_out(config)))


def _quantisation(config: dict[str, Any]) -> Any:
    """The quantization_config, where there is one: its own, its text decoder's, or under the name it had before."""
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in ("quantization_config", "compression_config"):
            if part.get(key):
                return part[key]
    return None


def _left_out(config: dict[str, Any]) -> tuple[str, ...]:
    """What the published files hold and transformers leaves out, in words."""
    more = next((config[key] for key in ("num_nextn_predict_layers", "num_mtp_layers") if key in config), None)
    if isinstance(more, bool) or not isinstance(more, int) or more < 1:
        return ()
    holds = "1 more layer" if more == 1 else f"{more} more layers"
    return (f"The published files hold {holds}, for predicting several tokens at once, which transformers leaves out.",)


def config_object(config: dict[str, Any]) -> Any:
    """This config.json as transformers' own config; InvalidRequest("config", ...) for what it does not know."""
    check_fields(config)
    from transformers import CONFIG_MAPPING, __version__

    model_type = config["model_type"]
    if model_type not in CONFIG_MAPPING:
        raise InvalidRequest(
            "config",
            f"transformers {__version__} does not know the model type {model_type!r}; it would need code that comes with"
            f" the weights, which is never run here: {WAY_OUT}",
        )
    check_sizes(config, CONFIG_MAPPING[model_type])
    with _as_invalid_request(config):
        return CONFIG_MAPPING[model_type].from_dict(_without_dtypes(config))


def on_meta(config: dict[str, Any]) -> Any:
    """The model of this config.json on meta, without weights; InvalidRequest("config", ...) where there is none."""
    from kvdemo.planner import tracing

    made = config_object(config)
    with _as_invalid_request(config):
        return tracing.skeleton(made)


def keeps_cache(model: Any) -> bool:
    """Does a forward of this model, on meta, leave keys, values or states behind? True where it cannot be traced."""
    import torch

    from kvdemo.planner import tracing

    try:
        cache = tracing.run(model.to(torch.bfloat16), PREFILL_TOKENS).cache
    except Exception:  # data-dependent code: nothing was learnt, so what the settings say stands
        return True
    return cache is not None and any(True for layer in layers_of(cache) for _ in layer_tensors(layer))


def from_loaded(model: Any) -> Architecture:
    """The same for a loaded transformers model: its config is traced, its own parameters are counted."""
    made = copy.deepcopy(model.config)
    found = _traced(
        made,
        name=str(getattr(model.config, "_name_or_path", "") or model.config.model_type),
        dtype=str(model.dtype).removeprefix("torch."),
        model_class=type(model),
    )
    return replace(found, num_parameters=sum(parameter.numel() for parameter in model.parameters()), loaded=True)


def _traced(
    config: Any,
    *,
    name: str,
    dtype: str,
    model_class: Any = None,
    said: dict[str, Any] | None = None,
    limit_s: float = TRACE_S,
) -> Architecture:
    """Build on meta, run, read; said: the config as it was given, for the names of its fields and how weights are stored."""
    from kvdemo.planner import tracing
    from kvdemo.planner.building import POSITION_FIELDS

    context_limit = _first_int(tracing.text_config(config), POSITION_FIELDS)
    quantised = _quantisation(said or {})
    try:
        with _as_invalid_request(said), time_limit(limit_s):
            found = tracing.trace(config, PREFILL_TOKENS, model_class)
            weights = _stored(found, quantised, dtype) if quantised else None
    except TookTooLong as error:
        raise InvalidRequest(
            "config",
            f"the model's own code was not done after {limit_s:.0f} s with these fields: look for an absurd one"
            f"{_to_look_at(said)}",
        ) from error
    model, notes = found.model, found.notes
    if weights is not None:
        method = weights.how.removeprefix("as published: ")
        notes += (f"The published weights are quantised ({method}); the cache is not.",)
    decoder = tracing.text_config(model.config)
    layers = _named(found.layers, decoder)
    if not any(layer.elements_per_token or layer.fixed or layer.streams for layer in layers):
        raise InvalidRequest(
            "config",
            "no layer of this model keeps a cache: its code recomputes every token, so there is nothing to plan",
        )
    if getattr(decoder, "is_decoder", True) is False and not decoder.is_encoder_decoder:
        notes += ("is_decoder is false: as it is, this model reads text and does not write it.",)
    idle = sum(layer.kind == "none" for layer in layers)
    if idle:
        notes += (
            f"{idle} of {len(layers)} layers kept nothing in a run on text (no attention, or attention to pictures).",
        )
    return Architecture(
        name=name,
        model_type=config.model_type,
        layers=tuple(layers),
        num_parameters=found.num_parameters,
        context_limit=context_limit,
        dtype=dtype,
        method="traced",
        attention_heads=_first_int(decoder, ("num_attention_heads",)),
        notes=notes,
        encoder_len=_first_int(model.config, ("max_source_positions",)),
        static=tracing.has_static(model),
        weights=weights,
    )


def _stored(found: Trace, quantised: Any, dtype: str) -> StoredWeights:
    """What the published weights take, those that the model on meta lacks among them."""
    from kvdemo.planner.published import published_weights

    further = found.num_parameters - sum(parameter.numel() for parameter in found.whole.parameters())
    return published_weights(found.whole, quantised, dtype, further)


def _named(layers: Iterable[LayerFootprint], config: Any) -> list[LayerFootprint]:
    """Layers that read another layer's cache, with that layer's index: the last one before it of its type that stores."""
    layers = list(layers)
    modes = getattr(config, "kv_sharing_modes", None) or ()
    types = getattr(config, "layer_types", None) or [""] * len(modes)
    for index, mode in enumerate(modes):
        if mode == "reuse" and layers[index].kind == "none":
            stores = [i for i in range(index) if modes[i] == "store" and types[i] == types[index]]
            layers[index] = replace(layers[index], kind="shared", shares=stores[-1] if stores else None)
    return layers


def _first_int(config: Any, names: Sequence[str]) -> int | None:
    """The first of these fields that is a positive whole number; one that varies by layer is none."""
    for field in names:
        try:
            value = getattr(config, field, None)
        except RuntimeError:  # a field with a value for each layer
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _dtype_name(config: dict[str, Any]) -> str:
    """The dtype of the weights as the config names it; float32 where it names none, as transformers loads it."""
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part.get(key), str):
                return str(part[key]).removeprefix("torch.")
    return "float32"


def _without_dtypes(value: Any) -> Any:
    """A copy of a config without dtypes and quantisation, which describe the stored weights, and without labels."""
    if isinstance(value, dict):
        dropped = ("dtype", "torch_dtype", "quantization_config", "num_labels", "id2label", "label2id")
        return {key: _without_dtypes(inner) for key, inner in value.items() if key not in dropped}
    if isinstance(value, list):
        return [_without_dtypes(inner) for inner in value]
    return value


def _to_look_at(config: dict[str, Any] | None, said: str = "") -> str:
    """The fields that are most likely wrong, in words that end a sentence; "" where none stands out."""
    from transformers import CONFIG_MAPPING

    if config is None:
        return ""
    try:
        found = suspects(config, CONFIG_MAPPING[config["model_type"]](), said)
    except Exception:  # a config class that has no defaults: then nobody knows what is usual
        return ""
    return f"; {', '.join(found[:3])}" if found else ""


class _as_invalid_request:  # noqa: N801 - used like a function
    """Whatever the model's own code raises on a config becomes one line for the person who gave the config."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._config = config

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, InvalidRequest):
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            said = re.sub(r"^Class validation error for validator '\w+': (\w+Error: )?", "", " ".join(lines))[:200]
            look = _to_look_at(self._config, said)
            raise InvalidRequest(
                "config",
                f"the model's own code cannot work with these fields ({said}){look}: correct them, or {WAY_OUT}",
            ) from error
