"""One `model.generate`, inside the model's thread.

A streamer of ours receives each step's ids, stamps the clock, weighs the cache and puts facts on a queue; it does nothing
else there. A pre-hook on every forward notes what it is given and ends the run when it should end. What the run came to is
one frozen outcome, the last fact of all: nobody looks into a run from another thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kvdemo.caches.footprint import CacheWeight, cached_tokens, room_of, weigh, weigh_layers
from kvdemo.facts.events import PrefillProgress, Reuse
from kvdemo.facts.records import LayerBytes, PeakKind
from kvdemo.generation.admission import Admitted
from kvdemo.generation.compiling import timing_compiles
from kvdemo.generation.device import Device
from kvdemo.generation.ends import end_ids, ends_seen_at_once, stop_strings
from kvdemo.generation.forwards import Forwards
from kvdemo.generation.logits import refuse_choice_of_no_number, refuse_what_is_no_number

if TYPE_CHECKING:
    import torch
    from transformers import Cache

__all__ = ["FRESH", "Accepted", "Cut", "Fact", "Outcome", "Run", "Step"]

Cut = Literal["cancelled", "timed_out"]

FRESH = Reuse("fresh", 0, 0)
NOTHING = CacheWeight(0, 0, {})


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
class Outcome:
    """What a run came to, made in the model's thread when generate has returned or raised.

    cut                  what ended it early; None when it ended by itself, or by `error`
    steps                the tokens it made
    positions_computed, positions_read   per forward, as in forwards.py
    cache_tokens, weight, layers         of its cache when it ended; nothing of one that a failure left behind
    peak_bytes           above the baseline; None for a run that never began
    compile_s            None where nothing was compiled
    """

    cut: Cut | None
    peak_kind: PeakKind
    error: BaseException | None = None
    reuse: Reuse = FRESH
    steps: tuple[Step, ...] = ()
    positions_computed: tuple[int, ...] | None = ()
    positions_read: tuple[int, ...] | None = ()
    cache_tokens: int = 0
    weight: CacheWeight = NOTHING
    layers: tuple[LayerBytes, ...] = ()
    peak_bytes: int | None = None
    compile_s: float | None = None


Fact = Accepted | PrefillProgress | Step | Outcome


class _Cut(Exception):
    """Raised in a forward to end generate."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut)
        self.cut = cut


class Run:
    """One run: `work` is called in the model's thread, `facts` and `ended` are read by whoever consumes it.

    obtain           called first: the cache to fill (None without one), and what of it was there before
    give_back        called last, when generate has ended by itself or was cut, so that model and cache are sound: the cache
                     and the tokens that it holds
    stop, closed     somebody asked for its end; nobody reads it any more
    facts            for the consumer, ended by exactly one Outcome
    ended            set when all of them are there
    """

    def __init__(
        self,
        admitted: Admitted,
        device: Device,
        stop: threading.Event,
        *,
        obtain: Callable[[], tuple[Cache | None, Reuse]],
        give_back: Callable[[Cache, tuple[int, ...]], None],
    ) -> None:
        self.stop = stop
        self.closed = threading.Event()
        self.facts: queue.SimpleQueue[Fact] = queue.SimpleQueue()
        self.ended = threading.Event()
        self._admitted = admitted
        self._device = device
        self._obtain = obtain
        self._give_back = give_back
        self._cache: Cache | None = None
        self._reuse = FRESH
        self._steps: list[Step] = []
        self._forwards = Forwards()
        self._peak_bytes: int | None = None
        self._compile_s: float | None = None
        self._scores: torch.Tensor | None = None
        self._accepted_s = 0.0
        self._prompt_seen = False

    def work(self) -> Outcome:
        """Run generate to its end; never raises, whatever happens is in the outcome."""
        try:
            cut = self._until_end()
            outcome = self._outcome(cut, self._cache)
            self._hand_back(outcome)
        except BaseException as error:  # the consumer raises it
            outcome = self._outcome(None, None, error)  # what the cache holds now is anybody's guess
        self._cache = None
        return self._end_with(outcome)

    def not_begun(self) -> Outcome:
        """The outcome of a run that was stopped, or lost its thread, before it began."""
        return self._end_with(Outcome("cancelled", self._device.peak_kind))

    def _end_with(self, outcome: Outcome) -> Outcome:
        self.facts.put(outcome)
        self.ended.set()
        return outcome

    def _outcome(self, cut: Cut | None, cache: Cache | None, error: BaseException | None = None) -> Outcome:
        return Outcome(
            cut=cut,
            peak_kind=self._device.peak_kind,
            error=error,
            reuse=self._reuse,
            steps=tuple(self._steps),
            positions_computed=self._forwards.positions_computed,
            positions_read=self._forwards.positions_read,
            cache_tokens=cached_tokens(cache),
            weight=weigh(cache),
            layers=() if cache is None else weigh_layers(cache),
            peak_bytes=self._peak_bytes,
            compile_s=self._compile_s,
        )

    def _hand_back(self, outcome: Outcome) -> None:
        if self._cache is not None:
            sequence = (*self._admitted.token_ids, *(step.token_id for step in outcome.steps))
            self._give_back(self._cache, sequence[: outcome.cache_tokens])

    def _until_end(self) -> Cut | None:
        """Everything up to the end of generate; what has cut it, None when it ended by itself."""
        import torch

        gate = self._admitted.loaded.gate
        with torch.inference_mode():
            self._device.start_peak()
            self._accepted_s = self._device.now_s()
            self._cache, self._reuse = self._obtain()
            reserved = None if self._cache is None else room_of(self._cache)
            self.facts.put(Accepted(self._accepted_s, self._reuse, reserved))
            gate.listener = self._before_forward
            try:
                self._generate()
            except _Cut as reached:
                return reached.cut
            finally:
                gate.listener = None
                # Here and now: as soon as this run has ended, the next one makes the device forget its peak.
                self._peak_bytes = self._device.peak_bytes()
        return None

    def _generate(self) -> None:
        if not self._admitted.strategy.compiles:
            return self._call_generate()
        with timing_compiles() as clock:
            try:
                self._call_generate()
            finally:
                self._compile_s = clock.spent_s

    def _call_generate(self) -> None:
        import torch

        loaded, request = self._admitted.loaded, self._admitted.request
        # The keyword None wins over generation_config.json, which may name a cache, chunks and times of its own.
        options: dict[str, Any] = {"cache_implementation": None, "prefill_chunk_size": None, "max_time": None}
        options |= {"max_new_tokens": request.max_new_tokens, "use_cache": self._cache is not None}
        if self._cache is not None:
            options["cache"] = self._cache
            # Every length that a compiled forward meets would be compiled anew: chunks are for the others.
            if request.prefill_chunk is not None and loaded.continues and not self._admitted.strategy.compiles:
                options["prefill_chunk_size"] = request.prefill_chunk
        options["logits_processor"] = [self._look_at]
        options |= self._sampling() | self._ending() | self._compiling()
        if not request.sampling.greedy:
            torch.manual_seed(request.sampling.seed)
        with ends_seen_at_once():
            loaded.model.generate(**self._inputs(), streamer=self, **options)

    def _inputs(self) -> dict[str, Any]:
        """What generate is given: the prompt, [1, tokens]."""
        import torch

        input_ids = torch.tensor([self._admitted.token_ids], device=self._admitted.loaded.model.device)
        return {"inputs": input_ids, "attention_mask": torch.ones_like(input_ids)}

    def _sampling(self) -> dict[str, Any]:
        sampling = self._admitted.request.sampling
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
        loaded, request = self._admitted.loaded, self._admitted.request
        ends = end_ids(loaded)
        pad = loaded.tokenizer.pad_token_id
        options: dict[str, Any] = {"pad_token_id": pad if pad is not None else next(iter(sorted(ends)), 0)}
        if request.fixed_length:
            return {**options, "eos_token_id": None, "stop_strings": None}
        options["eos_token_id"] = sorted(ends) or None
        if stops := stop_strings(loaded, request):
            options |= {"stop_strings": list(stops), "tokenizer": loaded.tokenizer}
        return options

    def _compiling(self) -> dict[str, Any]:
        if not self._admitted.strategy.compiles:
            # On an accelerator generate would compile by itself as soon as the cache is static.
            return {"disable_compile": True}
        from transformers import CompileConfig

        config = CompileConfig()
        config._compile_all_devices = True  # a CPU is left out otherwise
        return {"compile_config": config}

    def _before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.stop.is_set() or self.closed.is_set():
            raise _Cut("cancelled")
        timeout_s = self._admitted.request.timeout_s
        if timeout_s is not None and time.perf_counter() - self._accepted_s > timeout_s:
            raise _Cut("timed_out")
        if not self._steps:
            done = sum(self._forwards.positions_computed or ())
            self.facts.put(PrefillProgress(done, len(self._admitted.token_ids) - self._reuse.reused_tokens))
        self._forwards.add(args, kwargs)

    def _look_at(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """A logits processor: a greedy choice among scores is looked at when it has been made, which is cheaper."""
        if self._admitted.request.sampling.greedy:
            self._scores = scores
            return scores
        return refuse_what_is_no_number(input_ids, scores)

    def put(self, value: Any) -> None:
        """generate's streamer interface: the prompt first, then the ids of each step."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        time_s = self._device.now_s() - self._accepted_s
        token_id = int(value.reshape(-1)[-1])
        if self._scores is not None:
            refuse_choice_of_no_number(self._scores, token_id)
        step = Step(token_id, time_s, cached_tokens(self._cache), weigh(self._cache))
        self._steps.append(step)
        self._device.sample_peak()
        self.facts.put(step)

    def end(self) -> None:
        """generate's streamer interface: nothing left to flush."""
