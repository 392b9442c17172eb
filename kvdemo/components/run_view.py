"""What the page knows about a run so far: a fold over its events, with no drawing in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvdemo.facts.events import (
    Finished,
    GenerationEvent,
    PrefillProgress,
    PromptEncoded,
    Reuse,
    TokenEmitted,
    Waiting,
    Working,
)
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_count, format_seconds, format_speed

__all__ = ["RunView"]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as far as its events tell.

    kept            the cache is to be kept for the next turn
    phase           "asked", "waiting", "reading", "answering" or "finished"
    tokens          new tokens so far; first_s and last_s: when the first and the last came, since acceptance, s
    prompt_tokens   0 until it is known
    cache_tokens    positions in the cache, the newest token not among them; 0 where there is none of ours
    served          a server behind a URL makes the tokens: of its cache nothing is known, and pieces stand for tokens until
                    its end
    """

    strategy: str = "dynamic"
    kept: bool = False
    served: bool = False
    phase: str = "asked"
    place: int = 0
    prompt_tokens: int = 0
    context_limit: int | None = None
    reserved_tokens: int | None = None
    reuse: Reuse | None = None
    notices: tuple[str, ...] = ()
    queue_s: float = 0.0
    prefill_done: int = 0
    prefill_of: int = 0
    tokens: int = 0
    first_s: float | None = None
    last_s: float | None = None
    cache_tokens: int = 0
    cache_bytes: int = 0
    text: str = ""
    record: RunRecord | None = None

    def after(self, event: GenerationEvent) -> RunView:
        """The run after one more event."""
        return _FOLDS[type(event)](self, event)

    @property
    def reused_tokens(self) -> int:
        if self.served:  # as it says itself
            return (self.record.reused_tokens or 0) if self.record else 0
        return self.reuse.reused_tokens if self.reuse else 0

    @property
    def read_tokens(self) -> int:
        """Prompt tokens that are done with: reused, or given to the model."""
        if self.phase == "reading":
            return self.reused_tokens + self.prefill_done
        return self.prompt_tokens if self.phase in ("answering", "finished") else 0

    @property
    def total_tokens(self) -> int:
        """Tokens of this request so far, prompt and answer."""
        return self.prompt_tokens + self.tokens

    @property
    def tokens_per_s(self) -> float | None:
        """Decode speed so far; None below two tokens."""
        if self.first_s is None or self.last_s is None or self.tokens < 2 or self.last_s <= self.first_s:
            return None
        return (self.tokens - 1) / (self.last_s - self.first_s)

    @property
    def state_words(self) -> str:
        """What is going on, for the place where the answer will be; "" once it is there."""
        if self.phase == "waiting":
            return "You are next." if self.place <= 1 else f"Waiting: {self.place - 1} before you."
        if self.phase == "reading" and self.prefill_of:
            return f"Reading your prompt: {format_count(self.prefill_done)} of {format_count(self.prefill_of)} tokens"
        if self.phase == "finished" or self.text:
            return ""
        return "Reading your prompt" if self.phase != "answering" else "Writing"

    @property
    def figures(self) -> str:
        """One line for under the answer."""
        parts = [f"{format_count(self.tokens)} {'token' if self.tokens == 1 else 'tokens'}"]
        if self.first_s is not None:
            parts.append(f"first after {format_seconds(self.first_s)}")
        if self.tokens_per_s is not None:
            parts.append(format_speed(self.tokens_per_s))
        return " · ".join(parts)


def _waiting(view: RunView, event: Waiting) -> RunView:
    return replace(view, phase="waiting", place=event.place)


def _encoded(view: RunView, event: PromptEncoded) -> RunView:
    return replace(
        view,
        phase="reading",
        prompt_tokens=event.prompt_tokens or 0,
        context_limit=event.context_limit,
        reserved_tokens=event.reserved_tokens,
        reuse=event.reuse,
        notices=event.notices,
        queue_s=event.queue_s,
    )


def _prefilled(view: RunView, event: PrefillProgress) -> RunView:
    return replace(view, prefill_done=event.done, prefill_of=event.of)


def _token(view: RunView, event: TokenEmitted) -> RunView:
    return replace(
        view,
        phase="answering",
        tokens=view.tokens + 1,
        first_s=event.time_s if view.first_s is None else view.first_s,
        last_s=event.time_s,
        cache_tokens=event.cache_tokens or 0,
        cache_bytes=event.cache_bytes or 0,
        text=view.text + event.text,
    )


def _finished(view: RunView, event: Finished) -> RunView:
    prompt_tokens = view.prompt_tokens or event.record.prompt_tokens or 0
    tokens = view.tokens if event.record.token_ids is not None else event.record.new_tokens
    return replace(
        view,
        phase="finished",
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        text=event.record.text,
        notices=view.notices if event.record.token_ids is not None else event.record.notices,
        record=event.record,
    )


def _unchanged(view: RunView, event: Working) -> RunView:
    return view


_FOLDS: dict[type, Callable[..., RunView]] = {
    Waiting: _waiting,
    PromptEncoded: _encoded,
    PrefillProgress: _prefilled,
    TokenEmitted: _token,
    Finished: _finished,
    Working: _unchanged,
}
