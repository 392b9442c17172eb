"""Does a model write text from left to right? Asked of its config, then of its own code with a few tokens.

transformers loads masked, classifying and permuted models, and half of an encoder-decoder, as if they did: they chat, in
nonsense, and with a cache their answers differ from those without.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["looks_ahead", "no_writer", "other_purpose"]

LENGTH = 6  # tokens of the text whose last one is changed: any small number would do
PURPOSES = (
    (r"Classification$|NextSentencePrediction$", "a classifier"),
    (r"RewardModel$|ForReward", "a model that marks answers"),
    (r"QuestionAnswering$|MultipleChoice$", "a model that picks an answer out of what it is given"),
    (r"MaskedLM$", "a masked model, which fills gaps in a text"),
)
HALVES = ("is_encoder_decoder", "add_cross_attention", "cross_attention_hidden_size")

log = logging.getLogger(__name__)


def other_purpose(config: Mapping[str, Any], *, encoder_decoder: bool = False) -> str | None:
    """A sentence on what the model of this config.json is, where it says that it is something else; None where not.

    encoder_decoder   models of this type are encoder-decoders, even where this is one half of them
    """
    named = config.get("architectures")
    architectures = [str(name) for name in named] if isinstance(named, list) else []
    shown = f" ({architectures[0]})" if architectures else ""
    if encoder_decoder or any(config.get(field) for field in HALVES):
        return no_writer(f"it is an encoder-decoder or a half of one{shown}, where one half reads the whole text first")
    for pattern, words in PURPOSES:
        if architectures and all(re.search(pattern, name) for name in architectures):
            return no_writer(f"it is {words}{shown}")
    return None


def looks_ahead(model: PreTrainedModel) -> str | None:
    """The same for a model in memory whose logits at a position change with a token that follows it.

    None where they do not, and where its code cannot be asked.
    """
    import torch

    vocab_size = model.config.get_text_config(decoder=True).vocab_size
    ids = torch.arange(1, LENGTH + 1, device=model.device)[None] % vocab_size
    changed = ids.clone()
    changed[0, -1] = 0

    try:
        with torch.inference_mode():
            before, after = (model(input_ids=given, use_cache=False).logits[0, :-1].float() for given in (ids, changed))
    except Exception as error:  # code that wants to be called otherwise: nothing was learnt
        log.warning("the model was not tried for looking ahead: %s", type(error).__name__, exc_info=error)
        return None
    # Rounding may differ where tokens are sorted by expert; what a token takes from a later one is far above it.
    rounding = 1e-4 if model.dtype == torch.float32 else 2e-2
    if not (before - after).abs().max() > rounding * before.abs().max():
        return None
    return no_writer(f"its code lets every token look at those that follow it ({type(model).__name__})")


def no_writer(why: str) -> str:
    """The sentence, without its subject, that refuses such a model."""
    return f"is not a model that writes text from left to right: {why}. Use a causal language model."
