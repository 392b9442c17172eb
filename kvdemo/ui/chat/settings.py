"""The settings of the chat: as they come from the form, checked when they are used, remembered by the browser.

The browser keeps them as text of ours in its own storage; nothing that was written to or by the model is among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.components.server_fields import server_in
from kvdemo.errors import InvalidRequest
from kvdemo.facts.endpoint import Endpoint
from kvdemo.facts.requests import MAX_NEW_TOKENS, SamplingParams, checked_int

__all__ = ["REMEMBERED", "ChatSettings", "remembered", "restored"]

REMEMBERED = ("strategy", "keep", "max_new_tokens", "temperature", "top_p", "top_k", "seed")
MOST_CHARS = 1000


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The settings as they come from the form, unchecked. url, served_model, key: of a server that is asked instead."""

    system_prompt: Any = ""
    strategy: Any = "dynamic"
    keep: Any = True
    max_new_tokens: Any = 256
    temperature: Any = 0
    top_p: Any = 1
    top_k: Any = 0
    seed: Any = 0
    url: Any = ""
    served_model: Any = ""
    key: Any = field(default="", repr=False)

    @property
    def at_server(self) -> bool:
        """Is a server asked, and not the loaded model?"""
        return isinstance(self.url, str) and bool(self.url.strip())

    def server(self) -> Endpoint | None:
        """Which one; None for the loaded model. InvalidRequest names the field."""
        return server_in((self.url, self.served_model, self.key))

    def sampling(self) -> SamplingParams:
        """Checked; InvalidRequest names the field."""
        return SamplingParams(
            self.temperature,
            self.top_p,
            checked_int("top_k", self.top_k, 0, 1_000_000),
            checked_int("seed", self.seed, 0, 2**63 - 1),
        )

    def longest(self) -> int:
        """The longest answer in tokens, checked."""
        return checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)


def remembered(settings: ChatSettings) -> str:
    """The settings as a fragment that the browser keeps."""
    values = {name: getattr(settings, name) for name in REMEMBERED}
    return Markup('<div class="kv-remember" title="{}"></div>').format(text(json.dumps(values)))


def restored(kept: object, strategies: tuple[str, ...], limit: int) -> dict[str, Any]:
    """The settings that the browser kept, by name, each checked again; what is bad is left out."""
    values = _read(kept)
    checks: dict[str, Callable[[Any], bool]] = {
        "strategy": lambda value: value in strategies,
        "keep": lambda value: isinstance(value, bool),
        "max_new_tokens": lambda value: ChatSettings(max_new_tokens=value).longest() <= limit,
        "temperature": lambda value: ChatSettings(temperature=value).sampling() is not None and value <= 2,
        "top_p": lambda value: ChatSettings(top_p=value).sampling() is not None and value >= 0.05,
        "top_k": lambda value: ChatSettings(top_k=value).sampling() is not None,
        "seed": lambda value: ChatSettings(seed=value).sampling() is not None,
    }
    return {name: values[name] for name in REMEMBERED if name in values and _holds(checks[name], values[name])}


def _read(kept: object) -> dict[str, Any]:
    if not isinstance(kept, str) or len(kept) > MOST_CHARS:
        return {}
    try:
        values = json.loads(kept)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _holds(check: Callable[[Any], bool], value: object) -> bool:
    try:
        return check(value)
    except (InvalidRequest, TypeError):
        return False
