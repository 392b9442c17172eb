"""Of what two prompts begin with in common a server reuses whole pages at most: how much of that did it say that it reused?

A share of the whole prompt says less: it is short of 100 % where everything that could be reused was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvdemo.facts.units import format_count

__all__ = ["TEMPLATE_END_TOKENS", "Hit", "hit_efficiency", "hit_words"]

TEMPLATE_END_TOKENS = 5  # that a chat template puts behind the last message, until the answer


@dataclass(frozen=True, slots=True)
class Hit:
    """One prompt whose beginning the server had seen.

    reused       tokens of it that the server reports as reused; None: it does not say
    own_tokens   at its end, that no other prompt has; about
    """

    reused: int | None
    prompt_tokens: int
    own_tokens: float

    def shareable(self, page_tokens: int | None) -> int:
        """Tokens in whole pages of what it has in common; None: pages of a token, since it does not say."""
        page = page_tokens or 1
        return max(0, int(self.prompt_tokens - self.own_tokens)) // page * page


def hit_efficiency(hits: Sequence[Hit], page_tokens: int | None) -> float | None:
    """Tokens reported as reused over those in the whole pages that could be, 0 to 1. None where either is not known."""
    said = [hit for hit in hits if hit.reused is not None]
    could = sum(hit.shareable(page_tokens) for hit in said)
    return min(1.0, sum(hit.reused or 0 for hit in said) / could) if could else None


def hit_words(hits: Sequence[Hit], page_tokens: int | None) -> str:
    """ "480 tokens as reused of about 480 in the whole pages of 16 that could be (100 %)"; "" where nothing is known."""
    share = hit_efficiency(hits, page_tokens)
    if share is None:
        return ""
    said = [hit for hit in hits if hit.reused is not None]
    reused = format_count(sum(hit.reused or 0 for hit in said))
    could = format_count(sum(hit.shareable(page_tokens) for hit in said))
    if page_tokens is None:
        return f"{reused} tokens as reused of about {could} that could be ({100 * share:.0f} %; its page size is not reported)"
    return f"{reused} tokens as reused of about {could} in the whole pages of {page_tokens} that could be ({100 * share:.0f} %)"
