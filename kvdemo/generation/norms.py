"""How long are the key and value vectors of one head, position by position? An untimed pass over a text that was made."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Sequence

from kvdemo.caches.look import look_into
from kvdemo.caches.strategies import strategy_of
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Waiting, Working
from kvdemo.facts.steps import CacheNorms
from kvdemo.generation.turnstile import Turnstile
from kvdemo.generation.untimed import Stopped, untimed
from kvdemo.models.loaded import LoadedModel

__all__ = ["cache_norms"]

CHUNK = 512  # positions per forward, so that a long text takes no more memory than in Chat
DIGITS = 4


def cache_norms(
    loaded: LoadedModel,
    turnstile: Turnstile,
    ids: tuple[int, ...],
    layer: int,
    head: int,
    stop: threading.Event | None = None,
) -> Generator[Waiting | Working, None, CacheNorms | None]:
    """Of a dynamic cache that holds these tokens; it stands in line and is stopped like any run.

    None when it was stopped or failed. InvalidRequest for a layer or head that the cache does not have, or one that keeps no
    keys and values position by position.
    """
    return (yield from untimed(loaded, turnstile, lambda stops: _norms(loaded, ids, layer, head, stops), stop))


def _norms(
    loaded: LoadedModel, ids: tuple[int, ...], layer: int, head: int, stops: Sequence[threading.Event]
) -> CacheNorms:
    import torch

    model = loaded.model
    cache = strategy_of("dynamic").make(model.config, len(ids))
    assert cache is not None, "the dynamic strategy makes a cache"
    few = {"logits_to_keep": 1} if model._supports_logits_to_keep() else {}
    each = CHUNK if loaded.continues else len(ids)
    with torch.inference_mode():
        for part in torch.tensor([ids], device=model.device).split(each, dim=1):
            if any(stop.is_set() for stop in stops):
                raise Stopped
            model(part, cache=cache, use_cache=True, **few)
        found = look_into(cache, len(ids), layer, head)
    if not all(map(math.isfinite, (*found.key_norms, *found.value_norms))):
        raise ArithmeticError("the vectors of the cache are not numbers")
    if not found.key_norms:
        raise InvalidRequest("layer", f"{layer} keeps no keys and values position by position")
    return CacheNorms(layer, head, found.first, _rounded(found.key_norms), _rounded(found.value_norms))


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values)
