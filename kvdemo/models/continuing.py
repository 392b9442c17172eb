"""May a cache be filled in more than one go? Asked of the model's own code, with a few tokens.

Attention looks at whatever the cache holds. The code of some state space layers takes up the state that an earlier forward
left only when it is given a single token, and starts from zero for several: quietly, with other answers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["STARTS_OVER", "STATES_ALONE", "continues", "unkept_because"]

STARTS_OVER = (
    "This model's state layers cannot be continued by several tokens at once, so nothing is kept between turns."
)
STATES_ALONE = (
    "This model keeps states alone, which do not tell how many tokens they have seen, so nothing is kept between turns."
)
log = logging.getLogger(__name__)

HALF = 4  # tokens given before and after: any small number would do


def continues(model: PreTrainedModel) -> bool:
    """Does a forward of several tokens continue what an earlier one left in the cache, as single tokens do?

    True without a run for a model that keeps no states. The difference from one whole forward is held against that of
    single steps, which is what rounding makes of it.
    """
    import torch
    from transformers import DynamicCache

    config = model.config.get_text_config(decoder=True)
    if not any(hasattr(layer, "recurrent_states") for layer in DynamicCache(config=config).layers):
        return True
    ids = torch.arange(2 * HALF, device=model.device)[None] % config.vocab_size

    def last_logits(*parts: torch.Tensor) -> torch.Tensor:
        cache = DynamicCache(config=config)
        for part in parts:
            logits = model(part, cache=cache, use_cache=True).logits
        return logits[0, -1].float()

    try:
        with torch.inference_mode():
            whole = last_logits(ids)
            rounding = (last_logits(*ids.split(1, dim=1)) - whole).abs().max()
            difference = (last_logits(*ids.split(HALF, dim=1)) - whole).abs().max()
            return bool(difference <= 4 * rounding + 1e-3 * whole.abs().max())
    except Exception as error:  # code that wants to be called otherwise: nothing was learnt, so nothing is continued
        log.warning("the model was not tried for continuing: %s", type(error).__name__, exc_info=error)
        return False


def unkept_because(model: PreTrainedModel, continues: bool) -> str:
    """Why can no later run go on with this model's cache? "" where one can."""
    from transformers import DynamicCache

    if not continues:
        return STARTS_OVER
    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    return "" if any(hasattr(layer, "get_seq_length") for layer in layers) else STATES_ALONE
