"""The facts of a model that somebody else has loaded."""

from __future__ import annotations

import os
from typing import Any

from kvdemo.facts.model import ModelFacts

__all__ = ["facts_of", "kind_of", "name_of"]


def kind_of(model: Any) -> str:
    """ "llama", or the name of its class."""
    return str(getattr(getattr(model, "config", None), "model_type", None) or type(model).__name__)


def name_of(model: Any) -> str:
    """Its name on the hub; of a folder only the last part, for it may name a home; of one made in code its class."""
    named = str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
    return os.path.basename(named.rstrip("/\\")) if _is_folder(named) else named


def _is_folder(named: str) -> bool:
    return os.path.isabs(named) or named.count("/") > 1 or os.path.isdir(named)


def facts_of(model: Any) -> ModelFacts:
    """What its config and its tensors say."""
    config = model.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    named = str(getattr(config, "_name_or_path", "") or "")
    parameters = list(model.parameters())
    return ModelFacts(
        name=name_of(model),
        source="As the program loaded it.",
        model_type=kind_of(model),
        num_parameters=sum(parameter.numel() for parameter in parameters),
        weight_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(model.device),
        context_limit=getattr(text, "max_position_embeddings", None),
        cache_bytes_per_token=None,
        vocab_size=int(getattr(text, "vocab_size", 0) or 0),
        has_chat_template=False,
        attention=str(getattr(config, "_attn_implementation", None) or "not known"),
        hub_id=named if "/" in named and not _is_folder(named) else None,
    )
