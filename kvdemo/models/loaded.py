"""A model in memory, and the gate that every forward of it passes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvdemo.facts.model import ModelFacts
from kvdemo.models.thread import ModelThread

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from kvdemo.caches.strategies import Strategy

__all__ = ["ForwardGate", "LoadedModel"]


class ForwardGate:
    """A forward pre-hook that stays on the model for life and tells the run of the moment.

    It must be there before the first compiled run: adding or removing a hook later would compile everything again.
    What `listener` raises ends the forward and with it `generate`; model and cache stay usable.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        import torch

        self.listener: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None
        # Dynamo must not look inside: it would bake the listener of the first run into the graph.
        model.register_forward_pre_hook(torch.compiler.disable(self._before_forward), with_kwargs=True)

    def _before_forward(self, module: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.listener is not None:
            self.listener(args, kwargs)


def _unknown(strategy: Strategy, positions: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The model, its tokenizer, what is known about both, and the only thread that may run it.

    cache_bytes   bytes of one sequence's cache with a strategy and so many positions, None where nobody knows: the planner's
    continues  a forward of several tokens takes up what an earlier one left in the cache (see continuing.py)
    encoding   held while the tokenizer encodes: its Rust half refuses two callers at once
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    facts: ModelFacts
    thread: ModelThread
    gate: ForwardGate
    continues: bool = True
    cache_bytes: Callable[[Strategy, int], int | None] = _unknown
    encoding: threading.Lock = field(default_factory=threading.Lock)
