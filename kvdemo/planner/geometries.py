"""Geometries that are neither in memory nor in the catalogue: of a hub id, typed by hand, or as another engine would keep it.

What a config.json says and what a model's code stores is the planner's to find out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kvdemo.errors import InvalidRequest, ModelUnavailable
from kvdemo.facts.plans import Architecture
from kvdemo.facts.requests import checked_int, checked_text
from kvdemo.models.config import read_config
from kvdemo.models.hub import cached_snapshot, hub_cache, network_is_off
from kvdemo.models.source import resolve
from kvdemo.planner import architecture
from kvdemo.planner.by_hand import MAX_LAYERS, by_hand
from kvdemo.settings import Settings

__all__ = ["HAND_FIELDS", "fields_of", "from_hub", "typed", "with_one_page_size"]

HUB_ID = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
HAND_FIELDS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "head_dim": ("head_dim", "kv_channels"),
}
"""What is typed by hand, and where a config that transformers does not know may say it."""


def from_hub(hub_id: str, settings: Settings, *, network_is_off: Callable[[], bool] = network_is_off) -> Architecture:
    """The geometry of a model of the hub; only its config.json is fetched, and only where free entry is allowed.

    InvalidRequest("model", ...) for what is no id, ModelUnavailable where it cannot be had.
    """
    if settings.mode != "local":
        raise ModelUnavailable(
            "Models of the hub can be named only where kvdemo runs on your own machine. Paste the model's config.json instead."
        )
    name = checked_text("model", hub_id, max_chars=200).strip()
    if not HUB_ID.fullmatch(name):
        raise InvalidRequest("model", "is no hub id: write owner/name, for example Qwen/Qwen3-8B")
    if network_is_off() and cached_snapshot(name, hub_cache()) is None:
        raise ModelUnavailable(
            f"{name} is not in the local hub cache and the network is switched off. Paste the model's config.json instead."
        )
    source = resolve(name, settings.home, mode=settings.mode)
    return replace(architecture.from_config(read_config(source, settings), name=source.name), hub_id=source.hub_id)


def typed(
    layers: object,
    kv_heads: object,
    head_dim: object,
    *,
    num_parameters: int | None = None,
    name: str = "A model typed by hand",
) -> Architecture:
    """A geometry typed by hand; kv_heads is one number, or one per layer. InvalidRequest names the field."""
    num_layers = checked_int("layers", layers, 1, MAX_LAYERS)
    heads: int | Sequence[int]
    if isinstance(kv_heads, list | tuple):
        heads = [checked_int("kv_heads", count, 1, 65_536) for count in kv_heads]
    else:
        heads = checked_int("kv_heads", kv_heads, 1, 65_536)
    return by_hand(
        num_layers,
        heads,
        checked_int("head_dim", head_dim, 1, 65_536),
        num_parameters=None if num_parameters is None else checked_int("parameters", num_parameters, 1, 10**15),
        name=name,
    )


def fields_of(text: str) -> dict[str, int]:
    """What a config.json that was refused says about layers, KV heads and head_dim, as it stands; nothing is derived."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(config, dict):
        return {}
    parts = [config, *(value for value in config.values() if isinstance(value, dict))]
    found: dict[str, int] = {}
    for field, names in HAND_FIELDS.items():
        for value in (part.get(name) for part in parts for name in names):
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 65_536:
                found.setdefault(field, value)
    return found


def with_one_page_size(geometry: Architecture) -> Architecture:
    """The same model in an engine that has one page size for all layers: no window saves anything there."""
    layers = tuple(
        layer if layer.window is None else replace(layer, window=None, held_window=None) for layer in geometry.layers
    )
    return replace(geometry, layers=layers)
