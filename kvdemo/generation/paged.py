"""Continuous batching with a paged cache: the library's own, for as long as it takes to answer the requests of one load.

Its manager is made, warmed up, fed in the order of arrival, read by one consumer and destroyed again inside the model's thread,
which takes no other job meanwhile; the manager's own thread runs the model. What it holds (layers, sizes) is read from names that
are private to the library: where one is gone, the figure is None.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.load import Forward, ManyRequest
from kvdemo.generation.logits import NotNumbers
from kvdemo.generation.serving import Answer, Load, Served

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["batch_tokens", "continuous", "pages_for", "refuse_layers"]

BATCH_TOKENS = 128  # query tokens of one forward: more make the mask of tokens x readable tokens large
GLANCE_S = 0.05
SHIPPED_ATTENTION = ("sdpa", "eager", "paged|eager")


class EngineFailed(Exception):
    """The engine's own thread ended, for a reason that it told."""


def refuse_layers(model: PreTrainedModel) -> None:
    """InvalidRequest where continuous batching does not take this model."""
    why = _layers_refused(model) or _attention_refused(model)
    if why:
        raise InvalidRequest("modes", f"continuous batching cannot run {model.config.model_type} here: {why}")


def pages_for(request: ManyRequest, prompts: tuple[tuple[int, ...], ...]) -> int:
    """Pages that hold all requests with their answers at once, none shared; what was asked for where it was."""
    if request.num_pages is not None:
        return request.num_pages
    needed = (len(ids) + one.max_new_tokens for ids, one in zip(prompts, request.arrivals, strict=True))
    return sum(math.ceil(tokens / request.page_size) for tokens in needed)


def batch_tokens(num_requests: int) -> int:
    """Query tokens of one forward at the most: each request may decode one."""
    return max(BATCH_TOKENS, num_requests)


def continuous(load: Load) -> Served:
    """All requests by one manager, which is gone when this returns or raises, and its memory with it."""
    model = load.loaded.model
    attention = model.config._attn_implementation
    manager = _manager_of(load)
    try:
        return _serve(load, manager)
    finally:
        cache = getattr(manager.batch_processor, "cache", None)
        manager.stop(block=True, hard_stop=True)
        manager.destroy()
        if model.config._attn_implementation != attention:  # one that was never started does not set it back
            model.set_attn_implementation(attention)
        _free(cache)


def _free(cache: Any) -> None:
    """Give the pages back, whoever still holds their owner: an error that is kept holds the frames that it came through."""
    tensor = getattr(cache, "cache_tensor", None)
    if tensor is not None:
        tensor.untyped_storage().resize_(0)
    gc.collect()


def _manager_of(load: Load) -> Any:
    from transformers import ContinuousBatchingConfig

    request, model = load.request, load.loaded.model
    generation = copy.deepcopy(model.generation_config)
    generation.update(do_sample=False, num_return_sequences=1, eos_token_id=sorted(load.ends()) or -1)
    generation.update(temperature=None, top_p=None, top_k=None, compile_config=None)
    config = ContinuousBatchingConfig(
        page_size=request.page_size,
        num_blocks=pages_for(request, load.prompts),
        max_batch_tokens=batch_tokens(len(load.prompts)),
        max_requests_per_batch=len(load.prompts),
        allow_block_sharing=request.share_prefix,
        safety_margin=0.0,  # the pool is sized to the load: nothing of it is kept back
        use_cuda_graph=False,
        use_async_batching=False,
        auto_switch_to_flash=False,  # the same kernels as the other modes
    )
    # One that somebody left on the model would be taken, whatever config it was made with.
    model.destroy_cached_continuous_batching_manager()
    return model.init_continuous_batching(generation_config=generation, continuous_batching_config=config)


def _serve(load: Load, manager: Any) -> Served:
    manager.warmup()  # here, so that what cannot be allocated is raised here and before the clock
    watch = _Watch(load, manager.batch_processor)
    _refuse_what_is_no_number(getattr(manager.batch_processor, "model_runner", None))
    served = Served([Answer() for _ in load.encoded], padding_positions=0)
    waiting = list(range(len(load.prompts)))
    running: set[int] = set()
    why = None
    manager.start()
    load.begin()
    while waiting or running:
        if why := load.over():
            break
        while waiting and load.arrived(waiting[0]):
            index = waiting.pop(0)
            arrival = load.request.arrivals[index]
            added = manager.add_request(
                list(load.prompts[index]),
                request_id=str(index),
                max_new_tokens=arrival.max_new_tokens,
                record_timestamps=True,
            )
            if added is None:
                raise _reason(manager)
            running.add(index)
        result = manager.get_result(timeout=_until_next(load, waiting))
        if result is not None:
            running.discard(int(result.request_id))
            served.answers[int(result.request_id)] = _answer(result)
        elif not manager.is_running() or manager.background_thread_status.fatal_error is not None:
            raise _reason(manager)
    if (error := manager.background_thread_status.fatal_error) is not None:
        raise EngineFailed(str(error)) from error
    if why is not None:
        for answer in served.answers:
            answer.status = why if answer.started_s is None else answer.status
    watch.fill(served)
    return served


def _refuse_what_is_no_number(runner: Any) -> None:
    """NaN is the largest of all logits, so that one of them makes every request choose that same token: a fault, named."""
    sample = getattr(runner, "_sample", None)
    if sample is None or getattr(runner, "pad_inputs", True):  # rows of padding need not be numbers
        return

    def checked(scores: Any, *args: Any) -> None:
        if not scores.amax(dim=-1).isfinite().all():
            raise NotNumbers
        sample(scores, *args)

    runner._sample = checked


def _until_next(load: Load, waiting: list[int]) -> float:
    if not waiting:
        return GLANCE_S
    return min(GLANCE_S, max(0.001, load.request.arrivals[waiting[0]].at_s - load.now_s()))


def _reason(manager: Any) -> Exception:
    error = manager.background_thread_status.fatal_error
    failed = EngineFailed(f"the engine's thread ended: {error or 'it did not say why'}")
    failed.__cause__ = error
    return failed


def _answer(result: Any) -> Answer:
    """GenerationOutput as ours. Fewer times than tokens: the engine took its pages away and began it anew."""
    ids, times = tuple(result.generated_tokens), tuple(result.timestamps or ())
    started = result.lifespan[0] if result.lifespan[0] > 0 else None
    if result.error is not None:
        return Answer(started, ids, times[: len(ids)], "failed", str(result.error))
    return Answer(started, ids, times, "ok", complete=len(times) == len(ids))


class _Watch:
    """What every forward had to compute and to read, and the pages in use: from the scheduler of this one manager."""

    def __init__(self, load: Load, processor: Any) -> None:
        self._load = load
        self._cache = getattr(processor, "cache", None)
        self._scheduler = getattr(processor, "scheduler", None)
        self._forwards: list[Forward] | None = None
        self._reused: dict[int, int] | None = None
        self._page_bytes, self._num_pages = self._sizes()
        if self._scheduler is not None and hasattr(self._scheduler, "schedule_batch"):
            self._forwards = []
            self._scheduler.schedule_batch = self._scheduled(self._scheduler.schedule_batch)
        if self._cache is not None and hasattr(self._cache, "search_prefix_match"):
            self._reused = {}
            self._cache.search_prefix_match = self._matched(self._cache.search_prefix_match)

    def fill(self, served: Served) -> None:
        served.forwards = self._forwards
        served.num_pages, served.page_bytes = self._num_pages, self._page_bytes
        tensor = getattr(self._cache, "cache_tensor", None)
        served.reserved_bytes = None if tensor is None else tensor.numel() * tensor.element_size()
        used = [forward.pages for forward in self._forwards or () if forward.pages is not None]
        served.peak_bytes = max(used) * self._page_bytes if used and self._page_bytes is not None else None
        for index, answer in enumerate(served.answers):
            answer.reused_tokens = None if self._reused is None else self._reused.get(index, 0)

    def _sizes(self) -> tuple[int | None, int | None]:
        cache = self._cache
        total, pages = getattr(cache, "num_sectors", None), getattr(cache, "num_blocks", None)
        each = getattr(cache, "bytes_per_sector", None)
        if not total or not pages or each is None:
            return None, None
        return total * each // pages, pages

    def _scheduled(self, schedule: Callable[..., Any]) -> Callable[..., Any]:
        def scheduled(*args: Any) -> Any:
            at_s = self._load.device.now_s()
            batch = schedule(*args)
            requests, _, computed, read = batch
            if requests and self._forwards is not None:
                self._forwards.append(Forward(at_s, computed, read, self._pages_used()))
            return batch

        return scheduled

    def _matched(self, search: Callable[..., int]) -> Callable[..., int]:
        def matched(request_id: str, *args: Any) -> int:
            found = search(request_id, *args)
            if found and self._reused is not None and request_id.isdecimal():
                self._reused[int(request_id)] = self._reused.get(int(request_id), 0) + found
            return found

        return matched

    def _pages_used(self) -> int | None:
        free = getattr(self._cache, "compute_free_capacity", None)
        return None if free is None or not self._num_pages else math.ceil(self._num_pages * (1 - free()) - 1e-9)


def _layers_refused(model: PreTrainedModel) -> str:
    if not hasattr(model, "init_continuous_batching"):
        return "its class has no continuous batching."
    config = model.config.get_text_config(decoder=True)
    if getattr(config, "kv_lora_rank", None):
        return "it keeps keys and values of one size by head, and this model keeps latent ones."
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        return (
            f"it takes layers of full and of sliding attention, and this model has others ({', '.join(sorted(kinds))})."
        )
    return ""


def _attention_refused(model: PreTrainedModel) -> str:
    attention = str(model.config._attn_implementation)
    if attention in SHIPPED_ATTENTION or attention.startswith("flash"):
        return ""
    return f"its attention is {attention}, and only sdpa, eager and flash attention can read pages."
