"""Several requests at once: what is asked for, and what one run of them came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.errors import InvalidRequest
from kvdemo.facts.records import RunRecord, Status
from kvdemo.facts.requests import MAX_NEW_TOKENS, Prompt, checked_choice, checked_int, checked_number

__all__ = ["MAX_REQUESTS", "PAGED", "SERVINGS", "Arrival", "Forward", "ManyFinished", "ManyRecord", "ManyRequest"]

Serving = Literal["one-by-one", "padded", "continuous", "at-once"]
SERVINGS: tuple[Serving, ...] = ("one-by-one", "padded", "continuous", "at-once")
PAGED = "paged"
MAX_REQUESTS = 256
LEAST_PAGE, MOST_PAGE = 4, 4096


@dataclass(frozen=True, slots=True)
class Arrival:
    """One of the requests: at_s after the first one."""

    prompt: Prompt
    max_new_tokens: int
    at_s: float = 0.0

    def __post_init__(self) -> None:
        checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        checked_number("at_s", self.at_s, 0, 86_400)


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """Requests in the order in which they arrive, all greedy, and how they are served.

    serving       one-by-one: a generate for each. padded: one generate over the left-padded rows of all that have arrived when
                  the model is free. continuous: the engine puts every forward together from whoever has something to
                  compute. at-once: each is sent to an engine behind a URL when it is due
    strategy      of the first two a key of the strategies table, none or dynamic; of the last one "paged"
    fixed_length  no end token: every request makes its max_new_tokens
    page_size     tokens of a page of the paged cache; num_pages: how many it has, None: enough for all requests at once
    share_prefix  pages that begin alike are computed once
    timeout_s     wall-clock limit of the whole
    """

    serving: Serving
    arrivals: tuple[Arrival, ...]
    strategy: str = "dynamic"
    fixed_length: bool = True
    page_size: int = 128
    num_pages: int | None = None
    share_prefix: bool = True
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        checked_choice("serving", self.serving, SERVINGS)
        checked_choice("strategy", self.strategy, (PAGED,) if self.serving == "continuous" else ("none", "dynamic"))
        checked_int("requests", len(self.arrivals), 1, MAX_REQUESTS)
        checked_int("page_size", self.page_size, LEAST_PAGE, MOST_PAGE)
        if self.num_pages is not None:
            checked_int("num_pages", self.num_pages, 1, 1_000_000)
        if any(after.at_s < before.at_s for before, after in zip(self.arrivals, self.arrivals[1:], strict=False)):
            raise InvalidRequest("arrivals", "must be in the order in which they arrive")


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward of the model: when it began, s after the first request arrived; positions it computed, and read.

    pages   in use while it ran; None where the cache has none
    """

    at_s: float
    computed: int
    read: int
    pages: int | None = None


@dataclass(frozen=True, slots=True)
class ManyRecord:
    """What one run of the requests came to. None is "not known", 0 is "none of it".

    runs                   one per request, in the order of arrival. Times of a request that the engine preempted are
                           incomplete, so it has none
    wall_s                 first request's arrival to the last token of all
    forwards               None where they could not be counted
    padding_positions      of those computed: padding, and rows that had ended already
    reserved_cache_bytes   allocated for caches at the most; peak_cache_bytes: of them, in use
    num_pages              that the paged cache has; page_bytes: of one, all layers together
    """

    serving: Serving
    strategy: str
    status: Status
    runs: tuple[RunRecord, ...]
    wall_s: float | None = None
    forwards: tuple[Forward, ...] | None = ()
    padding_positions: int | None = None
    reserved_cache_bytes: int | None = None
    peak_cache_bytes: int | None = None
    reused_tokens: int | None = None
    num_pages: int | None = None
    page_bytes: int | None = None
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        """Of the requests that did not fail."""
        return sum(run.new_tokens for run in self.runs if run.status == "ok")

    @property
    def throughput_tokens_per_s(self) -> float | None:
        """Output tokens over the whole time, 1/s; None unless every request was answered."""
        return self.output_tokens / self.wall_s if self.status == "ok" and self.wall_s else None

    @property
    def positions_computed(self) -> int | None:
        return None if self.forwards is None else sum(forward.computed for forward in self.forwards)

    @property
    def positions_read(self) -> int | None:
        return None if self.forwards is None else sum(forward.read for forward in self.forwards)


@dataclass(frozen=True, slots=True)
class ManyFinished:
    """The end of requests that were run together."""

    record: ManyRecord
