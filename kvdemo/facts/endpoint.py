"""An engine behind a URL: where it is, and what it says of itself. Reported is another word than measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import checked_text

__all__ = ["NOT_REPORTED", "TEMPLATE_TOKENS", "Counters", "Endpoint", "ServedModel"]

NOT_REPORTED = "not reported"
TEMPLATE_TOKENS = 64  # what a chat template may put before a prompt of ours, and what may be reused of it


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. url: the server's address, with or without /v1. model: None for the first one that it lists.

    The key lives as long as this object; it is no part of what is printed, compared or written.
    """

    url: str
    model: str | None = None
    key: str | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked_text("url", self.url, max_chars=2000)
        if self.model is not None:
            checked_text("model", self.model, max_chars=300)
        if self.key is not None:  # pasted, or read from a file, with a line end behind it
            object.__setattr__(self, "key", self.key.strip() or None)
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and len(self.key) <= 4000):
            raise InvalidRequest("key", "must be printable ASCII of at most 4,000 characters")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server lists. engine: its `owned_by`, which is "vllm", "sglang" ... or the model's owner; "": not said."""

    name: str
    context_limit: int | None = None
    engine: str = ""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a server counts since its start, from its /metrics; None: it does not count that.

    prefix_queries, prefix_hits   tokens of prompts that were looked up in the prefix cache, and found there
    cache_use                     share of the cache that is in use now, 0 to 1
    page_tokens                   of a page of its cache
    """

    prefix_queries: float | None = None
    prefix_hits: float | None = None
    cache_use: float | None = None
    page_tokens: int | None = None

    def hit_share_since(self, before: Counters, *, apart: int = 0) -> float | None:
        """Hits per token looked up since then; None where nothing was counted. apart: hits that are left out."""
        if None in (self.prefix_queries, self.prefix_hits, before.prefix_queries, before.prefix_hits):
            return None
        asked = (self.prefix_queries or 0) - (before.prefix_queries or 0)
        hits = max(0.0, (self.prefix_hits or 0) - (before.prefix_hits or 0) - apart)
        return hits / asked if asked > 0 else None

    def hits_of_one(self, prompt_tokens: int | None, before: Counters) -> int | None:
        """Of the one prompt since then, tokens that were found; None where it is not the only one, or not counted (yet)."""
        if self.prefix_queries is None or before.prefix_queries is None or not prompt_tokens:
            return None
        share = self.hit_share_since(before)
        alone = self.prefix_queries - before.prefix_queries == prompt_tokens
        return round(share * prompt_tokens) if share is not None and alone else None
