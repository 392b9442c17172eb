"""How a strategy's Cache object is made, and how the same is written: as Python code, and in generation_config.json.

It knows transformers' cache classes by name; which of them is worth what, the strategies table says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedConfig

__all__ = ["SLOTS", "CacheMaker"]

SLOTS = "{slots}"
"""Stands in code for the number of slots, which belongs to a request."""

LARGEST_GROUP = 64
DIMENSIONS = ("head_dim", "v_head_dim", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")


@dataclass(frozen=True, slots=True)
class CacheMaker:
    """One of transformers' cache classes with its arguments.

    implementation     generate's own word for it (cache_implementation), "" for what it makes by default
    sized              it reserves slots: max_cache_len
    grouped            a quantised cache scales its values in groups, which must divide what every token brings. So many
                       groups are taken together (hqq packs the values of two into one byte); 0: it has no groups
    """

    class_name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    implementation: str = ""
    sized: bool = False
    grouped: int = 0

    def make(self, config: PreTrainedConfig, slots: int) -> Cache:
        """A new, empty cache."""
        import transformers

        sized = {"max_cache_len": slots} if self.sized else {}
        cache: Cache = getattr(transformers, self.class_name)(config=config, **sized, **self._arguments(config))
        return cache

    def code(self, config: PreTrainedConfig) -> str:
        """The expression that makes it for this config, with SLOTS for the number of slots."""
        return self.expression(_group_size(config, self.grouped) if self.grouped else None)

    def expression(self, group_size: int | None = None) -> str:
        """The same where only the size of its groups is known; None: transformers' own."""
        group = {"q_group_size": group_size} if self.grouped and group_size is not None else {}
        written = [f"{name}={_literal(value)}" for name, value in {**self.arguments, **group}.items()]
        return f"{self.class_name}({', '.join(['config=model.config', *self._sized(), *written])})"

    def settings(self, config: PreTrainedConfig) -> dict[str, Any]:
        """The keys of generation_config.json that make generate build it by itself."""
        named = {"cache_implementation": self.implementation} if self.implementation else {}
        arguments = self._arguments(config) if self.implementation == "quantized" else {}
        return {"use_cache": True, **named, **({"cache_config": arguments} if arguments else {})}

    def _sized(self) -> list[str]:
        return [f"max_cache_len={SLOTS}"] if self.sized else []

    def _arguments(self, config: PreTrainedConfig) -> dict[str, Any]:
        group = {"q_group_size": _group_size(config, self.grouped)} if self.grouped else {}
        return {**self.arguments, **group}


def _literal(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _group_size(config: PreTrainedConfig, groups: int) -> int:
    """The largest power of two up to 64, `groups` of which divide what one token adds to a layer's keys, or its values."""
    text = config.get_text_config(decoder=True)
    sizes = [size for name in DIMENSIONS if isinstance(size := getattr(text, name, None), int) and size > 0]
    if not isinstance(getattr(text, "head_dim", None), int):
        sizes.append(text.hidden_size // text.num_attention_heads)
    # Where keys and values are kept as one latent vector, heads do not multiply it.
    latent = getattr(text, "kv_lora_rank", None)
    heads = 1 if latent else getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return math.gcd(LARGEST_GROUP, *(heads * size // groups for size in sizes))
