"""Which model a plan is about: the loaded one, a known one, a config.json, one of the hub, or numbers typed by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvdemo.backend.protocol import Backend
from kvdemo.components.uploads import read_upload
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.facts.plans import Architecture
from kvdemo.facts.requests import checked_number, checked_text
from kvdemo.facts.text_files import text_of

__all__ = [
    "BY_HAND",
    "CONFIG",
    "HUB",
    "LOADED",
    "MOST_OTHERS",
    "ModelChoice",
    "can_be_typed",
    "choices",
    "heads_of",
    "others",
    "uploaded",
]

LOADED, CONFIG, HUB, BY_HAND = "", "a config.json", "a hub id", "by hand"
MOST_OTHERS = 3
HEADS_CHARS = 8000


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The choice of a model as it comes from the form, unchecked; fields that its kind does not need are ignored.

    parameters   in billions, None: not known
    """

    model: Any = LOADED
    hub_id: Any = ""
    layers: Any = None
    kv_heads: Any = ""
    head_dim: Any = None
    parameters: Any = None

    @property
    def asks(self) -> bool:
        """Must a button be pressed first: is there a text to read, or somebody to ask?"""
        return self.model in (CONFIG, HUB)

    @property
    def complete(self) -> bool:
        """Has everything been typed by hand that is needed?"""
        return all(value not in (None, "") for value in (self.layers, self.kv_heads, self.head_dim))

    def architecture(self, backend: Backend, config: object = "") -> Architecture:
        """The geometry of the chosen model; KvdemoError that says what to do where there is none."""
        if self.model == CONFIG:
            text = checked_text("config", config, max_chars=5 * 2**20, empty=True)
            if not text.strip():
                raise InvalidRequest("config", "is empty: paste the config.json of a model, or upload the file")
            return backend.architecture(None, text)
        if self.model == HUB:
            return backend.architecture_of_hub(checked_text("model", self.hub_id, max_chars=200))
        if self.model == BY_HAND:
            return self._by_hand(backend)
        return backend.architecture(None if self.model == LOADED else checked_text("model", self.model, max_chars=200))

    def _by_hand(self, backend: Backend) -> Architecture:
        count = None
        if self.parameters is not None:
            count = round(1e9 * checked_number("parameters", self.parameters, 0.000001, 1_000_000))
        return backend.architecture_by_hand(self.layers, heads_of(self.kv_heads), self.head_dim, num_parameters=count)


def choices(backend: Backend, mode: str) -> list[tuple[str, str]]:
    """(label, value) of every choice; hub ids only where the page is this person's own."""
    hub = [("A model of the hub", HUB)] if mode == "local" else []
    return [
        ("The loaded model", LOADED),
        *((name, name) for name in backend.catalogue()),
        ("A config.json", CONFIG),
        *hub,
        ("Typed by hand", BY_HAND),
    ]


def others(backend: Backend, names: object, beside: Architecture) -> tuple[Architecture, ...]:
    """The geometries drawn beside the chosen one; a model is not drawn twice."""
    if not isinstance(names, list | tuple):
        raise InvalidRequest("models beside it", "must be a list of known models")
    if len(names) > MOST_OTHERS:
        raise InvalidRequest("models beside it", f"choose at most {MOST_OTHERS}")
    found = [backend.architecture(checked_text("models beside it", name, max_chars=200)) for name in names]
    return tuple(one for at, one in enumerate(found) if one.name != beside.name and one not in found[:at])


def heads_of(text: object) -> int | Sequence[int] | None:
    """ "8" -> 8; "8, 8, 4" -> one number per layer; None where nothing was typed."""
    typed = checked_text("kv_heads", text, max_chars=HEADS_CHARS, empty=True).strip()
    if not typed:
        return None
    if not re.fullmatch(r"\d{1,6}([\s,;]+\d{1,6})*", typed, re.ASCII):
        raise InvalidRequest("kv_heads", "write one number, or one for each layer with commas between them")
    numbers = [int(part) for part in re.split(r"[\s,;]+", typed)]
    return numbers[0] if len(numbers) == 1 else numbers


def uploaded(path: object, limit_bytes: int) -> str:
    """The text of an uploaded config.json; the file is deleted whatever happens. InvalidRequest names what is wrong."""
    return text_of("config", read_upload(path, limit_bytes, "config"))


def can_be_typed(error: KvdemoError) -> bool:
    """Is this a config that might be entered by hand instead?"""
    return isinstance(error, InvalidRequest) and "by hand" in error.message
