"""A backend around the tiny model: everything is real but the weights."""

from __future__ import annotations

import dataclasses
from typing import Any

from kvdemo.backend import Backend
from kvdemo.settings import Limits, Settings
from tests.tiny import tiny_loaded

__all__ = ["ready_backend", "tiny_backend"]


def tiny_backend(limits: Limits | None = None, *, model: Any = None, tokenizer: Any = None, **settings: Any) -> Backend:
    """Not started yet."""

    def load(_settings: Settings, thread: Any, progress: Any) -> Any:
        progress("tiny", "weights, 1 of 1")
        made = tiny_loaded(model() if model is not None else None, tokenizer() if tokenizer is not None else None)
        made.thread.close()
        return dataclasses.replace(made, thread=thread)

    return Backend(Settings(limits=limits or Limits(), **settings), load_model=load)


def ready_backend(limits: Limits | None = None, **options: Any) -> Backend:
    backend = tiny_backend(limits, **options)
    backend.start()
    backend.wait_until_settled()
    return backend
