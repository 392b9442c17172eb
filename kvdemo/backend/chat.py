"""Answers to a visitor: one turn of a conversation, what is kept for the next, and the same turns without it."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections.abc import Generator

from kvdemo.backend.endpoints import served
from kvdemo.backend.model import BackendBase
from kvdemo.caches import strategies as table
from kvdemo.caches.prefix import kept_slots
from kvdemo.errors import ContextFull
from kvdemo.facts.endpoint import Endpoint
from kvdemo.facts.events import Finished, GenerationEvent, Waiting, Working
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message, SamplingParams
from kvdemo.facts.steps import CacheLook, Stepped
from kvdemo.generation.prompt import encode_prompt

__all__ = ["Chat"]

PREFILL_CHUNK = 512


class Chat(BackendBase):
    """The part of the backend that talks."""

    def chat(
        self,
        messages: tuple[Message, ...],
        *,
        max_new_tokens: int,
        strategy: str = "dynamic",
        sampling: SamplingParams | None = None,
        owner: str = "",
        stop_strings: tuple[str, ...] = (),
        keep: bool = False,
        reader: Reader = AT_ONCE,
        endpoint: Endpoint | None = None,
    ) -> Generator[GenerationEvent, None, None]:
        """One answer, told as often as the reader wants to hear.

        With `keep` the owner's cache from the turn before is continued, and this one kept.

        endpoint   the engine behind a URL that answers in the place of the loaded model; what it keeps is its own affair

        ContextFull before anything runs where the conversation is too long, with the number of turns to drop.
        """
        request = GenerationRequest(
            prompt=messages,
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            sampling=sampling or SamplingParams(),
            stop_strings=stop_strings,
            prefill_chunk=PREFILL_CHUNK,
        )
        if endpoint is not None:
            yield from self._chat_with(endpoint, request, owner, reader)
            return
        kept = self._engine.kept if keep and owner else None
        try:
            yield from self._engine.run(request, owner, kept=kept, reader=reader)
        except ContextFull as error:
            raise self._with_turns_to_drop(error, request) from None

    def step(
        self,
        messages: tuple[Message, ...],
        made: tuple[int, ...] = (),
        *,
        strategy: str = "dynamic",
        layer: int = 0,
        head: int = 0,
        owner: str = "",
        reader: Reader = AT_ONCE,
    ) -> Generator[Waiting | Working | Stepped, None, None]:
        """One token more of an answer, always the likeliest: a run of its own that continues from the ids made until now.

        The owner's cache from the step before is continued, and kept. layer, head: where to look closely into it afterwards.
        InvalidRequest before anything runs.
        """
        loaded = self._engine.ready()
        encoded = encode_prompt(loaded, messages)
        ids = (*encoded.token_ids, *made)
        request = GenerationRequest(ids, 1, strategy, prefill_chunk=PREFILL_CHUNK)
        with self._engine.stoppable(owner) as stop:
            kept = self._engine.kept if owner else None
            whole = dataclasses.replace(encoded, token_ids=ids)
            record = None
            for event in self._engine.run(request, owner, encoded=whole, kept=kept, stop=stop, reader=reader):
                if isinstance(event, Waiting | Working):
                    yield event
                if isinstance(event, Finished):
                    record = event.record
            assert record is not None, "a run ends with Finished, or raises"
            now = (*made, *(record.token_ids or ()))
            look = (yield from self._engine.look(owner, layer, head, stop)) if record.status == "ok" else None
            # The bytes of a character that is not complete yet are not shown.
            text = str(loaded.tokenizer.decode(list(now), skip_special_tokens=True)).rstrip("\ufffd")
            yield Stepped(record, now, text, ended=record.finish_reason in ("stop", "stop_string"), look=look)

    def look(
        self, *, layer: int = 0, head: int = 0, owner: str, reader: Reader = AT_ONCE
    ) -> Generator[Waiting | CacheLook | None, None, None]:
        """Into the cache that is kept for this owner: his place in line, then the look; None where nothing is kept."""
        with self._engine.stoppable(owner) as stop:
            yield (yield from self._engine.look(owner, layer, head, stop))

    def _chat_with(
        self, endpoint: Endpoint, request: GenerationRequest, owner: str, reader: Reader
    ) -> Generator[GenerationEvent, None, None]:
        """The answer of a server; its line is its own, so nobody waits here."""
        self._engine.check(request)
        with (
            self._engine.stoppable(owner) as stop,
            served(self.settings, endpoint, reader=reader, stop=stop) as server,
        ):
            yield from server.run(request)

    def turns_without_reuse(
        self,
        conversations: tuple[tuple[Message, ...], ...],
        *,
        strategy: str = "dynamic",
        longest_answer: int = 1,
        owner: str = "",
        reader: Reader = AT_ONCE,
    ) -> Generator[RunRecord | Waiting | Working, None, None]:
        """First-token times of the same turns with an empty cache each: one new token per conversation, nothing kept.

        Between the records there are the runs' signs of life.

        longest_answer   tokens that each answer was allowed: a cache of fixed size is as large as the kept one was
        """
        with self._engine.stoppable(owner) as stop:
            for messages in conversations:
                encoded = encode_prompt(self._engine.ready(), messages)
                needed = len(encoded.token_ids) + longest_answer - 1
                slots = kept_slots(table.strategy_of(strategy), needed)
                request = GenerationRequest(messages, 1, strategy, prefill_chunk=PREFILL_CHUNK, cache_slots=slots)
                run = self._engine.run(request, owner, encoded=encoded, stop=stop, reader=reader, patient=True)
                for event in run:
                    if isinstance(event, Waiting | Working):
                        yield event
                    if isinstance(event, Finished):
                        if event.record.status != "ok":
                            return
                        yield event.record

    def kept_bytes(self, owner: str) -> int:
        """Storage bytes of the cache kept for this owner."""
        return self._engine.kept.storage_bytes(owner)

    def forget(self, owner: str) -> None:
        """Free the cache kept for this owner, who stays."""
        self._engine.kept.release(owner)

    def stop(self, owner: str) -> None:
        """End what this owner is running or waiting for, within one token."""
        self._engine.stop(owner)

    def release(self, owner: str) -> None:
        """A visitor has left: end his runs and free what he holds."""
        self._engine.release(owner)

    def _with_turns_to_drop(self, error: ContextFull, request: GenerationRequest) -> ContextFull:
        """The same refusal in a chat's words, with how many of the oldest turns would have to go."""
        messages = tuple(part for part in request.prompt if isinstance(part, Message))
        system = tuple(message for message in messages[:1] if message.role == "system")
        turns = messages[len(system) :]

        def fits_without(pairs: int) -> bool:
            shorter = dataclasses.replace(request, prompt=(*system, *turns[2 * pairs :]))
            with contextlib.suppress(ContextFull):
                self._engine.check_length(shorter)
                return True
            return False

        # Every trial encodes a whole conversation, and there may be hundreds of turns.
        pairs = range(1, (len(turns) + 1) // 2)
        first = bisect.bisect_left(pairs, True, key=fits_without)
        drop = pairs[first] if first < len(pairs) else 0
        oldest = "" if not drop else " or drop the oldest turn" if drop == 1 else f" or drop the {drop} oldest turns"
        return ContextFull(
            f"this turn needs {error.needed_tokens:,} of {error.limit_tokens:,} tokens, the longest answer included: "
            f"shorten it, allow a shorter answer, clear{oldest}.",
            needed_tokens=error.needed_tokens,
            limit_tokens=error.limit_tokens,
            drop_turns=drop,
        )
