"""A model in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvdemo.facts.model import ModelFacts
from kvdemo.models.thread import ModelThread

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["LoadedModel"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The model, its tokenizer, what is known about both, and the only thread that may run it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    facts: ModelFacts
    thread: ModelThread
