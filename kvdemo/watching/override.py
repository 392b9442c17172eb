"""The cache setting of every call of generate overridden, and nothing else: what a comparison of a program with itself needs."""

from __future__ import annotations

from typing import Any

from kvdemo.caches.strategies import Strategy, slots_for, strategy_of
from kvdemo.generation.forwards import CACHES
from kvdemo.watching.running import Running, cache_of, given_to, held

__all__ = ["Override", "label_of"]


def label_of(key: str) -> str:
    """What a way of running is called in a sentence; InvalidRequest for a key that is not in the table."""
    return "the cache off" if key == "none" else strategy_of(key, "compare").label.lower()


class CannotUse(RuntimeError):
    """A strategy that this model or machine does not allow."""


class Override:
    """One strategy of the table in the place of whatever the program's calls and files say.

    notes: calls that had to be left as they are, and why
    """

    def __init__(self, key: str) -> None:
        self.strategy: Strategy = strategy_of(key, "compare")
        self.notes: set[str] = set()

    def arguments(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """The named arguments of this call with another cache; None where it has to be left as it is."""
        reason = self.strategy.reason(model)
        if reason is not None:
            raise CannotUse(f"{self.strategy.label} cannot be used here. {reason}")
        handed = cache_of(kwargs)
        if handed is not None and held(handed)[1] != 0 and not self._whole(args, kwargs, handed):
            self.notes.add(
                "A call that is given a cache and only what is new cannot go without it: it was left as it is."
            )
            return None
        changed = {name: value for name, value in kwargs.items() if name not in (*CACHES, "cache_implementation")}
        if self.strategy.cache is None:
            return {**changed, "use_cache": False, "prefill_chunk_size": None}
        if self.strategy.compiles:
            from transformers import CompileConfig

            config = changed.get("compile_config") or CompileConfig()
            config._compile_all_devices = True  # a CPU is left out otherwise
            changed["compile_config"] = config
        elif self.strategy.fixed_size:
            changed["disable_compile"] = True  # on an accelerator generate would compile
        return {**changed, "use_cache": True, "cache_implementation": None}

    def put(self, running: Running, prepared: dict[str, Any], positions: int) -> None:
        """The strategy's cache in the place of the one that generate has made."""
        name = next((each for each in CACHES if prepared.get(each) is not None), None)
        if self.strategy.cache is None or name is None:
            return
        made = self.strategy.make(running.model.config, slots_for(self.strategy, positions))
        whole = prepared[name]
        if hasattr(whole, "self_attention_cache"):
            whole.self_attention_cache = made
        else:
            prepared[name] = made

    def _whole(self, args: tuple[Any, ...], kwargs: dict[str, Any], handed: Any) -> bool:
        """Does the call bring all positions, those that the cache holds among them?"""
        given = given_to(args, kwargs)
        mask = kwargs.get("attention_mask")
        width = int(given.shape[1]) if given is not None else 0
        longest = int(mask.shape[1]) if mask is not None else width
        return width == longest and width > (held(handed)[1] or 0)
