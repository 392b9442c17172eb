"""What a run may ask of this model on this machine: checked in tokens and bytes before it stands in line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kvdemo.caches.prefix import KeptCaches, kept_slots
from kvdemo.caches.strategies import Strategy, available_strategy, slots_for
from kvdemo.errors import ContextFull, InvalidRequest
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.units import format_bytes
from kvdemo.generation.ends import end_ids
from kvdemo.generation.generation_config import refuse_generation_config
from kvdemo.generation.memory import free_bytes
from kvdemo.generation.prompt import EncodedPrompt, encode_prompt
from kvdemo.models.loaded import LoadedModel

__all__ = ["Admitted", "admit", "checked_slots", "lacking"]

FreeBytes = Callable[[str], int]
"""Bytes that could be allocated now on a type of device."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may run: encoded and checked, once.

    slots       that a cache of fixed size reserves for it
    to_grow     a kept cache of fixed size may get more of them, for later turns
    entered_s   when the request came, on the clock of time.perf_counter; prepare_s: how long it took until here
    """

    loaded: LoadedModel
    request: GenerationRequest
    strategy: Strategy
    encoded: EncodedPrompt
    slots: int
    to_grow: bool
    entered_s: float
    prepare_s: float

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.encoded.token_ids


def admit(
    loaded: LoadedModel,
    request: GenerationRequest,
    *,
    encoded: EncodedPrompt | None = None,
    kept: KeptCaches | None = None,
    owner: str = "",
    free: FreeBytes = free_bytes,
) -> Admitted:
    """Everything that can be refused is refused here, before anything runs or stands in line: InvalidRequest.

    encoded       the request's prompt, where somebody has encoded it already: that time counts as if it had been done here
    kept, owner   the store in which this owner's cache may be continued or replaced; None: a fresh cache
    """
    entered_s = time.perf_counter() - (0.0 if encoded is None else encoded.took_s)
    strategy = available_strategy(request.strategy, loaded.model)
    ends = frozenset[int]() if request.fixed_length else end_ids(loaded)
    refuse_generation_config(loaded, request.sampling, ends)
    encoded = encoded or encode_prompt(loaded, request.prompt)
    held_bytes = kept.storage_bytes(owner) if kept is not None and strategy.keeping != "no" else 0
    slots = checked_slots(loaded, request, strategy, len(encoded.token_ids), held_bytes=held_bytes, free_bytes=free)
    # More slots than this turn needs save the next ones a refill; they are no reason to refuse this one.
    to_grow = (
        request.cache_slots is None and lacking(loaded, strategy, kept_slots(strategy, slots), held_bytes, free) is None
    )
    prepare_s = time.perf_counter() - entered_s
    return Admitted(loaded, request, strategy, encoded, slots, to_grow, entered_s, prepare_s)


def checked_slots(
    loaded: LoadedModel,
    request: GenerationRequest,
    strategy: Strategy,
    prompt_tokens: int,
    *,
    held_bytes: int = 0,
    free_bytes: FreeBytes = free_bytes,
) -> int:
    """How many cache slots does this run reserve? InvalidRequest with the numbers when it cannot fit.

    held_bytes   of the kept cache that this run continues or replaces: they are in use, and not needed again
    """
    limit, new_tokens = loaded.facts.context_limit, request.max_new_tokens
    if limit is not None and prompt_tokens + new_tokens > limit:
        shorter = limit - prompt_tokens
        raise ContextFull(
            f"{prompt_tokens:,} prompt tokens and {new_tokens:,} new ones are {prompt_tokens + new_tokens:,}; "
            f"this model's limit is {limit:,}. Shorten the prompt{f' or ask for at most {shorter:,}' if shorter > 0 else ''}.",
            needed_tokens=prompt_tokens + new_tokens,
            limit_tokens=limit,
        )
    needed = prompt_tokens + new_tokens - 1
    if strategy.fixed_size and request.cache_slots is not None and request.cache_slots < needed:
        raise InvalidRequest(
            "cache_slots",
            f"{prompt_tokens:,} prompt tokens and {new_tokens:,} new ones need {needed:,} slots; "
            f"the cache would have {request.cache_slots:,}",
        )
    slots = slots_for(strategy, max(needed, request.cache_slots or 0))
    lack = lacking(loaded, strategy, slots if strategy.fixed_size else needed, held_bytes, free_bytes)
    if lack is not None:
        wanted, free = lack
        raise InvalidRequest(
            "max_new_tokens",
            f"the cache would take {format_bytes(wanted)} and {format_bytes(free)} are free. Ask for fewer tokens.",
        )
    return slots


def lacking(
    loaded: LoadedModel,
    strategy: Strategy,
    positions: int,
    held_bytes: int = 0,
    free_bytes: FreeBytes = free_bytes,
) -> tuple[int, int] | None:
    """(bytes that a cache of so many positions takes, bytes that are free for it), None where it fits.

    Every position at full width is more than any cache takes and costs nothing to know; only what would be refused by it is
    worth asking the model's own code, which knows windows, latent layers and what quantises.
    """
    if strategy.cache is None:
        return None
    device = "cpu" if strategy.cache.arguments.get("offloading") else loaded.model.device.type
    # Unknown only where no weights are loaded.
    wanted, free = positions * (loaded.facts.cache_bytes_per_token or 0), free_bytes(device) + held_bytes
    if wanted > free:
        exact = loaded.cache_bytes(strategy, positions)
        wanted = wanted if exact is None else exact
    return (wanted, free) if wanted > free else None
