"""stream(loaded, request) -> the events of one run. Chat, compare, memory measurement, command line and tests consume it.

It knows one model and its turnstile; it does not know visitors, pages or statistics.
"""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvdemo.caches.prefix import KeptCaches, kept_slots
from kvdemo.caches.strategies import available_strategy
from kvdemo.errors import KvdemoError, OutOfMemory, RunFailed, is_out_of_memory
from kvdemo.facts.events import (
    Finished,
    GenerationEvent,
    PrefillProgress,
    PromptEncoded,
    Reuse,
    TokenEmitted,
    Working,
)
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.admission import FreeBytes, checked_slots, lacking, refuse_generation_config
from kvdemo.generation.device import Device, device_of
from kvdemo.generation.memory import free_bytes
from kvdemo.generation.prompt import EncodedPrompt, encode_prompt
from kvdemo.generation.run import Accepted, Ended, Fact, Run, Step, end_ids, stop_strings
from kvdemo.generation.text import IncrementalText
from kvdemo.generation.turnstile import HEARTBEAT_S, Ticket, Turnstile, until_turn
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.states import unkept_because

if TYPE_CHECKING:
    from transformers import Cache

__all__ = ["stream"]

PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[\\/](?:[^\s'\"\\/]+[\\/])[^\s'\"]*")

log = logging.getLogger(__name__)


def stream(
    loaded: LoadedModel,
    request: GenerationRequest,
    *,
    turnstile: Turnstile,
    kept: KeptCaches | None = None,
    owner: str = "",
    stop: threading.Event | None = None,
    reader: Reader = AT_ONCE,
    patient: bool = False,
    make_device: Callable[[str], Device] = device_of,
    free: FreeBytes = free_bytes,
) -> Iterator[GenerationEvent]:
    """Run the model once. The grammar of what it yields, with Working anywhere once it does not wait any more:

        Waiting(place)*  PromptEncoded  PrefillProgress(done, of)*  TokenEmitted*  Finished

    or it raises RunFailed (OutOfMemory), whose record holds what was produced. Exactly one of the two ends it. Everything
    that can be refused is refused before the first event: InvalidRequest, TooBusy.

    kept, owner   the caches kept between requests, and whose of them this run may continue; None: a fresh cache
    stop          set it at any time: the run ends within one forward, as cancelled; so it does when this is closed, and
                  closing returns when the run has really ended
    reader        how often he wants to hear; each time ends with Working
    patient       wait in a full line, too, instead of TooBusy
    make_device   the clocks and the memory of a type of device; free: bytes that are free on one
    """
    entered_s = time.perf_counter()
    strategy = available_strategy(request.strategy, loaded.model)
    refuse_generation_config(loaded)
    encoded = encode_prompt(loaded, request.prompt)
    keeps = kept is not None and strategy.keeping != "no"
    held_bytes = kept.storage_bytes(owner) if kept is not None and keeps else 0
    slots = checked_slots(loaded, request, strategy, len(encoded.token_ids), held_bytes=held_bytes, free_bytes=free)
    # More slots than this turn needs save the next ones a refill; they are no reason to refuse this one.
    to_grow = (
        request.cache_slots is None and lacking(loaded, strategy, kept_slots(strategy, slots), held_bytes, free) is None
    )
    prepare_s = time.perf_counter() - entered_s
    run = Run(
        loaded,
        request,
        strategy,
        encoded.token_ids,
        obtain=lambda: _obtain(run, slots, kept, owner, to_grow),
        give_back=lambda ended: _give_back(ended, kept, owner),
        make_device=make_device,
    )
    if stop is not None:
        run.stop = stop
    told = _Told(run, encoded, entered_s, prepare_s, reader)
    ticket = turnstile.join(patient=patient)
    try:
        yield from until_turn(ticket, run.stop)
        if run.stop.is_set():
            ticket.leave()
            yield told.cancelled()
            return
    except BaseException:
        ticket.leave()
        raise
    future = loaded.thread.submit(run.work)
    future.add_done_callback(lambda done: _after(done, run, ticket))
    try:
        yield from told.events()
    except KvdemoError:
        raise
    except Exception as error:  # on the reader's side: decoding; the run's own faults are RunFailed already
        run.closed.set()
        concurrent.futures.wait([future])
        raise told.failure(error) from error
    finally:
        run.closed.set()
        concurrent.futures.wait([future])


def _after(done: concurrent.futures.Future[None], run: Run, ticket: Ticket) -> None:
    """The turn ends when the run has really ended, even if nobody listens any more."""
    ticket.leave()
    if done.cancelled():  # the model's thread was closed before it came to this run
        run.end_with(Ended("cancelled"))


def _obtain(run: Run, slots: int, kept: KeptCaches | None, owner: str, to_grow: bool) -> tuple[Cache | None, Reuse]:
    model = run.loaded.model
    why = unkept_because(model, run.loaded.continues)
    if kept is None or why:
        return run.strategy.make(model.config, slots), Reuse("fresh", 0, 0, why)
    return kept.take(owner, run.strategy, run.token_ids, slots, model.config, to_grow=to_grow)


def _give_back(run: Run, kept: KeptCaches | None, owner: str) -> None:
    if kept is not None and run.cache is not None:
        sequence = (*run.token_ids, *(step.token_id for step in run.steps))
        kept.keep(owner, run.strategy, run.cache, sequence[: run.final_tokens])


class _Told:
    """The consumer's side of a run: facts from the model's thread become events."""

    def __init__(self, run: Run, encoded: EncodedPrompt, entered_s: float, prepare_s: float, reader: Reader) -> None:
        self._run = run
        self._reader = reader
        self._encoded = encoded
        self._entered_s = entered_s
        self._prepare_s = prepare_s
        self._queue_s = 0.0
        self._text = IncrementalText(run.loaded.tokenizer, stop_strings(run.loaded, run.request))

    def events(self) -> Iterator[GenerationEvent]:
        index = 0
        for fact in self._facts():
            if fact is None:
                yield Working(time.perf_counter() - self._entered_s)
            elif isinstance(fact, Accepted):
                self._queue_s = max(0.0, fact.at_s - self._entered_s - self._prepare_s)
                yield self._encoded_event(fact)
            elif isinstance(fact, PrefillProgress):
                yield fact
            elif isinstance(fact, Step):
                text = self._text.push(fact.token_id)
                yield _emitted(index, fact, text)
                index += 1
            else:
                yield self._end(fact)
                return

    def _facts(self) -> Iterator[Fact | None]:
        """What the model's thread has put down, as often as the reader wants to hear; None: that was all for now.

        A reader who waits for the next fact is woken by every token. One who waits for the end, and looks at the facts
        when his time is over, leaves the interpreter to the thread that runs the model.
        """
        run, every_s = self._run, min(self._reader.every_s, HEARTBEAT_S)
        while not every_s:
            try:
                yield run.out.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                yield None
        quiet_s = 0.0
        while True:
            run.ended.wait(every_s)
            quiet_s += every_s
            for _ in range(run.out.qsize()):
                quiet_s = 0.0
                yield run.out.get()
            if not quiet_s or quiet_s + every_s > HEARTBEAT_S:
                quiet_s = 0.0
                yield None

    def cancelled(self) -> Finished:
        """The end of a run that was stopped while it stood in line."""
        self._queue_s = time.perf_counter() - self._entered_s - self._prepare_s
        return Finished("cancelled", self._record("cancelled", "cancelled"))

    def _encoded_event(self, accepted: Accepted) -> PromptEncoded:
        return PromptEncoded(
            prompt_tokens=len(self._encoded.token_ids),
            queue_s=self._queue_s,
            prepare_s=self._prepare_s,
            context_limit=self._run.loaded.facts.context_limit,
            reserved_tokens=accepted.reserved_tokens,
            reuse=self._in_words(accepted.reuse),
            notices=self._encoded.notices,
        )

    def _in_words(self, reuse: Reuse) -> Reuse:
        """The first differing token on both sides, as text, where there is one."""
        if reuse.kept_token is None or reuse.new_token is None:
            return reuse
        decode = self._run.loaded.tokenizer.decode
        return replace(reuse, kept_text=str(decode([reuse.kept_token])), new_text=str(decode([reuse.new_token])))

    def _end(self, ended: Ended) -> Finished:
        tail = self._text.finish()
        if ended.error is not None:
            raise self.failure(ended.error)
        reason = ended.why or self._reason()
        status = reason if reason in ("cancelled", "timed_out") else "ok"
        return Finished(reason, self._record(status, reason), tail)

    def _reason(self) -> str:
        run = self._run
        if self._text.stopped:
            return "stop_string"
        last = run.steps[-1].token_id if run.steps else None
        if not run.request.fixed_length and last in end_ids(run.loaded):
            return "stop"
        # A stop string that began in the prompt ends generate too, with fewer tokens than asked for.
        return "length" if len(run.steps) >= run.request.max_new_tokens else "stop_string"

    def failure(self, error: BaseException) -> RunFailed:
        """The run as failed, with what it made until then; the log has the details."""
        number = uuid.uuid4().hex[:8]
        log.error("run %s failed: %s", number, type(error).__name__, exc_info=error)
        if is_out_of_memory(error):
            message = (
                f"There was not enough memory for this run; its cache was dropped. Try fewer tokens. (error {number})"
            )
            return OutOfMemory(message, self._record("failed", None, message))
        message = f"The run failed: {_one_line(error)} (error {number})"
        return RunFailed(message, self._record("failed", None, message))

    def _record(self, status: str, reason: str | None, error: str | None = None) -> RunRecord:
        run = self._run
        ids = tuple(step.token_id for step in run.steps)
        ends = end_ids(run.loaded) if run.request.fixed_length else frozenset()
        return RunRecord(
            strategy=run.strategy.key,
            status=status,
            finish_reason=reason,
            prompt_tokens=len(run.token_ids),
            token_ids=ids,
            token_times_s=tuple(step.time_s for step in run.steps),
            positions_computed=tuple(run.positions_computed),
            positions_read=tuple(run.positions_read),
            text=self._text.text,
            error=error,
            reused_tokens=run.reuse.reused_tokens,
            queue_s=self._queue_s,
            prepare_s=self._prepare_s,
            request_s=time.perf_counter() - self._entered_s,
            cache_tokens=run.final_tokens,
            cache_bytes=run.final_weight.held_bytes,
            cache_storage_bytes=run.final_weight.storage_bytes,
            cache_bytes_by_token=tuple((step.weight.held_bytes, step.weight.storage_bytes) for step in run.steps),
            cache_layers=run.final_layers,
            cache_bytes_by_device=dict(run.final_weight.by_device),
            peak_bytes=run.peak_bytes,
            peak_kind=run.device.peak_kind,
            compile_s=run.compile_s,
            notices=self._encoded.notices,
            would_end_at=next((at for at, token_id in enumerate(ids) if token_id in ends), None),
        )


def _emitted(index: int, step: Step, text: str) -> TokenEmitted:
    return TokenEmitted(
        index=index,
        token_id=step.token_id,
        text=text,
        time_s=step.time_s,
        cache_tokens=step.cache_tokens,
        cache_bytes=step.weight.held_bytes,
        cache_storage_bytes=step.weight.storage_bytes,
    )


def _one_line(error: BaseException) -> str:
    """What the error says, without the paths of this machine."""
    lines = str(error).strip().splitlines()
    return PATH.sub("(a file)", lines[0])[:200] if lines else "it did not say why"
