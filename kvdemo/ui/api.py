"""The stable API: three endpoints with typed parameters; everything else on the page is private."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.wiring import CHATTING, MEASURING, bound, owner_of, unhurried
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.documents import document, run_document
from kvdemo.facts.events import (
    Finished,
    GenerationEvent,
    PrefillProgress,
    PromptEncoded,
    TokenEmitted,
    Waiting,
    Working,
)
from kvdemo.facts.plans import CACHE_DTYPES, MemoryRequest
from kvdemo.facts.requests import Message, SamplingParams, checked_text
from kvdemo.facts.results import ArmFailed, Progress

__all__ = ["PLACE", "add_api", "chat", "compare", "event_as_dict", "memory"]

PLACE = "api"


def add_api(backend: Backend) -> None:
    """Add /chat, /compare and /memory to the current Blocks."""
    model = {"concurrency_id": "model", "concurrency_limit": 20}
    gr.api(bound(chat, backend), api_name="chat", **model)
    gr.api(bound(compare, backend), api_name="compare", **model)
    gr.api(bound(memory, backend), api_name="memory", concurrency_id="config", concurrency_limit=2)


def chat(
    backend: Backend,
    request: gr.Request,
    message: str,
    system_prompt: str = "",
    max_new_tokens: int = 128,
    strategy: str = "dynamic",
    temperature: float = 0,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """One answer, event by event; the last event is "finished" and carries the run's figures and the whole text."""
    try:
        system_prompt = checked_text("system_prompt", system_prompt, empty=True)
        system = (Message("system", system_prompt),) if system_prompt else ()
        events = backend.chat(
            (*system, Message("user", message)),
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            sampling=SamplingParams(temperature=temperature, seed=seed),
            owner=owner_of(request, PLACE),
            reader=CHATTING,
        )
        news = False
        for event in unhurried(events):
            # After news it would say nothing; alone it lets Gradio notice that the caller has left.
            if not (news and isinstance(event, Working)):
                yield event_as_dict(event)
            news = not isinstance(event, Working)
    except KvdemoError as error:
        raise _refusal(error) from error


def compare(
    backend: Backend,
    request: gr.Request,
    prompt: str,
    max_new_tokens: int = 64,
    strategies: list[str] = ["none", "dynamic"],  # noqa: B006  Gradio shows the default; it is only read
    rounds: int = 1,
) -> Iterator[dict[str, Any]]:
    """A comparison: progress, then the same document that the command prints."""
    try:
        if not isinstance(strategies, list):
            raise InvalidRequest("strategies", "must be a list of keys")
        spec = CompareSpec(prompt, tuple(strategies), max_new_tokens, rounds)
        for step in unhurried(backend.ask(spec, owner=owner_of(request, PLACE), reader=MEASURING)):
            # Only at a yield can it be noticed that the caller has left: there is progress every half second.
            if (said := _step_as_dict(step)) is not None:
                yield said
    except KvdemoError as error:
        raise _refusal(error) from error


def memory(
    backend: Backend,
    seq_len: int,
    batch_size: int = 1,
    config: str = "",
    weights_dtype: str = "",
    budget_gib: float | None = None,
    keep_free: float = 0.1,
) -> dict[str, Any]:
    """The cache of the loaded model, or of a config.json given as text, in that model's own dtype.

    weights_dtype   "": as they are loaded, or published
    budget_gib      None: this machine's memory for the loaded model, 80 for a config
    """
    try:
        geometry = backend.architecture(None, checked_text("config", config, empty=True))
        usual = backend.usual_budget(geometry)
        request = MemoryRequest(
            seq_len,
            batch_size,
            cache_dtype=geometry.dtype if geometry.dtype in CACHE_DTYPES else "bfloat16",
            weights_dtype=None if weights_dtype == "" else weights_dtype,
            budget_gib=usual.gib if budget_gib is None else budget_gib,
            budget_source=usual.source if budget_gib is None else "given",
            keep_free=keep_free,
        )
        return backend.plan_document(backend.plan_of(geometry, request))
    except KvdemoError as error:
        raise _refusal(error) from error


def event_as_dict(event: GenerationEvent) -> dict[str, Any]:
    """An event of the stream as plain values."""
    if isinstance(event, Finished):
        return {"event": "finished", "reason": event.reason, "on_page": True, **run_document(event.record)}
    names = {Waiting: "waiting", PromptEncoded: "prompt_encoded", PrefillProgress: "prefill_progress"}
    name = "token" if isinstance(event, TokenEmitted) else names.get(type(event), "working")
    return {"event": name, **asdict(event)}


def _step_as_dict(step: object) -> dict[str, Any] | None:
    """What of a comparison is told while it runs, and its document at the end; None for the runs' own events."""
    if isinstance(step, Progress):
        return {"event": "progress", **asdict(step)}
    if isinstance(step, ArmFailed):
        return {"event": "failed", "strategy": step.arm, "round": step.round, "message": step.message}
    return document(step) if isinstance(step, ComparisonResult) else None


def _refusal(error: KvdemoError) -> gr.Error:
    """What the caller is told; the log needs no traceback of a refusal."""
    return gr.Error(str(error), print_exception=False)
