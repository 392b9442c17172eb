"""What a question is given to measure with: one object in place of a model, whatever runs behind it.

An endpoint is another Bench that yields the same events; what a bench cannot do is None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.attempt import Alive, Run, Stop, never
from kvdemo.experiments.comparison import Noise
from kvdemo.facts.events import GenerationEvent, Waiting, Working
from kvdemo.facts.load import ManyFinished, ManyRequest
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.requests import GenerationRequest, Message, Prompt
from kvdemo.facts.results import Environment, PreparedPrefix
from kvdemo.facts.steps import CacheNorms
from kvdemo.facts.templates import Rendered, TemplateRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Bench", "Prefix", "Share", "Tokens", "no_count", "no_runs"]


class Prefix(Protocol):
    """A beginning that several prompts share, to be processed once and kept.

    slots   positions of the longest prompt with its answer: what a cache of fixed size must have, kept or not
    """

    @property
    def slots(self) -> int: ...

    def prepare(self) -> Alive[PreparedPrefix]:
        """Process what all the prompts begin with, once."""

    def run(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """A run that begins with a copy of it."""


class Tokens(Protocol):
    """A tokenizer with its chat template; it needs no weights."""

    @property
    def has_template(self) -> bool: ...
    @property
    def prints_time(self) -> bool:
        """Does a prompt hold the date on which it is sent?"""

    @property
    def end(self) -> str:
        """The token that ends an answer, as text; "" where none is named."""

    def render(self, request: TemplateRequest, *, answered: bool = False) -> Rendered:
        """The text that the model reads; answered: the last message is an answer. InvalidRequest: the template refuses."""

    def encode(self, texts: Sequence[Rendered]) -> list[NDArray[np.int32]]:
        """The ids of each text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special ones among them."""


Share = Callable[[Sequence[tuple[Message, ...]], str, int], Prefix]
"""(prompts, strategy, new tokens) -> what they share; InvalidRequest where nothing can be kept, or one does not fit."""


def no_runs(request: GenerationRequest) -> Iterator[GenerationEvent]:
    """For a bench without weights."""
    raise InvalidRequest("model", "only its tokenizer was loaded, so nothing can be run")


def no_count(request: GenerationRequest) -> int:
    raise InvalidRequest("model", "only its tokenizer was loaded")


def no_text(text: str, num_tokens: int) -> tuple[str, int]:
    raise InvalidRequest("prompt", "texts of a given length cannot be made here")


@dataclass(frozen=True, slots=True)
class Bench:
    """
    run           a request -> its events
    count         (request) -> tokens of its prompt; InvalidRequest where text or answer are beyond the operator's limits
    check_size    (request, prompt tokens) -> InvalidRequest where both together are beyond the model's or the memory's
    cache_slots   (prompt tokens, new tokens) -> positions that a cache of fixed size should reserve; None: its own choice
    gap           (prompt, baseline, candidate, tokens both made) -> largest difference of their logits over these, from an
                  untimed pass; None: cannot be had
    decode        token ids -> text; None: texts come with the runs only
    text_of       (text, number of tokens) -> a prompt of that many tokens or a few less, cut from the text or repeated, and how
                  many it has
    run_many      requests that are served together -> signs of life, then their record; None: cannot be had
    check_many    (those requests) -> InvalidRequest where model, memory or limits do not allow them
    margin        (prompt, tokens made, one token, another) -> by how much the first one's logit is larger after these, from an
                  untimed pass; None: cannot be had
    norms         (prompt, tokens made, layer, KV head) -> the norms of what a cache holds of both, from an untimed pass;
                  InvalidRequest for a layer or head that is not there; None: nothing of the cache can be seen
    share         a beginning that prompts share, to be kept; None: nothing can be kept here
    tokens        the tokenizer and its template, whole conversations with tools; None: it stays with the model
    prefill_tokens_per_s   of the loaded model, where a question has measured it; None: not known
    noise         of this machine, where it was measured
    page_tokens   of a page of the cache that a server keeps; None: it does not say, or keeps none
    limit_s       the operator's: no new run begins after it
    """

    model: ModelFacts
    environment: Environment
    strategies: Mapping[str, StrategyRow]
    run: Run
    count: Callable[[GenerationRequest], int]
    check_size: Callable[[GenerationRequest, int], None] = lambda _request, _prompt_tokens: None
    cache_slots: Callable[[int, int], int] | None = None
    gap: Callable[[Prompt, str, str, tuple[int, ...]], Alive[float | None]] | None = None
    decode: Callable[[tuple[int, ...]], str] | None = None
    text_of: Callable[[str, int], tuple[str, int]] = no_text
    run_many: Callable[[ManyRequest], Iterator[Waiting | Working | ManyFinished]] | None = None
    check_many: Callable[[ManyRequest], object] = lambda _request: None
    margin: Callable[[Prompt, tuple[int, ...], int, int], Alive[float | None]] | None = None
    norms: Callable[[Prompt, tuple[int, ...], int, int], Alive[CacheNorms | None]] | None = None
    share: Share | None = None
    tokens: Tokens | None = None
    prefill_tokens_per_s: float | None = None
    noise: Noise | None = None
    page_tokens: int | None = None
    clock: Callable[[], float] = time.monotonic
    stop: Stop = never
    limit_s: float | None = None

    def rows(self, keys: Sequence[str], field: str = "strategies") -> tuple[StrategyRow, ...]:
        """The rows of these strategies; InvalidRequest for one that is unknown or cannot be used here."""
        for key in keys:
            if key not in self.strategies:
                raise InvalidRequest(field, f"{key!r} is not one of {', '.join(self.strategies)}")
            if reason := self.strategies[key].unavailable_reason:
                raise InvalidRequest(field, f"{key} cannot be used here: {reason}")
        return tuple(self.strategies[key] for key in keys)
