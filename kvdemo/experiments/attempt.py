"""One run inside an experiment: its events passed on with their place, its record brought home however it ends.

It knows nothing of rounds or questions. A failed run is a record, not an exception: an experiment goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from kvdemo.errors import InvalidRequest, KvdemoError, RunFailed
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, TokenEmitted, Waiting, Working
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress

__all__ = ["Alive", "Place", "Run", "Stop", "attempt", "ends_a_wake_up", "never", "with_progress"]

T = TypeVar("T")

Run = Callable[[GenerationRequest], Iterator[GenerationEvent]]
"""A run that somebody stops ends by itself, as cancelled, with everything it has made in its record."""

Alive = Generator[object, None, T]
"""Work that is not told event by event: something is yielded at least every half second, the last thing returned counts."""

Stop = Callable[[], bool]


def never() -> bool:
    """The stop of an experiment that nobody stops."""
    return False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run stands in its experiment; round 0 is the warm-up. arm None: it is called by its strategy."""

    round: int
    order: int
    warmup: bool = False
    arm: str | None = None


def ends_a_wake_up(event: GenerationEvent) -> bool:
    """Has all been told that is known so far, with nothing decided? Then it is time to say how far the experiment is."""
    return isinstance(event, Waiting | Working)


def with_progress(work: Alive[T], progress: Callable[[], Progress]) -> Generator[Progress, None, T]:
    """What `work` returns; each of its signs of life is told as progress."""
    try:
        while True:
            next(work)
            yield progress()
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()


def attempt(run: Run, request: GenerationRequest, place: Place) -> Generator[ArmEvent | ArmFailed, None, RunRecord]:
    """What came of this request? Yields the run's events, returns its record with the place filled in.

    A request that is refused before anything was timed (a warm-up) raises InvalidRequest; later it counts as failed.
    """
    arm = place.arm or request.strategy
    events = run(request)
    seen: list[PromptEncoded | TokenEmitted] = []
    try:
        for event in events:
            if isinstance(event, Finished):
                event = replace(event, record=_placed(event.record, place, arm))
                yield ArmEvent(arm, place.round, place.warmup, event)
                return event.record
            if isinstance(event, PromptEncoded | TokenEmitted):
                seen.append(event)
            yield ArmEvent(arm, place.round, place.warmup, event)
        raise RuntimeError("a run ended without Finished and without an error")
    except RunFailed as error:
        record, message = _placed(error.record, place, arm), str(error)
    except KvdemoError as error:
        if isinstance(error, InvalidRequest) and place.warmup:
            raise
        record, message = _placed(_record_of(request.strategy, seen, str(error)), place, arm), str(error)
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()
    yield ArmFailed(arm, place.round, place.warmup, message, record)
    return record


def _placed(record: RunRecord, place: Place, arm: str) -> RunRecord:
    """The record at its place; one that its strategy names needs no other name."""
    own = None if arm == record.strategy else arm
    return replace(record, round=place.round, order=place.order, warmup=place.warmup, arm=own)


def _record_of(strategy: str, seen: list[PromptEncoded | TokenEmitted], error: str) -> RunRecord:
    """The record of a run that failed and could not hand over its own: what its events told, the rest not known."""
    encoded = next((event for event in seen if isinstance(event, PromptEncoded)), None)
    tokens = [event for event in seen if isinstance(event, TokenEmitted)]
    last = tokens[-1] if tokens else None
    ids = tuple(token.token_id for token in tokens if token.token_id is not None)
    held = [(token.cache_bytes, token.cache_storage_bytes) for token in tokens]
    return RunRecord(
        strategy=strategy,
        status="failed",
        finish_reason=None,
        prompt_tokens=encoded.prompt_tokens if encoded else None,
        token_ids=ids if len(ids) == len(tokens) else None,
        num_new_tokens=None if len(ids) == len(tokens) else len(tokens),
        token_times_s=tuple(token.time_s for token in tokens),
        text="".join(token.text for token in tokens),
        error=error,
        positions_computed=None,
        positions_read=None,
        reused_tokens=None if encoded is None else encoded.reuse.reused_tokens if encoded.reuse else 0,
        queue_s=encoded.queue_s if encoded else 0.0,
        prepare_s=encoded.prepare_s if encoded else 0.0,
        cache_tokens=last.cache_tokens if last else None,
        cache_bytes=last.cache_bytes if last else None,
        cache_storage_bytes=last.cache_storage_bytes if last else None,
        notices=encoded.notices if encoded else (),
        cache_bytes_by_token=tuple((own, stored) for own, stored in held if own is not None and stored is not None),
    )
