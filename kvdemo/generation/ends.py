"""What ends an answer: tokens and texts that files and requests name, looked for after every step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kvdemo.facts.requests import GenerationRequest

if TYPE_CHECKING:
    from kvdemo.models.loaded import LoadedModel

__all__ = ["end_ids", "ends_seen_at_once", "stop_strings"]


def stop_strings(loaded: LoadedModel, request: GenerationRequest) -> tuple[str, ...]:
    """The texts that end an answer: those of the request and of generation_config.json; none at a fixed length."""
    if request.fixed_length:
        return ()
    own = loaded.model.generation_config.stop_strings or ()
    return (*request.stop_strings, *([own] if isinstance(own, str) else own))


def end_ids(loaded: LoadedModel) -> frozenset[int]:
    """The tokens that end an answer: all that generation_config.json, config.json and the tokenizer name.

    Each of them may name other ones: a chat template ends turns with the tokenizer's while generation_config.json names
    the base model's, and a generation_config.json without any hides those of config.json from generate.
    """
    model = loaded.model
    named = (
        model.generation_config.eos_token_id,
        getattr(model.config, "eos_token_id", None),
        getattr(model.config.get_text_config(decoder=True), "eos_token_id", None),
        loaded.tokenizer.eos_token_id,
    )
    ids = (token_id for ends in named for token_id in (ends if isinstance(ends, list | tuple) else [ends]))
    return frozenset(token_id for token_id in ids if isinstance(token_id, int) and token_id >= 0)  # -1: none


@contextmanager
def ends_seen_at_once() -> Iterator[None]:
    """Inside the block generate looks after every step, on every device, and a token is told when it is there.

    On MPS transformers looks one step late. Its deferred check (DeferredStopCheck in transformers/generation/utils.py) saves
    a wait for the device at each step, at the price of one forward too many and of every token told a step late: the first
    token's time would hold two forwards, and positions and cache would count the one that is undone. The wait that comes
    back is one that our clocks ask for anyway.
    The name is private: where it is gone, nothing is done. One block at a time, in the thread that owns the model.
    """
    from transformers.generation import utils

    deferred: Any = getattr(utils, "DeferredStopCheck", None)
    if deferred is None:
        yield
        return
    as_it_was = deferred.__dict__["is_supported"]
    deferred.is_supported = staticmethod(_never)
    try:
        yield
    finally:
        deferred.is_supported = as_it_was


def _never(*_: object, **__: object) -> bool:
    return False
