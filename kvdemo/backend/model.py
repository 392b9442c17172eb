"""The model behind the backend: its state, its facts, the strategies as they are here. What guards it is in engine.py."""

from __future__ import annotations

import threading

from kvdemo.caches import strategies as table
from kvdemo.engine.engine import Engine, LoadModel, load_named
from kvdemo.facts.model import ModelFacts, ModelStatus, StrategyRow
from kvdemo.facts.requests import Prompt
from kvdemo.generation.prompt import encode_prompt
from kvdemo.models.source import resolve
from kvdemo.settings import Settings

__all__ = ["BackendBase", "check_model"]


def check_model(settings: Settings) -> None:
    """Is the model that somebody named there, as far as that can be said without reading it?

    Raises InvalidRequest for what cannot be a name, ModelUnavailable for what is not there or may not be loaded.
    """
    if settings.model is not None:
        resolve(settings.model, settings.home, mode=settings.mode)


class BackendBase:
    """What every part of the backend stands on. `load_model` is what tests replace."""

    def __init__(self, settings: Settings, *, load_model: LoadModel = load_named) -> None:
        self.settings = settings
        self._engine = Engine(settings, load_model)
        self._tracing = threading.Lock()

    def start(self) -> None:
        """Begin to load the model."""
        self._engine.start()

    def close(self) -> None:
        """End every run and the model's thread."""
        self._engine.close()

    def status(self) -> ModelStatus:
        return self._engine.status

    def wait_until_settled(self, timeout_s: float | None = None) -> ModelStatus:
        """Wait until the model is loaded or has failed to load."""
        return self._engine.wait_until_settled(timeout_s)

    def describe(self) -> ModelFacts:
        """The loaded model; ModelNotReady while there is none."""
        return self._engine.ready().facts

    def strategies(self) -> tuple[StrategyRow, ...]:
        """The strategies table; with the reasons that hold here once the model is loaded."""
        loaded = self._engine.loaded
        return table.rows(loaded.model if loaded is not None else None)

    def count_tokens(self, prompt: Prompt) -> int:
        """How many tokens does the model see for this prompt?"""
        return len(encode_prompt(self._engine.ready(), prompt).token_ids)
