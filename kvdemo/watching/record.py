"""What was seen of a program: its calls, where its time went, and whether a cache was used. Plain facts, frozen.

None is "not known", 0 is "none of it".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import FinishReason
from kvdemo.facts.results import Environment

__all__ = ["INTERRUPTED", "Assistant", "Call", "Decided", "How", "Script", "Setting", "Watched", "cached_of", "union_s"]

INTERRUPTED = 130
"""The exit code of a program that an interrupt ended, as a shell tells it."""

How = Literal["generate", "own loop", "generate_batch", "continuous batching"]
"""A call of generate, a loop over model(...), a call of generate_batch, a manager of continuous batching that was started."""

Decided = Literal["call", "code", "generation_config.json", "config.json", "library default", "model", "watch"]
"""Who decides about the cache: the call, a line that changed the model's settings in memory, a file, transformers, the
model's own code, or this observer, which was asked to override it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """use_cache as it was in force. value None: nothing says it (a loop of one's own hands its cache over, or does not)."""

    value: bool | None
    source: Decided


@dataclass(frozen=True, slots=True)
class Assistant:
    """The other model of an assisted call; positions of all its forwards together."""

    model: str
    forwards: int
    positions_computed: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of generate, one loop over model(...), or one run of continuous batching.

    where                file:line of the program's own frame
    batch_size           prompts that came together; rows: sequences of a forward, beams and returned sequences included
    cache_class          of the cache that the forwards were given; None without one
    cache_origin         who made it: the program handed it over ("handed over"), or generate; an implementation that was asked
                         for by name stands here
    positions_computed   one per forward, all rows together; positions_read: taken from the cache
    prompt_tokens, new_tokens   of the longest row, padding included; of continuous batching: of all requests together
    reused_tokens        per row, held by the cache before the first forward
    generation_s         from the call to its return; of a loop: from its first forward to the end of its last
    ttft_s               until the next forward began after the prompt was through: the first token is known then
    tpot_s               the rest, per further token
    cached               were positions taken from a cache instead of computed again? None: one forward cannot tell
    began_s              since the watching began; model: its name
    error                the class of the exception that it ended with
    token_ids            of the answers, row by row, where they were asked for
    """

    where: str
    how: How
    model_type: str
    batch_size: int
    use_cache: Setting
    cache_class: str | None
    positions_computed: tuple[int, ...] | None
    positions_read: tuple[int, ...] | None
    prompt_tokens: int | None
    new_tokens: int | None
    reused_tokens: int | None
    generation_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    peak_cache_bytes: int | None
    finish_reason: FinishReason | None
    peak_cache_tokens: int | None = None
    cached: bool | None = None
    rows: int = 1
    beams: int = 1
    cache_origin: str = "generate"
    has_generation_config: bool | None = None
    assistant: Assistant | None = None
    error: str | None = None
    sampled: bool = False
    began_s: float = 0.0
    model: str = ""
    token_ids: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """Where the program's time went, s. other_s: everything that was not generation, imports and loading included.

    exit_code   None: it has not ended, or was not started here
    """

    exit_code: int | None
    wall_s: float
    generation_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class Watched:
    """A program that was watched.

    models            of its calls, in the order in which they were met
    single_forwards   forwards outside generate that belong to no loop: scoring, embedding, training
    calls_left_out    seen after the record was full
    notes             what a person should know: what could not be seen, or not be overridden
    processes         that it started to run Python in, which nobody watched
    environment       None: torch was not there
    """

    name: str
    calls: tuple[Call, ...]
    script: Script
    models: tuple[ModelFacts, ...] = ()
    environment: Environment | None = None
    single_forwards: int = 0
    calls_left_out: int = 0
    notes: tuple[str, ...] = ()
    processes: int = 0

    @property
    def cached(self) -> bool | None:
        """Did everything that generated go through a cache? None where nothing did, or none of it can be told."""
        told = [call.cached for call in self.calls if call.error is None]
        if False in told:
            return False
        return True if True in told else None


def cached_of(forwards: Iterable[tuple[int | None, int | None]], prompt_tokens: int | None) -> bool | None:
    """Were positions taken from a cache? forwards: (computed, read) per row, in order.

    The forwards that bring the prompt say nothing, nor does a single one. After these, a forward that computes several
    positions and reads none has begun anew.
    """
    seen, told = 0, None
    for computed, read in forwards:
        if computed is None:
            return None
        if seen and seen >= (prompt_tokens or 0):
            if computed > 1 and read == 0:
                return False
            told = True if computed == 1 or read else told
        seen += computed + ((read or 0) if not seen else 0)
    return told


def union_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds covered by at least one of these: calls in several threads at once count once."""
    total, end = 0.0, float("-inf")
    for begins, ends in sorted(intervals):
        total += max(0.0, ends - max(begins, end))
        end = max(end, ends)
    return total
