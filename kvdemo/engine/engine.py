"""The model with everything that guards it: its thread, its turnstile, the operator's limits, stops, kept caches.

It runs requests; what they are for it does not know.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Generator, Iterator

from kvdemo.caches.prefix import KeptCaches, common_prefix
from kvdemo.caches.strategies import strategy_of
from kvdemo.errors import InvalidRequest, KvdemoError, ModelNotReady, ModelUnavailable
from kvdemo.facts.events import GenerationEvent, Waiting, Working
from kvdemo.facts.load import ManyFinished, ManyRequest
from kvdemo.facts.model import Failed, Loading, ModelStatus, Ready
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.facts.steps import CacheLook
from kvdemo.generation.admission import checked_slots
from kvdemo.generation.many import checked_many, run_many
from kvdemo.generation.memory import free_bytes
from kvdemo.generation.prompt import EncodedPrompt, encode_prompt
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile, until_turn
from kvdemo.models.continuing import unkept_because
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import load
from kvdemo.models.source import resolve
from kvdemo.models.thread import ModelThread
from kvdemo.models.tiny_window import load_tiny_window
from kvdemo.planner.needs import CacheNeeds
from kvdemo.settings import Settings

__all__ = ["Engine", "LoadModel", "load_named"]

LoadModel = Callable[[Settings, ModelThread, Callable[[str, str], None]], LoadedModel]
"""Runs in the model's thread; tells the model's name and each step in words."""

SWEEP_S = 20.0

log = logging.getLogger(__name__)


def load_named(settings: Settings, thread: ModelThread, progress: Callable[[str, str], None]) -> LoadedModel:
    """Load the model that the settings name."""
    source = resolve(settings.model, settings.home, mode=settings.mode)
    load_it = load_tiny_window if source.kind == "built" else load
    return load_it(settings, source, thread=thread, progress=lambda step: progress(source.name, step))


def share_system_prompt(loaded: LoadedModel, kept: KeptCaches, system_prompt: str) -> None:
    """Process what every conversation with this system prompt begins with, once; in the model's thread."""
    conversations = [(Message("system", system_prompt), Message("user", question)) for question in ("a", "b")]
    one, other = (encode_prompt(loaded, conversation).token_ids for conversation in conversations)
    prefix = one[: common_prefix(one, other)]
    if why := unkept_because(loaded.model, loaded.continues):
        log.warning("the shared system prompt is processed for every conversation. %s", why)
    elif prefix:
        kept.fill_shared(loaded.model, strategy_of("dynamic"), prefix)


class Engine:
    """Load with `start`, ask for the model with `ready`, run requests with `run`, end with `close`."""

    def __init__(
        self, settings: Settings, load_model: LoadModel, *, free_bytes: Callable[[str], int] = free_bytes
    ) -> None:
        self.settings = settings
        self._free_bytes = free_bytes
        self.kept = KeptCaches(self._kept_budget_bytes, settings.limits.idle_s)
        self.turnstile = Turnstile(settings.limits.waiting)
        self.status: ModelStatus = Loading("the model", "starting")
        self.loaded: LoadedModel | None = None
        self._needs: CacheNeeds | None = None
        self._load_model = load_model
        self._thread = ModelThread()
        self._settled = threading.Event()
        self._closed = threading.Event()
        self._stops: dict[str, set[threading.Event]] = {}
        self._stops_lock = threading.Lock()

    def start(self) -> None:
        """Begin to load the model, in the model's thread."""
        self._thread.submit(self._load)
        threading.Thread(target=self._sweep, name="kvdemo-sweep", daemon=True).start()

    def close(self) -> None:
        """End every run and the model's thread."""
        self._closed.set()
        with self._stops_lock:
            for stop in (stop for stops in self._stops.values() for stop in stops):
                stop.set()
        self._thread.close()

    def wait_until_settled(self, timeout_s: float | None = None) -> ModelStatus:
        """Wait until the model is loaded or has failed to load."""
        self._settled.wait(timeout_s)
        return self.status

    def ready(self) -> LoadedModel:
        """The loaded model; ModelNotReady while it loads, ModelUnavailable when that failed."""
        if self.loaded is not None:
            return self.loaded
        status = self.status
        if isinstance(status, Failed):
            raise ModelUnavailable(status.reason)
        step = status.step if isinstance(status, Loading) else "starting"
        raise ModelNotReady(f"The model is still loading ({step}). Try again in a moment.")

    def run(
        self,
        request: GenerationRequest,
        owner: str,
        *,
        encoded: EncodedPrompt | None = None,
        kept: KeptCaches | None = None,
        stop: threading.Event | None = None,
        reader: Reader = AT_ONCE,
        patient: bool = False,
    ) -> Generator[GenerationEvent, None, None]:
        """One run within the operator's limits, for this owner, who can stop it; `stop`: a flag that he has already.

        encoded, reader, patient   as for the stream
        """
        loaded = self.ready()
        self.check(request)
        if request.timeout_s is None:
            request = dataclasses.replace(request, timeout_s=self.settings.limits.run_s)
        with contextlib.nullcontext(stop) if stop is not None else self.stoppable(owner) as flag:
            yield from stream(
                loaded,
                request,
                turnstile=self.turnstile,
                encoded=encoded,
                kept=kept,
                owner=owner,
                stop=flag,
                reader=reader,
                patient=patient,
            )

    def look(
        self, owner: str, layer: int, head: int, stop: threading.Event
    ) -> Generator[Waiting, None, CacheLook | None]:
        """Into this owner's kept cache, when it is his turn; None where nothing is kept, or he was stopped in line."""
        loaded = self.ready()
        ticket = self.turnstile.join(patient=True)
        try:
            yield from until_turn(ticket, stop)
            if stop.is_set():
                return None
            return loaded.thread.submit(lambda: self.kept.look(owner, layer, head)).result()
        finally:
            ticket.leave()

    def run_many(
        self, request: ManyRequest, owner: str, *, stop: threading.Event | None = None, reader: Reader = AT_ONCE
    ) -> Generator[Waiting | Working | ManyFinished, None, None]:
        """Several requests in one turn, within the operator's limits; otherwise like `run`."""
        loaded = self.ready()
        self.check_many(request)
        if request.timeout_s is None:
            request = dataclasses.replace(request, timeout_s=self.settings.limits.run_s)
        with contextlib.nullcontext(stop) if stop is not None else self.stoppable(owner) as flag:
            yield from run_many(
                loaded, request, turnstile=self.turnstile, stop=flag, every_s=reader.every_s, free=self._free_bytes
            )

    def check_many(self, request: ManyRequest) -> tuple[EncodedPrompt, ...]:
        """The prompts as ids; InvalidRequest when the limits, the model or the memory do not allow all of them at once."""
        loaded = self.ready()
        for arrival in request.arrivals:
            self.check(GenerationRequest(arrival.prompt, arrival.max_new_tokens))
        if request.serving == "at-once":
            raise InvalidRequest("modes", "requests are sent to a server at their times: give its address")
        kinds = self._needs.kinds() if self._needs is not None and request.serving == "continuous" else None
        if strange := sorted((kinds or frozenset()) - {"full", "sliding"}):
            raise InvalidRequest(
                "modes",
                f"continuous batching takes layers of full and of sliding attention; {loaded.facts.name} has others "
                f"({', '.join(strange)}).",
            )
        return checked_many(loaded, request, free=self._free_bytes)

    def check_length(self, request: GenerationRequest) -> EncodedPrompt:
        """The prompt as ids; InvalidRequest when prompt and answer do not fit the limits, the model or the memory."""
        self.check(request)
        encoded = encode_prompt(self.ready(), request.prompt)
        self.check_size(request, len(encoded.token_ids))
        return encoded

    def check_size(self, request: GenerationRequest, prompt_tokens: int) -> None:
        """The same for a prompt of so many tokens, whatever it says."""
        self.check(request)
        checked_slots(self.ready(), request, strategy_of(request.strategy), prompt_tokens)

    def check(self, request: GenerationRequest) -> None:
        """InvalidRequest when the operator's limits do not allow this."""
        limits = self.settings.limits
        if request.max_new_tokens > limits.new_tokens:
            raise InvalidRequest(
                "max_new_tokens", f"{request.max_new_tokens:,} is more than the limit here, {limits.new_tokens:,}"
            )
        if request.prompt_chars > limits.prompt_chars:
            raise InvalidRequest(
                "prompt", f"is {request.prompt_chars:,} characters long; the limit here is {limits.prompt_chars:,}"
            )

    @contextlib.contextmanager
    def stoppable(self, owner: str) -> Iterator[threading.Event]:
        """A flag that `stop(owner)` sets while the block runs."""
        flag = threading.Event()
        with self._stops_lock:
            self._stops.setdefault(owner, set()).add(flag)
        try:
            yield flag
        finally:
            with self._stops_lock:
                self._stops[owner].discard(flag)
                if not self._stops[owner]:
                    del self._stops[owner]

    def stop(self, owner: str) -> None:
        """End what this owner is running or waiting for, within one token."""
        with self._stops_lock:
            for stop in self._stops.get(owner, ()):
                stop.set()

    def release(self, owner: str) -> None:
        """An owner has left: end his runs and free what he holds."""
        self.stop(owner)
        self.kept.release(owner)

    def _load(self) -> None:
        name = "the model"

        def progress(known_name: str, step: str) -> None:
            nonlocal name
            name = known_name
            self.status = Loading(name, step)

        try:
            loaded = self._load_model(self.settings, self._thread, progress)
            if self.settings.system_prompt:
                progress(name, "the shared system prompt")
                try:
                    share_system_prompt(loaded, self.kept, self.settings.system_prompt)
                except Exception:  # it saves time and nothing hangs on it: everybody's prompt is processed in full
                    log.exception("the shared system prompt could not be processed")
            self._needs = CacheNeeds(loaded.model)
            self.loaded = dataclasses.replace(loaded, cache_bytes=self._needs)
        except KvdemoError as error:
            self.status = Failed(name, str(error))
        except Exception as error:  # whatever a library raises, the page stays up and says it
            log.exception("loading failed")
            self.status = Failed(
                name, f"The model could not be loaded: {type(error).__name__}. The log has the details."
            )
        else:
            self.status = Ready(self.loaded.facts)
        finally:
            self._settled.set()

    def _kept_budget_bytes(self, kept_bytes: int) -> int:
        """A share of what would be free if nothing were kept."""
        device = self.loaded.model.device.type if self.loaded is not None else "cpu"
        return int((self._free_bytes(device) + kept_bytes) * self.settings.limits.kept_cache_share)

    def _sweep(self) -> None:
        while not self._closed.wait(SWEEP_S):
            self.kept.sweep()
