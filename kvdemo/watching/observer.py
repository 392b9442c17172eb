"""Stands between a program and its models: what every call of generate, and every loop over model(...), does with a cache.

    with watch() as seen:
        ...
    seen.record().cached

Counting is done by forward pre-hooks that are on a model only while it is called. Everything that is patched is put back,
however the block ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from kvdemo.facts.model import ModelFacts
from kvdemo.generation.forwards import forward_of
from kvdemo.watching.batching import Batching, patch_batching
from kvdemo.watching.models import facts_of
from kvdemo.watching.override import Override
from kvdemo.watching.patches import Patches
from kvdemo.watching.places import Places
from kvdemo.watching.record import Call, Script, Watched, union_s
from kvdemo.watching.running import OwnLoop, Running, cache_of
from kvdemo.watching.words import lines_of

__all__ = ["MOST_CALLS", "Observer", "watch"]

MOST_CALLS = 2000
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")  # they start Python in processes of their own
UNKNOWN_PLACE = "a place that is not known"
T = TypeVar("T")


class Here(threading.local):
    """What this thread is in the middle of."""

    call: Running | None = None
    root: Any = None  # the model that was called from outside any call of generate
    loop: OwnLoop | None = None  # the one that the running forward belongs to
    batching: Batching | None = None
    warming: bool = False


class Observer:
    """What was seen so far.

    override    another cache for every call of generate; None: as the program has it
    keep_ids    keep the ids of the answers, so that runs can be compared
    folders     places are named from these
    """

    def __init__(
        self,
        *,
        override: Override | None = None,
        keep_ids: bool = False,
        folders: tuple[str, ...] = (),
        name: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.override, self.keep_ids, self.clock, self.name = override, keep_ids, clock, name
        self.patches, self.places, self.here = Patches(), Places(folders), Here()
        self.open = False
        self._lock = threading.RLock()
        self._calls: list[Call] = []
        self._left_out = 0
        self._intervals: list[tuple[float, float]] = []
        self._models: list[ModelFacts] = []
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()
        self._loops: dict[tuple[int, int], OwnLoop] = {}
        self._single = self._processes = 0
        self._notes: set[str] = set()
        self._started: weakref.WeakKeyDictionary[threading.Thread, tuple[str | None, bool]] = (
            weakref.WeakKeyDictionary()
        )
        self._hooked: dict[int, tuple[Any, int]] = {}
        self._hook: Any = None
        self._began_s = self._ended_s = self.clock()

    def start(self) -> None:
        """Put everything in place; torch and transformers as soon as the program imports them."""
        self.open = True
        self._began_s = self.clock()
        self.patches.replace(threading.Thread, "start", self._thread_start)
        self.patches.replace(subprocess.Popen, "__init__", self._process_start)
        self.patches.when_imported(
            {
                "transformers.generation.utils": self._patch_generate,
                "transformers.modeling_utils": self._patch_models,
                "torch._dynamo.eval_frame": self._patch_compiled,
                "multiprocessing.process": self._patch_processes,
                "transformers.generation.continuous_batching.continuous_api": functools.partial(patch_batching, self),
            }
        )

    def stop(self) -> None:
        """Put everything back."""
        self.open = False
        self._ended_s = self.clock()
        self.patches.restore()
        with self._lock:
            for handle, _ in self._hooked.values():
                handle.remove()
            self._hooked.clear()

    # What is seen

    def record(self, exit_code: int | None = None) -> Watched:
        """Everything seen up to now."""
        with self._lock:
            for key in list(self._loops):
                self._close_loop(key)
            ended_s = self.clock() if self.open else self._ended_s
            wall_s = ended_s - self._began_s
            generation_s = min(wall_s, union_s(self._intervals))
            notes = sorted(self._notes | (self.override.notes if self.override else set()))
            calls = tuple(sorted(self._calls, key=lambda call: call.began_s))
            return Watched(
                name=self.name,
                calls=calls,
                script=Script(exit_code, wall_s, generation_s, wall_s - generation_s),
                models=tuple(self._models),
                single_forwards=self._single,
                calls_left_out=self._left_out,
                notes=tuple(notes),
                processes=self._processes,
            )

    def add(self, call: Call, *intervals: tuple[float, float]) -> None:
        """A call that has ended, and the time it took; `began_s` is counted from the beginning."""
        with self._lock:
            self._intervals.extend(intervals)
            if len(self._calls) < MOST_CALLS:
                self._calls.append(call)
            else:
                self._left_out += 1

    def met(self, model: Any) -> None:
        """A model that generates."""
        if model not in self._met:
            found = self.safely(facts_of, model)
            with self._lock:
                self._met.add(model)
                if found is not None and found not in self._models:
                    self._models.append(found)

    def place(self) -> tuple[str, bool]:
        """(where in the program this thread is, was it started by generate_batch?)"""
        own = self.places.here()
        started, batch = self._started.get(threading.current_thread(), (None, False))
        return own or started or UNKNOWN_PLACE, batch

    def since_beginning(self, at_s: float) -> float:
        return at_s - self._began_s

    def safely(self, work: Callable[..., T], *args: Any) -> T | None:
        """Our own faults are a note in the record, never the program's."""
        try:
            return work(*args)
        except Exception as error:  # whatever it is: the program goes on as if nobody watched
            with self._lock:
                self._notes.add(f"Part of it could not be seen ({type(error).__name__}: {error}).")
            return None

    def __str__(self) -> str:
        return "\n".join(lines_of(self.record()))

    # What is patched

    def _thread_start(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(thread: threading.Thread) -> Any:
            if self.open:
                self.safely(self._thread_started, thread)
            return original(thread)

        return start

    def _thread_started(self, thread: threading.Thread) -> None:
        frame, batch = sys._getframe(2), False
        while frame is not None and not batch:
            batch = frame.f_code.co_name == "generate_batch"
            frame = frame.f_back  # type: ignore[assignment]
        named = self.place()[0]
        self._started[thread] = (None if named == UNKNOWN_PLACE else named, batch)
        if self.here.call is not None and "_run_generation_loop" in repr(getattr(thread, "_target", None)):
            self.here.call.elsewhere = True

    def _patch_processes(self, module: ModuleType) -> None:
        self.patches.replace(module.BaseProcess, "start", self._process_start)

    def _process_start(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Of multiprocessing, or a child that runs Python: what these do is beyond us, and that there are some is told."""

        @functools.wraps(original)
        def start(process: Any, *args: Any, **kwargs: Any) -> Any:
            if self.open and (
                not isinstance(process, subprocess.Popen) or _runs_python(args[0] if args else kwargs.get("args"))
            ):
                self._processes += 1
            return original(process, *args, **kwargs)

        return start

    def _patch_generate(self, module: ModuleType) -> None:
        mixin = getattr(module, "GenerationMixin", None)
        if mixin is not None:
            self.patches.replace(mixin, "generate", self._generate)
            self.patches.replace(mixin, "_prepare_cache_for_generation", self._prepare_cache)

    def _patch_models(self, module: ModuleType) -> None:
        kind = getattr(module, "PreTrainedModel", None)
        if kind is not None:
            self.patches.replace(kind, "__call__", self._called)

    def _generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
            here = self.here
            if not self.open or here.warming:
                return original(model, *args, **kwargs)
            if here.call is not None:  # the one that assists
                if model is here.call.model:
                    return original(model, *args, **kwargs)
                with self._counted(model):
                    return original(model, *args, **kwargs)
            running = self.safely(self._begin, model, args, kwargs)
            if running is None:
                return original(model, *args, **kwargs)
            if self.override is not None:
                changed = self.override.arguments(model, args, kwargs)
                if changed is not None:
                    kwargs, running.overridden = changed, True
            here.call = running
            output, failure = None, None
            try:
                with self._counted(model):
                    output = original(model, *args, **kwargs)
                return output
            except BaseException as error:
                failure = error
                raise
            finally:
                here.call = None
                self.safely(self._end, running, output, self.clock(), failure)

        return generate

    def _begin(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Running:
        self.met(model)
        return Running(model, self.place()[0], self.clock(), args, kwargs)

    def _end(self, running: Running, output: Any, ended_s: float, failure: BaseException | None) -> None:
        if running.elsewhere and not running.forwards:
            return
        call = running.call(output, ended_s, failure, self.keep_ids)
        began_s = running.began_s
        self.add(_since(call, self.since_beginning(began_s)), (began_s, ended_s))

    def _prepare_cache(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def prepare(model: Any, generation_config: Any, model_kwargs: Any, *args: Any, **kwargs: Any) -> Any:
            done = original(model, generation_config, model_kwargs, *args, **kwargs)
            running = self.here.call
            if self.open and running is not None and running.model is model and running.in_force is None:
                self.safely(running.prepared, generation_config)
                if self.override is not None and running.overridden:
                    positions = kwargs.get("max_cache_length", args[2] if len(args) > 2 else None)
                    self.override.put(running, model_kwargs, positions or generation_config.max_length)
            return done

        return prepare

    def _called(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        is_compiling = torch.compiler.is_compiling

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(model, *args, **kwargs)
            here = self.here
            running = here.call
            if running is not None:
                output = original(model, *args, **kwargs)
                if model is running.model and running.several:
                    self.safely(self._after, running, output)
                return output
            if not self.open or here.root is not None or here.batching is not None or here.warming:
                return original(model, *args, **kwargs)
            here.root = model
            try:
                with self._counted(model):
                    return original(model, *args, **kwargs)
            finally:
                self.safely(self._after_own, here.loop)
                here.root = here.loop = None

        return call

    def _patch_compiled(self, module: ModuleType) -> None:
        kind = getattr(module, "OptimizedModule", None)  # what torch.compile(model) gives
        if kind is not None:
            self.patches.replace(kind, "__call__", self._called_compiled)

    def _called_compiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Compiled code has no hooks to be counted by: a loop over such a model is seen where it is called."""

        def call(compiled: Any, *args: Any, **kwargs: Any) -> Any:
            model, here = compiled._orig_mod, self.here
            busy = here.call is not None or here.root is not None or here.batching is not None or here.warming
            if not self.open or busy or not hasattr(model, "_prepare_cache_for_generation"):
                return original(compiled, *args, **kwargs)
            here.root = model
            try:
                self.safely(self._seen_outside, model, args, kwargs, self.clock())
                return original(compiled, *args, **kwargs)
            finally:
                self.safely(self._after_own, here.loop)
                here.root = here.loop = None

        return call

    def _after(self, running: Running, output: Any) -> None:
        if running.cache is None and (made := cache_of(output)) is not None:
            running.cache, running.cache_class = made, type(made).__name__
        running.look()

    def _after_own(self, loop: OwnLoop | None) -> None:
        if loop is not None:
            loop.ended_s = self.clock()
            loop.let_go()

    # Forwards

    @contextlib.contextmanager
    def _counted(self, model: Any) -> Iterator[None]:
        """The model's forwards are counted inside the block; in several threads at once each only by its own."""
        self._hook_on(model)
        try:
            yield
        finally:
            self._hook_off(model)

    def _hook_on(self, model: Any) -> None:
        import torch

        with self._lock:
            if self._hook is None:
                # Dynamo must not look inside: it would make the numbers of the first forward part of the graph.
                self._hook = torch.compiler.disable(self._forward)
            handle, times = self._hooked.get(id(model), (None, 0))
            if handle is None:
                handle = model.register_forward_pre_hook(self._hook, with_kwargs=True)
            self._hooked[id(model)] = (handle, times + 1)

    def _hook_off(self, model: Any) -> None:
        with self._lock:
            handle, times = self._hooked.get(id(model), (None, 0))
            if handle is None:  # stopped meanwhile
                return
            if times > 1:
                self._hooked[id(model)] = (handle, times - 1)
            else:
                handle.remove()
                del self._hooked[id(model)]

    def _forward(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward that is about to begin."""
        if self.open:
            self.safely(self._seen, model, args, kwargs)

    def _seen(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        here, now_s = self.here, self.clock()
        if here.call is not None:
            forward = forward_of(args, kwargs)
            if model is here.call.model:
                here.call.add(forward, now_s, cache_of(kwargs))
            else:
                here.call.add_other(model, forward, now_s)
        elif here.root is model:
            self._seen_outside(model, args, kwargs, now_s)

    def _seen_outside(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], now_s: float) -> None:
        key = (threading.get_ident(), id(model))
        loop = self._loops.get(key) or OwnLoop(model)
        forward, continues = loop.begins(args, kwargs)
        if loop.forwards and not continues:
            self._close_loop(key)
            loop = OwnLoop(model)
            loop.begins(args, kwargs)
        loop.add(forward, now_s, cache_of(kwargs))
        if continues:  # only where it counts: looking for the place of every forward of a training would cost
            loop.where = self.place()[0]
            if len(loop.forwards) == 2:
                self.met(model)
        self._loops[key] = self.here.loop = loop

    def _close_loop(self, key: tuple[int, int]) -> None:
        loop = self._loops.pop(key, None)
        if loop is None:
            return
        if not loop.is_loop:
            self._single += len(loop.forwards)
            return
        call = self.safely(loop.call)
        if call is not None:
            self.add(_since(call, self.since_beginning(loop.times_s[0])), (loop.times_s[0], loop.ended_s))


def _runs_python(command: Any) -> bool:
    first = command[0] if isinstance(command, list | tuple) and command else command
    words = os.fsdecode(first).split() if isinstance(first, str | bytes | os.PathLike) else []
    name = os.path.basename(words[0]) if words else ""
    return name.startswith("python") or name in LAUNCHERS


def _since(call: Call, began_s: float) -> Call:
    return dataclasses.replace(call, began_s=began_s)


@contextlib.contextmanager
def watch(**options: Any) -> Iterator[Observer]:
    """What the block does with its caches; `record()` of what it gives says it, inside the block and after it.

    It watches the whole process, every thread of it. See Observer for the options.
    """
    observer = Observer(**options)
    observer.start()
    try:
        yield observer
    finally:
        observer.stop()
