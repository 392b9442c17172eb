"""Continuous batching goes around generate: a manager's thread schedules requests, and its cache has pages.

All names here are private to the library: one that is gone is not patched, and what it would have told is None.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kvdemo.watching.models import kind_of, name_of
from kvdemo.watching.record import Call, How, Setting

if TYPE_CHECKING:
    from kvdemo.watching.observer import Observer

__all__ = ["Batching", "patch_batching"]


class Batching:
    """One run of a manager's loop: what was scheduled, and the answers."""

    def __init__(self, manager: Any, where: str, how: How, began_s: float) -> None:
        self.manager, self.where, self.how, self.began_s = manager, where, how, began_s
        self.computed: list[int] = []
        self.read: list[int] = []
        self.intervals: list[tuple[float, float]] = []
        self.scheduled = False
        self.outputs: list[Any] = []
        self.peak: tuple[int | None, int | None] = (None, None)
        self.reused = 0

    def batch(self, scheduler: Any, batch: Any) -> None:
        """What the scheduler has chosen for one forward."""
        requests, _, computed, read = batch
        if not requests:
            return
        self.scheduled = True
        self.computed.append(int(computed))
        self.read.append(int(read))
        self.look(scheduler.cache)

    def look(self, cache: Any) -> None:
        """Pages in use, in bytes."""
        total, pages = getattr(cache, "num_sectors", None), getattr(cache, "num_blocks", None)
        each, free = getattr(cache, "bytes_per_sector", None), getattr(cache, "compute_free_capacity", None)
        if not total or not pages or each is None or free is None:
            return
        used = round(pages * (1 - free()))
        held = used * (total * each // pages)
        if held >= (self.peak[0] or 0):
            self.peak = (held, used * getattr(cache, "page_size", 0) or None)

    def call(self, keep_ids: bool) -> Call:
        outputs = [output for output in self.outputs if not output.error]
        prompt = sum(len(output.prompt_ids) for output in outputs)
        made = sum(len(output.generated_tokens) for output in outputs)
        busy_s = sum(ended - began for began, ended in self.intervals)
        cached = None if len(self.computed) < 2 else sum(self.computed) <= prompt + made
        ids = tuple(tuple(output.generated_tokens) for output in sorted(outputs, key=lambda one: one.request_id))
        processor = getattr(self.manager, "batch_processor", None)
        return Call(
            where=self.where,
            how=self.how,
            model_type=kind_of(self.manager.model),
            model=name_of(self.manager.model),
            batch_size=len(self.outputs),
            use_cache=Setting(True, "call"),
            cache_class=type(getattr(processor, "cache", None)).__name__ if processor is not None else "a paged cache",
            positions_computed=tuple(self.computed),
            positions_read=tuple(self.read),
            prompt_tokens=prompt,
            new_tokens=made,
            reused_tokens=self.reused,
            generation_s=busy_s,
            ttft_s=None,
            tpot_s=None,
            peak_cache_bytes=self.peak[0],
            peak_cache_tokens=self.peak[1],
            finish_reason=None,
            cached=cached,
            rows=1,
            cache_origin="paged",
            error=None if len(outputs) == len(self.outputs) else "RequestFailed",
            token_ids=ids if keep_ids else None,
        )


def patch_batching(observer: Observer, module: ModuleType) -> None:
    """Watch every manager's loop, from whichever entry it was started."""
    put = observer.patches.replace
    manager, processor = (
        getattr(module, "ContinuousBatchingManager", None),
        module.__dict__.get("ContinuousBatchProcessor"),
    )
    if manager is None or processor is None:
        return
    put(manager, "_run_generation_loop", functools.partial(_loop, observer))
    put(manager, "_generation_loop_body", functools.partial(_body, observer))
    put(processor, "warmup", functools.partial(_warmup, observer))
    router = getattr(module, "OutputRouter", None)
    if router is not None:
        put(router, "deliver", functools.partial(_deliver, observer, False))
        put(router, "deliver_batch", functools.partial(_deliver, observer, True))
    cache = getattr(module, "PagedAttentionCache", None)
    if cache is not None:
        put(cache, "search_prefix_match", functools.partial(_matched, observer))
    schedulers = set(getattr(module, "SCHEDULER_MAPPING", {}).values())
    for scheduler in sorted(schedulers, key=lambda kind: str(kind.__name__)):
        put(scheduler, "schedule_batch", functools.partial(_schedule, observer))


def _loop(observer: Observer, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(manager: Any, *args: Any, **kwargs: Any) -> Any:
        if not observer.open:
            return original(manager, *args, **kwargs)
        where, in_batch = observer.place()
        how: How = "generate_batch" if in_batch else "continuous batching"
        observer.met(manager.model)
        batching = observer.here.batching = Batching(manager, where, how, observer.clock())
        try:
            return original(manager, *args, **kwargs)
        finally:
            observer.here.batching = None
            observer.safely(_ended, observer, batching)

    return run


def _ended(observer: Observer, batching: Batching) -> None:
    if not batching.computed:
        return
    call = batching.call(observer.keep_ids)
    began_s = observer.since_beginning(batching.began_s)
    observer.add(dataclasses.replace(call, began_s=began_s), *batching.intervals)
    if observer.override is not None:
        observer.override.notes.add("Continuous batching has a cache of its own, which cannot be overridden.")


def _body(observer: Observer, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def body(manager: Any, *args: Any, **kwargs: Any) -> Any:
        batching = observer.here.batching
        if batching is None:
            return original(manager, *args, **kwargs)
        began_s, batching.scheduled = observer.clock(), False
        try:
            return original(manager, *args, **kwargs)
        finally:
            if batching.scheduled:
                batching.intervals.append((began_s, observer.clock()))

    return body


def _schedule(observer: Observer, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def schedule(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        batch = original(scheduler, *args, **kwargs)
        if observer.here.batching is not None:
            observer.safely(observer.here.batching.batch, scheduler, batch)
        return batch

    return schedule


def _matched(observer: Observer, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def search(cache: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(cache, *args, **kwargs)
        if observer.here.batching is not None:
            observer.here.batching.reused += int(found or 0)
        return found

    return search


def _deliver(observer: Observer, several: bool, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def deliver(router: Any, outputs: Any) -> Any:
        batching = observer.here.batching
        if batching is not None:
            batching.outputs.extend(outputs if several else [outputs])
        return original(router, outputs)

    return deliver


def _warmup(observer: Observer, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def warmup(processor: Any, *args: Any, **kwargs: Any) -> Any:
        observer.here.warming = True
        try:
            return original(processor, *args, **kwargs)
        finally:
            observer.here.warming = False

    return warmup
