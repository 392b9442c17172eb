"""One request to a server as the events of a run. What the server does not say stays unknown; what it says is called reported."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvdemo.endpoints.client import Client, Received
from kvdemo.endpoints.pieces import Reading
from kvdemo.errors import InvalidRequest, RunFailed, Unanswered
from kvdemo.facts.endpoint import ServedModel
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, TokenEmitted, Working
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.records import FinishReason, Reported, RunRecord, Status
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.facts.units import format_count, format_seconds

__all__ = ["ENGINES", "CountText", "answered", "body_of"]

CountText = Callable[[str], int | None]
"""A text -> its tokens, by a tokenizer at hand; None: there is none."""

ENGINES = ("vllm", "sglang", "llamacpp")
"""What those call themselves whose count of cached tokens is one: elsewhere a 0 may be a constant, and says nothing."""

AT_ONE_TIME, FEW = 0.02, 4
ENDS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


@dataclass
class Heard:
    """What has come until now."""

    times_s: list[float]
    text: str = ""
    reasoning: str = ""
    first_text_s: float | None = None
    ended_s: float | None = None
    pieces: int = 0

    def after(self, received: Received) -> str:
        """The new text of the answer itself."""
        new = "".join(piece.text for piece in received.pieces if not piece.reasoning)
        self.text += new
        self.reasoning += "".join(piece.text for piece in received.pieces if piece.reasoning)
        self.times_s += [received.at_s] * len(received.pieces)
        self.pieces += len(received.pieces)
        if new and self.first_text_s is None:
            self.first_text_s = received.at_s
        return new

    def end_token(self, tokens: int | None) -> None:
        """One token more than pieces: the last one ends the answer. It has no text, and came when the end was told."""
        if self.pieces and tokens == self.pieces + 1 and (self.ended_s or 0.0) > self.times_s[-1]:
            self.times_s.append(self.ended_s or 0.0)


def answered(
    client: Client,
    model: ServedModel,
    request: GenerationRequest,
    *,
    stop: threading.Event,
    reader: Reader = AT_ONCE,
    count_text: CountText = lambda _: None,
    notices: tuple[str, ...] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[GenerationEvent]:
    """The stream's grammar, from a server: PromptEncoded with the first piece, since nothing is known before.

    RunFailed with what had come when the server refused, stalled or broke off. InvalidRequest before anything is sent.
    """
    path, body = body_of(model, request)
    reading, heard = Reading(), Heard([])
    began_s = heard_s = clock()
    pieces = client.stream(path, body, reading, stop, every_s=reader.every_s or 0.1)
    encoded = False

    def record(status: Status, reason: FinishReason | None, error: str | None = None) -> RunRecord:
        heard.text, heard.reasoning = map(client.answer_without_key, (heard.text, heard.reasoning))
        return record_of(model, request, reading, heard, clock() - began_s, status, reason, error, count_text, notices)

    try:
        for received in pieces:
            if received is not None and received.ended:
                heard.ended_s = received.at_s
            if received is not None and received.pieces:
                if not encoded:
                    encoded = True
                    yield PromptEncoded(None, 0.0, 0.0, model.context_limit, notices=notices)
                index, text = heard.pieces, client.answer_without_key(heard.after(received))
                if text:
                    yield TokenEmitted(index, None, text, received.at_s, None, None, None)
            # A reader hears as often as he wants to, whatever the server sends: drawing every piece would take longer than it.
            if received is None or clock() - heard_s >= reader.every_s:
                heard_s = clock()
                yield Working(heard_s - began_s)
            if request.timeout_s is not None and clock() - began_s > request.timeout_s:
                yield Finished("timed_out", record("timed_out", "timed_out"))
                return
    except Unanswered as error:
        raise RunFailed(str(error), record("failed", None, str(error))) from None
    finally:
        pieces.close()  # type: ignore[attr-defined]
    if stop.is_set() and not reading.ended:
        yield Finished("cancelled", record("cancelled", "cancelled"))
        return
    if not encoded:
        yield PromptEncoded(None, 0.0, 0.0, model.context_limit, notices=notices)
    reason = ENDS.get(reading.finish_reason or "", "stop")
    yield Finished(reason, record("ok", reason))


def body_of(model: ServedModel, request: GenerationRequest) -> tuple[str, dict[str, Any]]:
    """(path, JSON body) of the request; InvalidRequest for a prompt of token ids."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model.name,
        "max_tokens": request.max_new_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.temperature:
        body |= {"top_p": sampling.top_p, "seed": sampling.seed}
    if request.stop_strings:
        body["stop"] = list(request.stop_strings)
    if request.fixed_length and model.engine in ENGINES:
        body["ignore_eos"] = True
    if isinstance(request.prompt, str):
        return "completions", {**body, "prompt": request.prompt}
    if not all(isinstance(part, Message) for part in request.prompt):
        raise InvalidRequest("prompt", "token ids cannot be sent to a server: give text")
    messages = [{"role": part.role, "content": part.content} for part in request.prompt if isinstance(part, Message)]
    return "chat/completions", {**body, "messages": messages}


def record_of(
    model: ServedModel,
    request: GenerationRequest,
    reading: Reading,
    heard: Heard,
    request_s: float,
    status: Status,
    reason: FinishReason | None,
    error: str | None,
    count_text: CountText,
    notices: tuple[str, ...],
) -> RunRecord:
    """The run, with what was measured here, what was reported there, and what is not known."""
    reported = reported_by(model, reading, heard)
    said = list(notices)
    tokens = reported.completion_tokens
    if tokens is None and heard.pieces:
        tokens = count_text(heard.reasoning + heard.text)
        # not known yet in the record's types: the pieces stand for it, and it is said
        told = (
            f"{format_count(heard.pieces)} are taken to be the pieces that came."
            if tokens is None
            else f"{format_count(tokens)} are counted from the text (estimated)."
        )
        said.append(f"The server did not report how many tokens it made: {told}")
    if tokens is None:
        tokens = heard.pieces
    if reading.finish_reason == "stop" and not request.stop_strings:
        heard.end_token(reported.completion_tokens)
    times = times_of(heard, tokens, said)
    if heard.reasoning:
        later = (
            ""
            if heard.first_text_s is None
            else f" The answer itself began after {format_seconds(heard.first_text_s)}."
        )
        said.append(f"The server sent {format_count(len(heard.reasoning))} characters of reasoning first.{later}")
    if reading.skipped:
        said.append(f"{format_count(reading.skipped)} events of the server were no JSON, and were left out.")
    return RunRecord(
        strategy=None,
        status=status,
        finish_reason=reason,
        prompt_tokens=reported.prompt_tokens,
        token_ids=None,
        num_new_tokens=tokens,
        token_times_s=times,
        positions_computed=None,
        positions_read=None,
        text=heard.text,
        error=error,
        reused_tokens=reported.cached_tokens,
        request_s=request_s,
        cache_tokens=None,
        cache_bytes=None,
        cache_storage_bytes=None,
        notices=tuple(said),
        reported=reported,
        reasoning=heard.reasoning,
        first_text_s=heard.first_text_s,
    )


def times_of(heard: Heard, tokens: int | None, said: list[str]) -> tuple[float, ...]:
    """One time per token where each came by itself; fewer where several came together, and it is said."""
    times = heard.times_s[:tokens]
    if times:
        times[-1] = heard.times_s[-1]
    together = len(times) > FEW or (len(times) == 1 and (tokens or 0) > 1)
    if together and (times[-1] - times[0]) <= AT_ONE_TIME * times[-1]:
        said.append("The answer came all at once: something between here and the model holds the stream back.")
        return (times[-1],)
    if times and tokens is not None and len(times) < tokens:
        said.append(
            f"{format_count(len(times))} pieces carried {format_count(tokens)} tokens, so that single steps cannot be told apart."
        )
    return tuple(times)


def reported_by(model: ServedModel, reading: Reading, heard: Heard) -> Reported:
    """Only whole numbers that can be: no prompt has no token, no text has none, and no more is reused than there was.

    A 0 of cached tokens only from an engine that counts them.
    """
    prompt = whole(reading.usage.get("prompt_tokens")) or None
    completion = whole(reading.usage.get("completion_tokens"))
    details = reading.usage.get("prompt_tokens_details")
    cached = whole(details.get("cached_tokens") if isinstance(details, dict) else None)
    if cached is None:
        cached = whole(reading.timings.get("cache_n"))
    if (cached == 0 and model.engine not in ENGINES) or (cached or 0) > (prompt or math.inf):
        cached = None
    return Reported(
        prompt_tokens=prompt,
        completion_tokens=completion or (None if heard.pieces else completion),
        cached_tokens=cached,
        prefill_s=seconds(reading.timings.get("prompt_ms")),
        decode_s=seconds(reading.timings.get("predicted_ms")),
    )


def whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def seconds(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return value / 1000 if known and isinstance(value, int | float) else None
