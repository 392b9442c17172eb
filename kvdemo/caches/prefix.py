"""Caches kept between requests: one per owner, continued where the next prompt begins with the same tokens.

Prompts are compared by token ids, never by text. A kept cache is continued in place or cropped; it is copied only where two
continuations need it (the operator's shared prefix). The budget counts storage bytes; the least recently used goes first.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from kvdemo.caches.footprint import cached_tokens, layers_of, room_of, weigh
from kvdemo.caches.look import look_into
from kvdemo.caches.strategies import Strategy
from kvdemo.facts.events import Reuse, ReuseHow
from kvdemo.facts.steps import CacheLook
from kvdemo.facts.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedConfig, PreTrainedModel

__all__ = ["KeptCaches", "common_prefix", "kept_slots"]

MIN_KEPT_SLOTS = 512
MAX_NOTES = 1000  # owners who came back to nothing; not every one of them says that he has left
FAILED = "The turn before failed, and the kept cache was dropped with it."


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens do two sequences share from the start?"""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


@dataclass(frozen=True, slots=True)
class _Kept:
    strategy: str
    cache: Cache
    token_ids: tuple[int, ...]
    storage_bytes: int
    used_s: float


class KeptCaches:
    """The store. take and keep are called in the model's thread; release, sweep and the figures from anywhere.

    budget_bytes   bytes kept -> bytes that may be kept: asked each time a cache is kept, that one counted
    idle_s         a cache that was not used for so long is dropped
    """

    def __init__(
        self, budget_bytes: Callable[[int], int], idle_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._budget_bytes = budget_bytes
        self._idle_s = idle_s
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._taken: set[str] = set()
        self._dropped: OrderedDict[str, str] = OrderedDict()  # owner -> why what was kept for him is gone
        self._shared: _Kept | None = None
        self._lock = threading.Lock()

    def take(
        self,
        owner: str,
        strategy: Strategy,
        token_ids: tuple[int, ...],
        slots: int,
        config: PreTrainedConfig,
        *,
        to_grow: bool = True,
    ) -> tuple[Cache | None, Reuse]:
        """The cache to continue for this prompt, and what of it is reused; at least one prompt token stays to be processed.

        The owner's cache leaves the store until `keep` brings it back. `slots`: positions that this run needs; a new cache
        of fixed size gets more, for later turns, unless `to_grow` is off.
        """
        if strategy.keeping == "no":  # what is kept stays for the next turn that can use it
            return strategy.make(config, slots), Reuse("fresh", 0, 0)
        with self._lock:
            kept = self._kept.pop(owner, None)
            dropped = self._dropped.pop(owner, "")
            if owner in self._taken:  # and never brought back
                dropped = FAILED
            self._taken.add(owner)
            shared = self._shared
        shared_tokens = _begins_with(shared, strategy, token_ids)
        no_room = _no_room(shared.cache, slots, "The shared system prompt's cache") if shared and shared_tokens else ""
        if no_room:
            shared_tokens = 0
        reuse = Reuse("fresh", 0, 0, dropped or no_room)
        if kept is not None and common_prefix(kept.token_ids, token_ids) >= shared_tokens:
            reuse = _fit(kept, strategy, token_ids, slots)
            if reuse.reused_tokens:
                return kept.cache, reuse
        if shared is not None and shared_tokens:
            why = "The shared system prompt was copied, not processed again."
            return copy.deepcopy(shared.cache), Reuse("copied", shared_tokens, shared_tokens, why)
        return strategy.make(config, kept_slots(strategy, slots) if to_grow else slots), reuse

    def keep(self, owner: str, strategy: Strategy, cache: Cache, token_ids: tuple[int, ...]) -> None:
        """Keep an owner's cache, which holds exactly these tokens, unless the owner has gone meanwhile or it is over budget."""
        if strategy.keeping == "no":
            return
        with self._lock:
            if owner not in self._taken:
                return
            self._taken.discard(owner)
            if not token_ids:
                return
            new = _Kept(strategy.key, cache, token_ids, weigh(cache).storage_bytes, self._clock())
            total = new.storage_bytes + sum(kept.storage_bytes for kept in self._kept.values())
            budget = self._budget_bytes(total)
            why = f"The kept cache was dropped: all that are kept together may take {format_bytes(budget)}."
            if new.storage_bytes > budget:
                self._note(owner, why)
                return
            self._kept[owner] = new
            while total > budget:
                oldest, gone = self._kept.popitem(last=False)
                total -= gone.storage_bytes
                self._note(oldest, why)

    def share(self, owner: str) -> int:
        """Make an owner's kept cache the operator's prefix, copied for every prompt that begins with it; its tokens."""
        with self._lock:
            self._shared = self._kept.pop(owner, None)
            return len(self._shared.token_ids) if self._shared is not None else 0

    def fill_shared(self, model: PreTrainedModel, strategy: Strategy, token_ids: tuple[int, ...]) -> None:
        """Process these tokens into the operator's prefix, in the model's thread."""
        import torch

        cache = strategy.make(model.config, len(token_ids))
        if cache is None:
            return
        # Logits of a long prefix for every word of the vocabulary would take more than the weights.
        few = {"logits_to_keep": 1} if model._supports_logits_to_keep() else {}
        with torch.inference_mode():
            model(torch.tensor([token_ids], device=model.device), cache=cache, use_cache=True, **few)
        if cached_tokens(cache) != len(token_ids):  # states alone: nothing says how much of a prompt they have seen
            return
        with self._lock:
            self._shared = _Kept(strategy.key, cache, token_ids, weigh(cache).storage_bytes, self._clock())

    def release(self, owner: str) -> None:
        """Forget an owner: his cache is freed now, or when the run that uses it ends."""
        with self._lock:
            self._kept.pop(owner, None)
            self._dropped.pop(owner, None)
            self._taken.discard(owner)

    def sweep(self) -> None:
        """Drop what was idle for too long."""
        with self._lock:
            for owner in [owner for owner, kept in self._kept.items() if self._clock() - kept.used_s > self._idle_s]:
                del self._kept[owner]
                self._note(owner, f"The kept cache was dropped after {format_seconds(self._idle_s)} without a turn.")

    def look(self, owner: str, layer: int = 0, head: int = 0) -> CacheLook | None:
        """Into an owner's kept cache, in the model's thread; None where nothing is kept. InvalidRequest as for look_into."""
        with self._lock:
            kept = self._kept.get(owner)
        return None if kept is None else look_into(kept.cache, len(kept.token_ids), layer, head)

    def storage_bytes(self, owner: str | None = None) -> int:
        """Bytes kept for one owner, or for all of them."""
        with self._lock:
            return sum(kept.storage_bytes for name, kept in self._kept.items() if owner is None or name == owner)

    def token_ids(self, owner: str) -> tuple[int, ...]:
        """The tokens an owner's kept cache holds; none when nothing is kept."""
        with self._lock:
            kept = self._kept.get(owner)
            return kept.token_ids if kept is not None else ()

    def _note(self, owner: str, why: str) -> None:
        self._dropped[owner] = why
        if len(self._dropped) > MAX_NOTES:
            self._dropped.popitem(last=False)


def _begins_with(shared: _Kept | None, strategy: Strategy, token_ids: tuple[int, ...]) -> int:
    """Tokens of the operator's prefix that this prompt begins with, all of them or none."""
    if shared is None or shared.strategy != strategy.key or len(shared.token_ids) >= len(token_ids):
        return 0
    return len(shared.token_ids) if token_ids[: len(shared.token_ids)] == shared.token_ids else 0


def _no_room(cache: Cache, slots: int, name: str) -> str:
    """Why a cache cannot hold so many positions, "" when it can. Past its end it fails, on CUDA for the whole process."""
    room = room_of(cache)
    return "" if room is None or room >= slots else f"{name} has {room:,} slots and this turn needs {slots:,}."


def kept_slots(strategy: Strategy, slots: int) -> int:
    """A cache of fixed size that is to last for several turns reserves a power of two, so that the next ones fit."""
    return max(MIN_KEPT_SLOTS, 1 << (slots - 1).bit_length()) if strategy.fixed_size else slots


def _fit(kept: _Kept, strategy: Strategy, token_ids: tuple[int, ...], slots: int) -> Reuse:
    """Crop the kept cache to what it shares with a prompt, where that is possible; reused_tokens 0 where it is not."""
    held = len(kept.token_ids)
    if kept.strategy != strategy.key:
        return Reuse("refilled", held, 0, "The cache strategy was changed, so the kept cache was dropped.")
    if no_room := _no_room(kept.cache, slots, "The kept cache"):
        return Reuse("refilled", held, 0, no_room)
    common = common_prefix(kept.token_ids, token_ids)
    differs = common < min(held, len(token_ids))
    kept_token, new_token = (kept.token_ids[common], token_ids[common]) if differs else (None, None)
    reason = f"First difference at token {common + 1:,}." if differs else ""
    reused = min(common, len(token_ids) - 1)

    def reuse(how: ReuseHow, reused_tokens: int, why: str = reason) -> Reuse:
        return Reuse(how, held, reused_tokens, why, kept_token, new_token)

    if reused == held:
        return reuse("continued", reused)
    if reused == 0:
        return reuse("refilled", 0)
    # transformers calls a filled window, and states without their past, croppable, and refuses only when asked to
    try:
        cropped = strategy.keeping == "crop" and kept.cache.is_croppable
        if cropped:
            kept.cache.crop(reused - held)
    except RuntimeError:
        cropped = False
    if not cropped:
        return reuse("refilled", 0, f"{reason} {_why_not_shortened(kept.cache)}".strip())
    return reuse("cropped", reused)


def _why_not_shortened(cache: Cache) -> str:
    if any(getattr(layer, "is_sliding", False) for layer in layers_of(cache)):
        return "A sliding window has forgotten what it would take to shorten it, so it was filled again."
    return "A cache of this kind cannot be shortened, so it was filled again."
