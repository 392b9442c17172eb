"""run_many(loaded, request) -> the events of several requests that are served together, in one turn.

It knows one model and its turnstile, as stream.py does; how the requests are served is in serving.py and paged.py.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import replace

from kvdemo.errors import ContextFull, InvalidRequest, is_out_of_memory
from kvdemo.facts.events import Waiting, Working
from kvdemo.facts.load import PAGED, ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.records import FinishReason, RunRecord, Status
from kvdemo.facts.requests import SamplingParams
from kvdemo.facts.units import format_bytes
from kvdemo.generation.admission import FreeBytes
from kvdemo.generation.device import Device, device_of
from kvdemo.generation.ends import end_ids
from kvdemo.generation.generation_config import refuse_generation_config
from kvdemo.generation.memory import free_bytes
from kvdemo.generation.paged import batch_tokens, continuous, pages_for, refuse_layers
from kvdemo.generation.prompt import EncodedPrompt, encode_prompt
from kvdemo.generation.run_events import one_line
from kvdemo.generation.serving import Answer, Load, Served, one_by_one, padded
from kvdemo.generation.turnstile import HEARTBEAT_S, Turnstile, until_turn
from kvdemo.models.loaded import LoadedModel

__all__ = ["checked_many", "run_many"]

PREEMPTED = "preempted, times incomplete"
TRASH_PAGES = 2  # the pool has two more than it hands out

Serve = Callable[[Load], Served]
SERVING: dict[str, Serve] = {"one-by-one": one_by_one, "padded": padded, "continuous": continuous}

log = logging.getLogger(__name__)


def run_many(
    loaded: LoadedModel,
    request: ManyRequest,
    *,
    turnstile: Turnstile,
    stop: threading.Event | None = None,
    every_s: float = HEARTBEAT_S,
    make_device: Callable[[str], Device] = device_of,
    free: FreeBytes = free_bytes,
) -> Generator[Waiting | Working | ManyFinished, None, None]:
    """Serve the requests. The grammar of what it yields: Waiting(place)*  Working*  ManyFinished.

    Whatever can be refused is refused before the first event (InvalidRequest). A failure ends in a record with status
    failed and its reason. The turn lasts until all requests are answered: nobody else's run comes between them.
    stop: set it at any time, and the record of what was done comes as cancelled; so it does when this is closed, and closing
    returns when the model has really ended.
    """
    encoded = checked_many(loaded, request, free=free)
    load = Load(loaded, request, encoded, make_device=make_device)
    if stop is not None:
        load.stop = stop
    begin_s = time.perf_counter()
    ticket = turnstile.join(patient=True)
    future: concurrent.futures.Future[Served] | None = None
    try:
        yield from until_turn(ticket, load.stop)
        if load.stop.is_set():
            nothing = Served([Answer() for _ in encoded], forwards=None, reserved_bytes=None, peak_bytes=None)
            yield ManyFinished(_record(load, encoded, nothing))
            return
        future = loaded.thread.submit(lambda: _serve(load))
        while concurrent.futures.wait([future], min(every_s or HEARTBEAT_S, HEARTBEAT_S)).not_done:
            yield Working(time.perf_counter() - begin_s)
        try:
            served = future.result()
        except concurrent.futures.CancelledError:  # the model's thread was closed before it came to this
            served = Served([Answer() for _ in encoded], forwards=None, reserved_bytes=None, peak_bytes=None)
        except Exception as error:
            yield ManyFinished(_failure(load, encoded, error))
            return
        yield ManyFinished(_record(load, encoded, served))
    finally:
        load.closed.set()
        if future is not None:
            concurrent.futures.wait([future])  # the turn ends when the model has really ended
        ticket.leave()


def checked_many(
    loaded: LoadedModel, request: ManyRequest, *, free: FreeBytes = free_bytes
) -> tuple[EncodedPrompt, ...]:
    """The prompts as ids; InvalidRequest that names the field where the model or the memory does not allow them."""
    refuse_generation_config(loaded, SamplingParams(), frozenset() if request.fixed_length else end_ids(loaded))
    encoded = tuple(encode_prompt(loaded, arrival.prompt) for arrival in request.arrivals)
    sizes = [
        (len(one.token_ids), arrival.max_new_tokens) for one, arrival in zip(encoded, request.arrivals, strict=True)
    ]
    limit = loaded.facts.context_limit
    for number, (prompt_tokens, new_tokens) in enumerate(sizes, 1):
        if limit is not None and prompt_tokens + new_tokens > limit:
            raise ContextFull(
                f"request {number} has {prompt_tokens:,} prompt tokens and {new_tokens:,} new ones; this model's limit is "
                f"{limit:,} for both together.",
                needed_tokens=prompt_tokens + new_tokens,
                limit_tokens=limit,
            )
    if request.serving == "continuous":
        refuse_layers(loaded.model)
        _check_pages(request, sizes)
    wanted, room = _wanted_bytes(loaded, request, encoded, sizes), free(loaded.model.device.type)
    if wanted > room:
        raise InvalidRequest(
            "requests",
            f"{len(sizes):,} at once, {request.serving}, would take {format_bytes(wanted)} for their caches, and "
            f"{format_bytes(room)} are free. Ask for fewer requests or tokens.",
        )
    return encoded


def _check_pages(request: ManyRequest, sizes: list[tuple[int, int]]) -> None:
    if request.num_pages is None:
        return
    longest = max(prompt_tokens + new_tokens for prompt_tokens, new_tokens in sizes)
    needed = -(-longest // request.page_size)
    if request.num_pages < needed:
        raise InvalidRequest(
            "num_pages",
            f"the longest request needs {needed:,} pages of {request.page_size:,} tokens, and there would be "
            f"{request.num_pages:,}",
        )


def _wanted_bytes(
    loaded: LoadedModel, request: ManyRequest, encoded: tuple[EncodedPrompt, ...], sizes: list[tuple[int, int]]
) -> int:
    """Bytes that the caches take at the most, and with pages the mask over all that can be read."""
    each = loaded.facts.cache_bytes_per_token or 0
    if request.serving == "continuous":
        pages = pages_for(request, tuple(one.token_ids for one in encoded))
        readable, query = pages * request.page_size, batch_tokens(len(sizes))
        mask: int = query * (readable + query) * loaded.model.dtype.itemsize
        return (pages + TRASH_PAGES) * request.page_size * each + 2 * mask
    if request.strategy == "none":
        return 0
    longest = max(prompt_tokens for prompt_tokens, _ in sizes) + max(new_tokens for _, new_tokens in sizes)
    return longest * each * (len(sizes) if request.serving == "padded" else 1)


def _serve(load: Load) -> Served:
    import torch

    with torch.inference_mode():
        return SERVING[load.request.serving](load)


def _record(load: Load, encoded: tuple[EncodedPrompt, ...], served: Served, error: str | None = None) -> ManyRecord:
    runs = tuple(
        _run(load, index, encoded[index], answer, load.request.strategy) for index, answer in enumerate(served.answers)
    )
    ends = [answer.times_s[-1] for answer in served.answers if answer.times_s]
    forwards = served.forwards
    reused = [run.reused_tokens for run in runs]
    return ManyRecord(
        serving=load.request.serving,
        strategy=load.request.strategy,
        status=_status(runs, error),
        runs=runs,
        wall_s=max(ends) - load.began_s if ends else None,
        forwards=None
        if forwards is None
        else tuple(replace(forward, at_s=forward.at_s - load.began_s) for forward in forwards),
        padding_positions=served.padding_positions,
        reserved_cache_bytes=served.reserved_bytes,
        peak_cache_bytes=served.peak_bytes,
        reused_tokens=sum(known) if len(known := [one for one in reused if one is not None]) == len(reused) else None,
        num_pages=served.num_pages,
        page_bytes=served.page_bytes,
        error=error or next((run.error for run in runs if run.error), None),
    )


def _status(runs: tuple[RunRecord, ...], error: str | None) -> Status:
    """Of the whole: ok only where every request was answered."""
    worst: tuple[Status, ...] = ("cancelled", "timed_out", "failed")
    statuses = {run.status for run in runs}
    return "failed" if error is not None else next((status for status in worst if status in statuses), "ok")


def _run(load: Load, index: int, encoded: EncodedPrompt, answer: Answer, strategy: str) -> RunRecord:
    """One request's own record. Its queue is the time from its arrival until it was taken."""
    arrived_s = load.began_s + load.request.arrivals[index].at_s
    started_s = answer.started_s
    times = answer.times_s if answer.complete and started_s is not None else ()
    ids = answer.token_ids
    ends = load.ends()
    reason: FinishReason | None = "stop" if ids and ids[-1] in ends else "length"
    if answer.status != "ok":
        reason = None if answer.status == "failed" else answer.status
    return RunRecord(
        strategy=None if strategy == PAGED else strategy,
        status=answer.status,
        finish_reason=reason,
        prompt_tokens=len(encoded.token_ids),
        token_ids=ids if times or not answer.complete else ids[: len(times)],
        token_times_s=tuple(time_s - (started_s or 0.0) for time_s in times),
        positions_computed=None,
        positions_read=None,
        text=str(load.loaded.tokenizer.decode(list(ids), skip_special_tokens=True)),
        error=answer.error,
        reused_tokens=answer.reused_tokens,
        queue_s=0.0 if started_s is None else max(0.0, started_s - arrived_s),
        request_s=times[-1] - arrived_s if times else None,
        cache_tokens=None,
        cache_bytes=None,
        cache_storage_bytes=None,
        notices=(*encoded.notices, *(() if answer.complete else (PREEMPTED,))),
    )


def _failure(load: Load, encoded: tuple[EncodedPrompt, ...], error: Exception) -> ManyRecord:
    """All of it as failed; the log has the details."""
    number = uuid.uuid4().hex[:8]
    log.error("serving %s failed: %s", number, type(error).__name__, exc_info=error)
    if is_out_of_memory(error) or is_out_of_memory(error.__cause__ or error):
        said = f"There was not enough memory for so many requests. Try fewer. (error {number})"
    else:
        said = f"Serving the requests failed: {one_line(error)} (error {number})"
    failed = Served(
        [Answer(status="failed", error=said) for _ in encoded], forwards=None, reserved_bytes=None, peak_bytes=None
    )
    return _record(load, encoded, failed, said)
