"""Tokenizers without their models: before the model is loaded, and of models that never are."""

from __future__ import annotations

import threading

from kvdemo.errors import InvalidRequest
from kvdemo.models.source import resolve
from kvdemo.models.tokenizer import LoadedTokenizer, load_tokenizer
from kvdemo.settings import DEFAULT_MODEL, Settings

__all__ = ["Tokenizers"]

MOST = 4


class Tokenizers:
    """The latest few stay loaded."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loaded: dict[str | None, LoadedTokenizer] = {}
        self._lock = threading.Lock()

    def named(self, name: str | None) -> LoadedTokenizer:
        """The tokenizer of a model; None: of the one that the settings name. ModelUnavailable where it cannot be had.

        A page that others can open offers no other model's.
        """
        settings = self._settings
        if settings.mode != "local" and name not in (None, settings.model, DEFAULT_MODEL):
            raise InvalidRequest("model", "only the model of this page can be chosen here")
        wanted = name or settings.model
        with self._lock:
            if wanted not in self._loaded:
                source = resolve(wanted, settings.home, mode=settings.mode, weights=False)
                found = load_tokenizer(source, settings.home)
                while len(self._loaded) >= MOST:
                    del self._loaded[next(iter(self._loaded))]
                self._loaded[wanted] = found
            return self._loaded[wanted]
