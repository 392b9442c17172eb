"""A transformers config -> the model that would be loaded for it, on meta: which class, and in which state.

No weight gets memory and nothing is downloaded. It changes no global state of torch (the default dtype above all), so that
it may run beside a model that is generating.
"""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.planner.meta import born_in_bfloat16, on_meta

__all__ = [
    "MOST_POSITIONS",
    "POSITION_FIELDS",
    "built",
    "model_class_of",
    "prepare",
    "shorten_positions",
    "text_config",
]

POSITION_FIELDS = (
    "max_position_embeddings",
    "max_target_positions",
    "n_positions",
    "n_ctx",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
)
MOST_POSITIONS = 16_411  # no vocabulary has this size, so that a table of so many rows is one of positions


def prepare(config: Any) -> None:
    """Take out what is about weights, and choose the plain attention code: it asks tensors for no values."""
    _forget_dtypes(config)
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config
    config._attn_implementation = "eager"
    config._experts_implementation = "batched_mm"  # the grouped kernel wants widths that some configs do not have


def _forget_dtypes(config: Any) -> None:
    """No dtype anywhere in a config: building a part with one would change torch's default dtype for every thread."""
    config.dtype = None
    for key in config.sub_configs:
        part = getattr(config, key, None)
        if hasattr(part, "sub_configs"):
            _forget_dtypes(part)


def model_class_of(config: Any) -> Any:
    """The class that `architectures` names, else the one that transformers registers for generating text."""
    from transformers.models.auto import modeling_auto as auto

    sequence = (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING)
    text = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        auto.MODEL_FOR_MULTIMODAL_LM_MAPPING,
    )
    found: list[Any] = []
    for mapping in (*sequence, *text) if config.is_encoder_decoder else (*text, *sequence):
        classes = mapping.get(type(config), None)
        found += classes if isinstance(classes, list | tuple) else [classes] if classes is not None else []
    if not found:
        raise InvalidRequest(
            "config",
            f"transformers has no text-generating model for the type {config.model_type!r}, so there is no cache to plan:"
            " use the config of a language model",
        )
    named = set(config.architectures or ())
    return next((candidate for candidate in found if candidate.__name__ in named), found[0])


def built(model_class: Any, config: Any) -> Any:
    """The model as loading a bfloat16 checkpoint would make it."""
    with on_meta(), born_in_bfloat16():
        # as from_config does, but with no dtype in the config it leaves torch's default dtype alone
        return model_class._from_config(config)


def shorten_positions(config: Any) -> int:
    """Cut a table of positions that somebody typed absurdly long; returns the rows that were cut off.

    Models without rotary positions may build it in Python, row by row, which no device makes cheap.
    """
    if hasattr(config, "rope_parameters"):
        return 0
    missing = 0
    for field in POSITION_FIELDS:
        value = getattr(config, field, None)
        if isinstance(value, int) and value > MOST_POSITIONS:
            missing = value - MOST_POSITIONS
            setattr(config, field, MOST_POSITIONS)
    return missing


def text_config(config: Any) -> Any:
    """The part of a config that describes the text decoder; the config itself where it is flat."""
    return config.get_text_config(decoder=True)
