"""ONE literal table of cache strategies. Every choice list, test matrix, table and legend reads it.

A strategy makes its own Cache object for a config and a number of slots. It never asks generate for one by name
(`cache_implementation`): generate then remembers on the model the longest length ever asked for.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvdemo.caches.making import CacheMaker
from kvdemo.errors import InvalidRequest
from kvdemo.facts.model import Keeping, StrategyRow

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedConfig, PreTrainedModel

__all__ = ["STRATEGIES", "Strategy", "available_strategy", "rows", "slots_for", "strategy_of"]

Reason = Callable[["PreTrainedModel"], str | None]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to keep (or not to keep) keys and values.

    cache      how its Cache object is made, None for no cache
    exact      greedy output must equal the uncached run's in float32; otherwise the strategy is lossy
    reason     why it cannot be used with this model on this machine, None when it can
    """

    key: str
    label: str
    trade: str
    cache: CacheMaker | None
    exact: bool
    keeping: Keeping
    reason: Reason
    fixed_size: bool = False
    compiles: bool = False

    @property
    def bits(self) -> int | None:
        """Bits of a stored value where the cache quantises, None where it keeps the model's dtype."""
        if self.cache is None or "backend" not in self.cache.arguments:
            return None
        return int(self.cache.arguments.get("nbits", 8))

    def make(self, config: PreTrainedConfig, slots: int) -> Cache | None:
        """A new, empty Cache, None for no cache."""
        return None if self.cache is None else self.cache.make(config, slots)

    def row(self, model: PreTrainedModel | None) -> StrategyRow:
        """The strategy as rooms above see it; without a model nothing is known to be unavailable, and there is no code."""
        reason = None if model is None else self.reason(model)
        usable = model if reason is None else None
        return StrategyRow(
            key=self.key,
            label=self.label,
            trade=self.trade,
            exact=self.exact,
            keeping=self.keeping,
            fixed_size=self.fixed_size,
            compiles=self.compiles,
            unavailable_reason=reason,
            code="" if usable is None or self.cache is None else self.cache.code(usable.config),
            settings="" if usable is None else json.dumps(self.settings(usable)),
        )

    def settings(self, model: PreTrainedModel) -> dict[str, Any] | None:
        """The keys of generation_config.json that ask for it; None where a file cannot (compiling on a CPU)."""
        if self.cache is None:
            return {"use_cache": False}
        if self.compiles and model.device.type == "cpu":
            return None
        # On an accelerator generate compiles by itself as soon as the cache is static.
        eager = {"disable_compile": True} if self.fixed_size and not self.compiles else {}
        return {**self.cache.settings(model.config), **eager}


def _always(model: PreTrainedModel) -> None:
    return None


def _needs_accelerator(model: PreTrainedModel) -> str | None:
    if model.device.type in ("cpu", "mps"):
        return (
            f"It moves keys and values between an accelerator and the CPU, and this model runs on {model.device.type}."
        )
    return None


def _needs_compiler(model: PreTrainedModel) -> str | None:
    if model.device.type == "mps":
        return "transformers compiles for CUDA and the CPU; this model runs on mps."
    if model.device.type == "cpu" and not _cxx_compiler():
        return "torch.compile needs a C++ compiler on a CPU (g++ or clang++), and there is none."
    return _needs_attention(model)


def _needs_attention(model: PreTrainedModel) -> str | None:
    if all(kind in WITHOUT_SLOTS for kind in _layer_types(model)):
        return "This model has no attention layers, so there are no slots to reserve."
    return None


def _needs_full_attention(model: PreTrainedModel) -> str | None:
    others = sorted(set(_layer_types(model)) - {"full_attention"})
    if others:
        return f"transformers quantises only full attention, and this model has {', '.join(others)} layers."
    return None


def _needs_package(module: str, package: str) -> Reason:
    def reason(model: PreTrainedModel) -> str | None:
        if not _installed(module):
            return f"It needs the package {package}: pip install {package}"
        return _needs_full_attention(model)

    return reason


def _quantised(backend: str, *, grouped: int = 0, **arguments: int) -> CacheMaker:
    return CacheMaker("QuantizedCache", {"backend": backend, **arguments}, "quantized", grouped=grouped)


STATIC = CacheMaker("StaticCache", implementation="static", sized=True)

STRATEGIES: tuple[Strategy, ...] = (
    Strategy(
        key="none",
        label="No cache",
        trade="keeps nothing and computes every position again at every step",
        cache=None,
        exact=True,
        keeping="no",
        reason=_always,
    ),
    Strategy(
        key="dynamic",
        label="Dynamic cache",
        trade="grows with every token; what generate uses by default",
        cache=CacheMaker("DynamicCache"),
        exact=True,
        keeping="crop",
        reason=_always,
    ),
    Strategy(
        key="static",
        label="Static cache",
        trade="reserves all its slots at once, so that shapes never change",
        cache=STATIC,
        exact=True,
        keeping="crop",
        reason=_needs_attention,
        fixed_size=True,
    ),
    Strategy(
        key="static-compiled",
        label="Static cache, compiled",
        trade="the static cache with torch.compile: a long first run, faster steps after it",
        cache=STATIC,
        exact=True,
        keeping="crop",
        reason=_needs_compiler,
        fixed_size=True,
        compiles=True,
    ),
    Strategy(
        key="offloaded",
        label="Offloaded cache",
        trade="keeps all layers but one in the CPU's memory: less on the accelerator, slower steps",
        cache=CacheMaker("DynamicCache", {"offloading": True}, "offloaded"),
        exact=True,
        keeping="copy",
        reason=_needs_accelerator,
    ),
    Strategy(
        key="offloaded-static",
        label="Offloaded static cache",
        trade="the same with reserved slots",
        cache=CacheMaker("StaticCache", {"offloading": True}, "offloaded_static", sized=True),
        exact=True,
        keeping="no",
        reason=_needs_accelerator,
        fixed_size=True,
    ),
    Strategy(
        key="fp8",
        label="8-bit float cache",
        trade="stores keys and values in 8-bit floats: a quarter of float32, answers may differ",
        cache=_quantised("fp8"),
        exact=False,
        keeping="append",
        reason=_needs_full_attention,
    ),
    Strategy(
        key="quanto-4bit",
        label="4-bit cache (quanto)",
        trade="stores keys and values in 4 bits with scales: smaller and slower, answers may differ",
        cache=_quantised("quanto", grouped=1, nbits=4),
        exact=False,
        keeping="append",
        reason=_needs_package("optimum.quanto", "optimum-quanto"),
    ),
    Strategy(
        key="quanto-2bit",
        label="2-bit cache (quanto)",
        trade="stores keys and values in 2 bits with scales: smallest, answers differ most",
        cache=_quantised("quanto", grouped=1, nbits=2),
        exact=False,
        keeping="append",
        reason=_needs_package("optimum.quanto", "optimum-quanto"),
    ),
    Strategy(
        key="hqq-8bit",
        label="8-bit cache (HQQ)",
        trade="stores keys and values in 8 bits with scales: half of bfloat16, answers may differ",
        cache=_quantised("hqq", grouped=1, nbits=8, axis_key=1, axis_value=1),
        exact=False,
        keeping="append",
        reason=_needs_package("hqq", "hqq"),
    ),
    Strategy(
        key="hqq-4bit",
        label="4-bit cache (HQQ)",
        trade="stores keys and values in 4 bits with scales: smaller and slower, answers may differ",
        cache=_quantised("hqq", grouped=2, nbits=4, axis_key=1, axis_value=1),
        exact=False,
        keeping="append",
        reason=_needs_package("hqq", "hqq"),
    ),
)

COMPILED_MIN_SLOTS = 512
WITHOUT_SLOTS = ("conv", "linear_attention", "dummy")  # layers that keep a state or nothing, whatever the length


def strategy_of(key: str, field: str = "strategy") -> Strategy:
    """The strategy with this key; InvalidRequest that lists the keys otherwise."""
    for strategy in STRATEGIES:
        if strategy.key == key:
            return strategy
    raise InvalidRequest(field, f"{key!r} is not one of {', '.join(strategy.key for strategy in STRATEGIES)}")


def available_strategy(key: str, model: PreTrainedModel, field: str = "strategy") -> Strategy:
    """The strategy with this key, if it can be used with this model here; InvalidRequest with the reason otherwise."""
    strategy = strategy_of(key, field)
    if (reason := strategy.reason(model)) is not None:
        raise InvalidRequest(field, f"{strategy.label} is not available here. {reason}")
    return strategy


def rows(model: PreTrainedModel | None) -> tuple[StrategyRow, ...]:
    """The table, with the reasons that hold for this model."""
    return tuple(strategy.row(model) for strategy in STRATEGIES)


def slots_for(strategy: Strategy, needed: int) -> int:
    """How many slots does a cache of fixed size reserve for `needed` positions?

    A compiled run reserves a power of two, at least 512: a graph belongs to one cache length, and is paid for once.
    """
    if not strategy.compiles:
        return needed
    return max(COMPILED_MIN_SLOTS, 1 << (needed - 1).bit_length())


def _layer_types(model: PreTrainedModel) -> Sequence[str]:
    from transformers.cache_utils import get_layer_types_and_kwargs

    layer_types, _ = get_layer_types_and_kwargs(model.config.get_text_config(decoder=True))
    return list(layer_types)


def _cxx_compiler() -> str | None:
    return shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
