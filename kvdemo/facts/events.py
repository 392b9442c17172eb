"""The events of one run, in the order of the stream's grammar (see generation/stream.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.facts.records import FinishReason, RunRecord

__all__ = [
    "Finished",
    "GenerationEvent",
    "PrefillProgress",
    "PromptEncoded",
    "Reuse",
    "ReuseHow",
    "TokenEmitted",
    "Waiting",
    "Working",
]

ReuseHow = Literal["fresh", "continued", "cropped", "copied", "refilled"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run stands in line: `place` 1 is next. Repeated at least every half second."""

    place: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """What became of the cache kept from earlier: how much of it this run continues, and why not more.

    how            fresh: nothing was kept
    kept_tokens    tokens the kept cache held
    reused_tokens  of them, taken over
    reason         one sentence for a person, "" when all of it was used
    kept_token, new_token   ids at the first difference, kept_text and new_text the same as text; None where none differs
    """

    how: ReuseHow
    kept_tokens: int
    reused_tokens: int
    reason: str = ""
    kept_token: int | None = None
    new_token: int | None = None
    kept_text: str | None = None
    new_text: str | None = None


@dataclass(frozen=True, slots=True)
class PromptEncoded:
    """The run was accepted by the model's thread.

    prompt_tokens   length of the whole prompt, reused part included; None: an engine behind a URL says it at the end, if at all
    context_limit   the model's own limit in tokens, None when it has none
    reserved_tokens slots that a cache of fixed size has reserved, None when it has no end (it grows, or its windows roll)
    notices         sentences a person must see (no chat template, system role folded in ...)
    """

    prompt_tokens: int | None
    queue_s: float
    prepare_s: float
    context_limit: int | None = None
    reserved_tokens: int | None = None
    reuse: Reuse | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """`done` of `of` prompt tokens have been given to the model (reused ones not counted)."""

    done: int
    of: int


@dataclass(frozen=True, slots=True)
class Working:
    """All that is known so far has been told, and the run goes on: the moment to draw it.

    At least every half second, so that a page notices that its reader has left.
    """

    elapsed_s: float


@dataclass(frozen=True, slots=True)
class TokenEmitted:
    """One new token; from an engine behind a URL one piece of text, of which only text and time are known.

    text                 what became readable with it, possibly nothing
    time_s               since acceptance, taken in the model's thread
    cache_tokens         positions the cache holds now (this token is not yet among them); 0 without a cache
    cache_bytes          logical bytes of the cache's tensors; cache_storage_bytes: of their storages
    """

    index: int
    token_id: int | None
    text: str
    time_s: float
    cache_tokens: int | None
    cache_bytes: int | None
    cache_storage_bytes: int | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a run that did not fail. `reason` is its record's finish_reason.

    text is what became readable with the end (a held back piece); joined with the texts of the tokens it is record.text.
    """

    reason: FinishReason
    record: RunRecord
    text: str = ""


GenerationEvent = Waiting | PromptEncoded | PrefillProgress | Working | TokenEmitted | Finished
