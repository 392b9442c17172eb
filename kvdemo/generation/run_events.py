"""The consumer's side of a run: facts that the model's thread has put down become events, and its outcome a record."""

from __future__ import annotations

import logging
import queue
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

from kvdemo.errors import OutOfMemory, RunFailed, is_out_of_memory
from kvdemo.facts.events import (
    Finished,
    GenerationEvent,
    PrefillProgress,
    PromptEncoded,
    Reuse,
    TokenEmitted,
    Working,
)
from kvdemo.facts.reader import Reader
from kvdemo.facts.records import FinishReason, RunRecord, Status
from kvdemo.generation.admission import Admitted
from kvdemo.generation.ends import end_ids, stop_strings
from kvdemo.generation.logits import NotNumbers
from kvdemo.generation.run import Accepted, Fact, Outcome, Run, Step
from kvdemo.generation.text import IncrementalText
from kvdemo.generation.turnstile import HEARTBEAT_S

__all__ = ["RunEvents", "one_line"]

PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[\\/](?:[^\s'\"\\/]+[\\/])[^\s'\"]*")

log = logging.getLogger(__name__)


class RunEvents:
    """The events of one run, as often as its reader wants to hear; it reads the run's facts and nothing else of it."""

    def __init__(self, admitted: Admitted, run: Run, reader: Reader) -> None:
        self._admitted = admitted
        self._run = run
        self._reader = reader
        self._queue_s = 0.0
        self._text = IncrementalText(admitted.loaded.tokenizer, stop_strings(admitted.loaded, admitted.request))
        self._text_ends: list[int] = []

    def __iter__(self) -> Iterator[GenerationEvent]:
        index = 0
        for fact in self._facts():
            if fact is None:
                yield Working(time.perf_counter() - self._admitted.entered_s)
            elif isinstance(fact, Accepted):
                self._queue_s = max(0.0, fact.at_s - self._admitted.entered_s - self._admitted.prepare_s)
                yield self._encoded_event(fact)
            elif isinstance(fact, PrefillProgress):
                yield fact
            elif isinstance(fact, Step):
                piece = self._text.push(fact.token_id)
                self._text_ends.append((self._text_ends[-1] if self._text_ends else 0) + len(piece))
                yield _emitted(index, fact, piece)
                index += 1
            else:
                yield self._finished(fact)
                return

    def _facts(self) -> Iterator[Fact | None]:
        """What the model's thread has put down, as often as the reader wants to hear; None: that was all for now.

        A reader who waits for the next fact is woken by every token. One who waits for the end, and looks at the facts
        when his time is over, leaves the interpreter to the thread that runs the model.
        """
        run, every_s = self._run, min(self._reader.every_s, HEARTBEAT_S)
        while not every_s:
            try:
                yield run.facts.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                yield None
        quiet_s = 0.0
        while True:
            run.ended.wait(every_s)
            quiet_s += every_s
            for _ in range(run.facts.qsize()):
                quiet_s = 0.0
                yield run.facts.get()
            if not quiet_s or quiet_s + every_s > HEARTBEAT_S:
                quiet_s = 0.0
                yield None

    def cancelled_in_line(self) -> Finished:
        """The end of a run that was stopped while it stood in line."""
        self._queue_s = time.perf_counter() - self._admitted.entered_s - self._admitted.prepare_s
        return Finished("cancelled", self._record(self._run.not_begun(), "cancelled", "cancelled"))

    def _encoded_event(self, accepted: Accepted) -> PromptEncoded:
        return PromptEncoded(
            prompt_tokens=len(self._admitted.token_ids),
            queue_s=self._queue_s,
            prepare_s=self._admitted.prepare_s,
            context_limit=self._admitted.loaded.facts.context_limit,
            reserved_tokens=accepted.reserved_tokens,
            reuse=self._in_words(accepted.reuse),
            notices=self._admitted.encoded.notices,
        )

    def _in_words(self, reuse: Reuse) -> Reuse:
        """The first differing token on both sides, as text, where there is one."""
        if reuse.kept_token is None or reuse.new_token is None:
            return reuse
        decode = self._admitted.loaded.tokenizer.decode
        return replace(reuse, kept_text=str(decode([reuse.kept_token])), new_text=str(decode([reuse.new_token])))

    def _finished(self, outcome: Outcome) -> Finished:
        tail = self._text.finish()
        if outcome.error is not None:
            raise self.failure(outcome.error, outcome)
        reason = outcome.cut or self._reason(outcome)
        return Finished(reason, self._record(outcome, outcome.cut or "ok", reason), tail)

    def _reason(self, outcome: Outcome) -> FinishReason:
        request = self._admitted.request
        if self._text.stopped:
            return "stop_string"
        last = outcome.steps[-1].token_id if outcome.steps else None
        if not request.fixed_length and last in end_ids(self._admitted.loaded):
            return "stop"
        # A stop string that began in the prompt ends generate too, with fewer tokens than asked for.
        return "length" if len(outcome.steps) >= request.max_new_tokens else "stop_string"

    def failure(self, error: BaseException, outcome: Outcome) -> RunFailed:
        """The run as failed, with what it made until then; the log has the details."""
        number = uuid.uuid4().hex[:8]
        # What names its own cause has no details in its traceback.
        details = None if isinstance(error, NotNumbers) else error
        log.error("run %s failed: %s", number, type(error).__name__, exc_info=details)
        if is_out_of_memory(error):
            message = (
                f"There was not enough memory for this run; its cache was dropped. Try fewer tokens. (error {number})"
            )
            return OutOfMemory(message, self._record(outcome, "failed", None, message))
        message = f"The run failed: {one_line(error)} (error {number})"
        return RunFailed(message, self._record(outcome, "failed", None, message))

    def _record(
        self, outcome: Outcome, status: Status, reason: FinishReason | None, error: str | None = None
    ) -> RunRecord:
        admitted, steps = self._admitted, outcome.steps
        ids = tuple(step.token_id for step in steps)
        ends = end_ids(admitted.loaded) if admitted.request.fixed_length else frozenset()
        return RunRecord(
            strategy=admitted.strategy.key,
            status=status,
            finish_reason=reason,
            prompt_tokens=len(admitted.token_ids),
            token_ids=ids,
            token_times_s=tuple(step.time_s for step in steps),
            positions_computed=outcome.positions_computed,
            positions_read=outcome.positions_read,
            text=self._text.text,
            text_ends=tuple(self._text_ends),
            error=error,
            reused_tokens=outcome.reuse.reused_tokens,
            queue_s=self._queue_s,
            prepare_s=admitted.prepare_s,
            request_s=time.perf_counter() - admitted.entered_s,
            cache_tokens=outcome.cache_tokens,
            cache_bytes=outcome.weight.held_bytes,
            cache_storage_bytes=outcome.weight.storage_bytes,
            cache_bytes_by_token=tuple((step.weight.held_bytes, step.weight.storage_bytes) for step in steps),
            cache_layers=outcome.layers,
            cache_bytes_by_device=dict(outcome.weight.by_device),
            peak_bytes=outcome.peak_bytes,
            peak_kind=outcome.peak_kind,
            compile_s=outcome.compile_s,
            notices=admitted.encoded.notices,
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


def one_line(error: BaseException) -> str:
    """What the error says, without the paths of this machine."""
    lines = str(error).strip().splitlines()
    return PATH.sub("(a file)", lines[0])[:200] if lines else "it did not say why"
