"""stream(loaded, request) -> the events of one run. Chat, compare, memory measurement, command line and tests consume it.

It knows one model and its turnstile; it does not know visitors, pages or statistics.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from kvdemo.caches.prefix import KeptCaches
from kvdemo.errors import KvdemoError
from kvdemo.facts.events import GenerationEvent, Reuse
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.admission import Admitted, FreeBytes, admit
from kvdemo.generation.device import Device, device_of
from kvdemo.generation.memory import free_bytes
from kvdemo.generation.prompt import EncodedPrompt
from kvdemo.generation.run import Outcome, Run
from kvdemo.generation.run_events import RunEvents
from kvdemo.generation.turnstile import Ticket, Turnstile, until_turn
from kvdemo.models.continuing import unkept_because
from kvdemo.models.loaded import LoadedModel

if TYPE_CHECKING:
    from transformers import Cache

__all__ = ["stream"]


def stream(
    loaded: LoadedModel,
    request: GenerationRequest,
    *,
    turnstile: Turnstile,
    encoded: EncodedPrompt | None = None,
    kept: KeptCaches | None = None,
    owner: str = "",
    stop: threading.Event | None = None,
    reader: Reader = AT_ONCE,
    patient: bool = False,
    make_device: Callable[[str], Device] = device_of,
    free: FreeBytes = free_bytes,
) -> Generator[GenerationEvent, None, None]:
    """Run the model once. The grammar of what it yields, with Working anywhere once it does not wait any more:

        Waiting(place)*  PromptEncoded  PrefillProgress(done, of)*  TokenEmitted*  Finished

    or it raises RunFailed (OutOfMemory), whose record holds what was produced. Exactly one of the two ends it. Everything
    that can be refused is refused before the first event: InvalidRequest, TooBusy.

    encoded       the request's prompt, where somebody has encoded it already
    kept, owner   the caches kept between requests, and whose of them this run may continue; None: a fresh cache
    stop          set it at any time: the run ends within one forward, as cancelled; so it does when this is closed, and
                  closing returns when the run has really ended
    reader        how often he wants to hear; each time ends with Working
    patient       wait in a full line, too, instead of TooBusy
    make_device   the clocks and the memory of a type of device; free: bytes that are free on one
    """
    admitted = admit(loaded, request, encoded=encoded, kept=kept, owner=owner, free=free)
    run = Run(
        admitted,
        make_device(loaded.model.device.type),
        stop or threading.Event(),
        obtain=lambda: _obtain(admitted, kept, owner),
        give_back=lambda cache, token_ids: _give_back(admitted, kept, owner, cache, token_ids),
    )
    events = RunEvents(admitted, run, reader)
    ticket = turnstile.join(patient=patient)
    try:
        yield from until_turn(ticket, run.stop)
        if run.stop.is_set():
            ticket.leave()
            yield events.cancelled_in_line()
            return
    except BaseException:
        ticket.leave()
        raise
    future = loaded.thread.submit(run.work)
    future.add_done_callback(lambda done: _after(done, run, ticket))
    try:
        yield from events
    except KvdemoError:
        raise
    except Exception as error:  # on the reader's side: decoding; the run's own faults are RunFailed already
        run.closed.set()
        concurrent.futures.wait([future])
        raise events.failure(error, run.not_begun() if future.cancelled() else future.result()) from error
    finally:
        run.closed.set()
        concurrent.futures.wait([future])


def _after(done: concurrent.futures.Future[Outcome], run: Run, ticket: Ticket) -> None:
    """The turn ends when the run has really ended, even if nobody listens any more."""
    ticket.leave()
    if done.cancelled():  # the model's thread was closed before it came to this run
        run.not_begun()


def _obtain(admitted: Admitted, kept: KeptCaches | None, owner: str) -> tuple[Cache | None, Reuse]:
    model, strategy, slots = admitted.loaded.model, admitted.strategy, admitted.slots
    why = unkept_because(model, admitted.loaded.continues)
    if kept is None or why:
        return strategy.make(model.config, slots), Reuse("fresh", 0, 0, why)
    return kept.take(owner, strategy, admitted.token_ids, slots, model.config, to_grow=admitted.to_grow)


def _give_back(
    admitted: Admitted, kept: KeptCaches | None, owner: str, cache: Cache, token_ids: tuple[int, ...]
) -> None:
    if kept is not None:
        kept.keep(owner, admitted.strategy, cache, token_ids)
