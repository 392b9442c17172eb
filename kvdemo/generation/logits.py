"""Are the logits numbers at all, and how far apart are two strategies' before their tokens differ?

The second is an untimed pass over tokens that both made.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from kvdemo.caches.strategies import slots_for, strategy_of
from kvdemo.facts.events import Waiting, Working
from kvdemo.generation.turnstile import Turnstile
from kvdemo.generation.untimed import Stopped, untimed
from kvdemo.models.loaded import LoadedModel

if TYPE_CHECKING:
    import torch

__all__ = ["NotNumbers", "largest_gap", "margin", "refuse_choice_of_no_number", "refuse_what_is_no_number"]


class NotNumbers(Exception):
    """The logits of a step hold NaN, or infinities where the largest should be: no choice among them means anything."""

    def __init__(self) -> None:
        super().__init__(
            "the model's logits are not numbers (NaN or infinite), so no token can be chosen: its weights are damaged, "
            "or too large for this dtype (float32 holds the largest)"
        )


def refuse_what_is_no_number(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """A logits processor of generate: the scores [1, vocab] as they are, or NotNumbers.

    argmax takes a NaN for the largest, so that one of them in a column makes every greedy run choose that same token.
    """
    if not scores.max().isfinite():  # the largest is NaN where any is; words that are masked out may be -inf
        raise NotNumbers
    return scores


def refuse_choice_of_no_number(scores: torch.Tensor, token_id: int) -> None:
    """The same for the token that was the largest of the scores [1, vocab], without another look at all of them.

    A NaN anywhere is the largest for argmax, and so is an infinity; where all are -inf, so is the one that was taken.
    """
    if not scores[0, token_id].isfinite():
        raise NotNumbers


def largest_gap(
    loaded: LoadedModel,
    turnstile: Turnstile,
    prompt_ids: tuple[int, ...],
    made: tuple[int, ...],
    baseline: str,
    candidate: str,
    stop: threading.Event | None = None,
) -> Generator[Waiting | Working, None, float | None]:
    """The largest difference between the two strategies' logits over the steps that chose `made`, and the one after it.

    Both are given the same tokens, whatever they would have chosen. It stands in line like any run, and like a run it ends
    within one forward when `stop` is set. Yields a sign of life every half second. None when it was stopped or failed: it
    is a supplement to runs that were made.
    """
    return (
        yield from untimed(
            loaded, turnstile, lambda stops: _gap(loaded, prompt_ids, made, baseline, candidate, stops), stop
        )
    )


def margin(
    loaded: LoadedModel,
    turnstile: Turnstile,
    prompt_ids: tuple[int, ...],
    made: tuple[int, ...],
    one: int,
    other: int,
    stop: threading.Event | None = None,
) -> Generator[Waiting | Working, None, float | None]:
    """By how much does the token `one` beat the token `other` after these? The difference of their two logits, plain forward.

    It stands in line, and is stopped, like `largest_gap`; None where that one gives None.
    """

    def difference(stops: Sequence[threading.Event]) -> float:
        logits = _ending_with(loaded, (*prompt_ids, *made), stops)
        return float(logits[one] - logits[other])

    return (yield from untimed(loaded, turnstile, difference, stop))


def _ending_with(loaded: LoadedModel, ids: tuple[int, ...], stops: Sequence[threading.Event]) -> torch.Tensor:
    """Logits [vocab] in float32 after the last of these tokens."""
    import torch

    if any(stop.is_set() for stop in stops):
        raise Stopped
    few = {"logits_to_keep": 1} if loaded.model._supports_logits_to_keep() else {}
    with torch.inference_mode():
        return (
            loaded.model(torch.tensor([ids], device=loaded.model.device), use_cache=False, **few).logits[0, -1].float()
        )


def _gap(
    loaded: LoadedModel,
    prompt_ids: tuple[int, ...],
    made: tuple[int, ...],
    baseline: str,
    candidate: str,
    stops: Sequence[threading.Event],
) -> float:
    import torch

    def before_forward(*_: object) -> None:
        if any(stop.is_set() for stop in stops):
            raise Stopped

    loaded.gate.listener = before_forward
    try:
        with torch.inference_mode():
            one, other = (_logits(loaded, prompt_ids, made, key) for key in (baseline, candidate))
            for logits in (one, other):
                if not logits.amax(dim=-1).isfinite().all():
                    raise NotNumbers
            return float(
                (one - other).abs().nan_to_num(nan=0.0, posinf=math.inf).max()
            )  # NaN: masked out, -inf, in both
    finally:
        loaded.gate.listener = None


def _logits(loaded: LoadedModel, prompt_ids: tuple[int, ...], made: tuple[int, ...], key: str) -> torch.Tensor:
    """Logits [len(made) + 1, vocab] in float32, step by step with the strategy's own cache; in one pass without."""
    import torch

    model, strategy = loaded.model, strategy_of(key)
    ids = torch.tensor([[*prompt_ids, *made]], device=model.device)
    cache = strategy.make(model.config, slots_for(strategy, ids.shape[1]))
    first = len(prompt_ids)
    # Logits of a long prompt for every word of the vocabulary would take more than the weights.
    few = {"logits_to_keep": len(made) + 1} if model._supports_logits_to_keep() else {}
    if cache is None:
        return model(ids, use_cache=False, **few).logits[0, -len(made) - 1 :].float()
    last = {"logits_to_keep": 1} if few else {}
    given = [ids[:, :first], *ids[:, first:].split(1, dim=1)]
    return torch.cat([model(part, cache=cache, use_cache=True, **last).logits[0, -1:] for part in given]).float()
