"""One `model.generate`, inside the model's thread.

A streamer of ours receives each step's ids, stamps the clock, weighs the cache and puts facts on a queue; it does nothing
else there. A pre-hook on every forward counts the positions it is given and ends the run when it should end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvdemo.caches.footprint import CacheWeight, cached_tokens, room_of, weigh, weigh_layers
from kvdemo.caches.strategies import Strategy
from kvdemo.facts.events import PrefillProgress, Reuse
from kvdemo.facts.records import LayerBytes
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.compiling import timing_compiles
from kvdemo.generation.device import Device, device_of
from kvdemo.generation.ends import ends_seen_at_once
from kvdemo.generation.logits import refuse_what_is_no_number

if TYPE_CHECKING:
    from transformers import Cache

    from kvdemo.models.loaded import LoadedModel

__all__ = ["Accepted", "Ended", "Fact", "Run", "Step", "end_ids", "stop_strings"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The model's thread has taken the run, at this time of its clock.

    reuse             what it continues
    reserved_tokens   slots of a cache of fixed size, None for one that has no end
    """

    at_s: float
    reuse: Reuse
    reserved_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One new token, s since acceptance."""

    token_id: int
    time_s: float
    cache_tokens: int
    weight: CacheWeight


@dataclass(frozen=True, slots=True)
class Ended:
    """generate has returned or raised; `why` is "" when it ended by itself."""

    why: str
    error: BaseException | None = None


Fact = Accepted | PrefillProgress | Step | Ended


class _Cut(Exception):
    """Raised in a forward to end generate."""


@dataclass
class Run:
    """What one run needs in the model's thread, and what it leaves there.

    obtain           called first: the cache to fill (None without one), and what of it was there before
    give_back        called last, when generate has ended by itself or was cut, so that model and cache are sound
    stop, closed     somebody asked for its end; nobody reads it any more
    make_device      the clocks and the memory of a type of device
    out              facts for the consumer, ended by exactly one Ended
    ended            set when all of them are in `out`
    """

    loaded: LoadedModel
    request: GenerationRequest
    strategy: Strategy
    token_ids: tuple[int, ...]
    obtain: Callable[[], tuple[Cache | None, Reuse]]
    give_back: Callable[[Run], None]
    make_device: Callable[[str], Device] = device_of
    cache: Cache | None = None
    reuse: Reuse = field(default_factory=lambda: Reuse("fresh", 0, 0))
    device: Device = field(init=False)
    out: queue.SimpleQueue[Fact] = field(default_factory=queue.SimpleQueue)
    ended: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    steps: list[Step] = field(default_factory=list)
    positions_computed: list[int] = field(default_factory=list)
    positions_read: list[int] = field(default_factory=list)
    peak_bytes: int | None = None
    final_tokens: int = 0
    final_weight: CacheWeight = field(default_factory=lambda: CacheWeight(0, 0, {}))
    final_layers: tuple[LayerBytes, ...] = ()
    compile_s: float | None = None
    _accepted_s: float = 0.0
    _prompt_seen: bool = False

    def __post_init__(self) -> None:
        self.device = self.make_device(self.loaded.model.device.type)

    def work(self) -> None:
        """Run generate to its end; never raises, whatever happens is in `out`."""
        try:
            ended = self._until_end()
        except BaseException as error:  # the consumer raises it
            self.cache = None  # what it holds now is anybody's guess
            ended = Ended("", error)
        self.end_with(ended)

    def end_with(self, ended: Ended) -> None:
        """The last fact, which is told at once."""
        self.out.put(ended)
        self.ended.set()

    def _until_end(self) -> Ended:
        import torch

        with torch.inference_mode():
            self.device.start_peak()
            self._accepted_s = self.device.now_s()
            self.cache, self.reuse = self.obtain()
            reserved = None if self.cache is None else room_of(self.cache)
            self.out.put(Accepted(self._accepted_s, self.reuse, reserved))
            self.loaded.gate.listener = self._before_forward
            why = ""
            try:
                self._generate()
            except _Cut as cut:
                why = str(cut)
            finally:
                self.loaded.gate.listener = None
                # Here and now: as soon as this run has ended, the next one makes the device forget its peak.
                self.peak_bytes = self.device.peak_bytes()
            self.final_weight = weigh(self.cache)
            self.final_tokens = cached_tokens(self.cache)
            self.final_layers = () if self.cache is None else weigh_layers(self.cache)
            self.give_back(self)
        return Ended(why)

    def _generate(self) -> None:
        if not self.strategy.compiles:
            return self._call_generate()
        with timing_compiles() as clock:
            try:
                self._call_generate()
            finally:
                self.compile_s = clock.spent_s

    def _call_generate(self) -> None:
        import torch

        model, request = self.loaded.model, self.request
        # The keyword None wins over generation_config.json, which may name a cache, chunks and times of its own.
        options: dict[str, Any] = {"cache_implementation": None, "prefill_chunk_size": None, "max_time": None}
        options |= {"max_new_tokens": request.max_new_tokens, "use_cache": self.cache is not None}
        if self.cache is not None:
            options["cache"] = self.cache
            # Every length that a compiled forward meets would be compiled anew: chunks are for the others.
            if request.prefill_chunk is not None and self.loaded.continues and not self.strategy.compiles:
                options["prefill_chunk_size"] = request.prefill_chunk
        options["logits_processor"] = [refuse_what_is_no_number]
        options |= self._sampling() | self._ending() | self._compiling()
        if not request.sampling.greedy:
            torch.manual_seed(request.sampling.seed)
        input_ids = torch.tensor([self.token_ids], device=model.device)
        with ends_seen_at_once():
            model.generate(input_ids, attention_mask=torch.ones_like(input_ids), streamer=self, **options)

    def _sampling(self) -> dict[str, Any]:
        sampling = self.request.sampling
        if sampling.greedy:
            return {"do_sample": False}
        return {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }

    def _ending(self) -> dict[str, Any]:
        # The keyword None is kept; in a GenerationConfig it would be refilled from the model's own.
        ends = end_ids(self.loaded)
        pad = self.loaded.tokenizer.pad_token_id
        options: dict[str, Any] = {"pad_token_id": pad if pad is not None else next(iter(sorted(ends)), 0)}
        if self.request.fixed_length:
            return {**options, "eos_token_id": None, "stop_strings": None}
        options["eos_token_id"] = sorted(ends) or None
        if stops := stop_strings(self.loaded, self.request):
            options |= {"stop_strings": list(stops), "tokenizer": self.loaded.tokenizer}
        return options

    def _compiling(self) -> dict[str, Any]:
        if not self.strategy.compiles:
            # On an accelerator generate would compile by itself as soon as the cache is static.
            return {"disable_compile": True}
        from transformers import CompileConfig

        config = CompileConfig()
        config._compile_all_devices = True  # a CPU is left out otherwise
        return {"compile_config": config}

    def _before_forward(self, kwargs: dict[str, Any]) -> None:
        if self.stop.is_set() or self.closed.is_set():
            raise _Cut("cancelled")
        timeout_s = self.request.timeout_s
        if timeout_s is not None and time.perf_counter() - self._accepted_s > timeout_s:
            raise _Cut("timed_out")
        given = kwargs.get("input_ids")
        if given is None:
            given = kwargs["inputs_embeds"]
        if not self.steps:
            of = len(self.token_ids) - self.reuse.reused_tokens
            self.out.put(PrefillProgress(sum(self.positions_computed), of))
        self.positions_read.append(cached_tokens(self.cache))
        self.positions_computed.append(int(given.shape[1]))

    def put(self, value: Any) -> None:
        """generate's streamer interface: the prompt first, then the ids of each step."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        time_s = self.device.now_s() - self._accepted_s
        step = Step(int(value.reshape(-1)[-1]), time_s, cached_tokens(self.cache), weigh(self.cache))
        self.steps.append(step)
        self.device.sample_peak()
        self.out.put(step)

    def end(self) -> None:
        """generate's streamer interface: nothing left to flush."""


def stop_strings(loaded: LoadedModel, request: GenerationRequest) -> tuple[str, ...]:
    """The texts that end an answer: those of the request and of generation_config.json; none at a fixed length."""
    if request.fixed_length:
        return ()
    own = loaded.model.generation_config.stop_strings or ()
    return (*request.stop_strings, *([own] if isinstance(own, str) else own))


def end_ids(loaded: LoadedModel) -> frozenset[int]:
    """The tokens that end an answer: all that generation_config.json, config.json and the tokenizer name.

    Each of them may name other ones: a chat template ends turns with the tokenizer's while generation_config.json names
    the base model's, and a generation_config.json without any hides those of config.json from generate.
    """
    model = loaded.model
    named = (
        model.generation_config.eos_token_id,
        getattr(model.config, "eos_token_id", None),
        getattr(model.config.get_text_config(decoder=True), "eos_token_id", None),
        loaded.tokenizer.eos_token_id,
    )
    ids = (token_id for ends in named for token_id in (ends if isinstance(ends, list | tuple) else [ends]))
    return frozenset(token_id for token_id in ids if isinstance(token_id, int) and token_id >= 0)  # -1: none
