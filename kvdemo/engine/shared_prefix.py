"""A prefix processed once and copied for every question, and prompts of a given length: what two experiments need."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from kvdemo.caches.prefix import KeptCaches, common_prefix
from kvdemo.engine.engine import Engine
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import GenerationEvent, Waiting, Working
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.facts.results import PreparedPrefix
from kvdemo.generation.prompt import bare_ids, encode_prompt
from kvdemo.models.continuing import unkept_because
from kvdemo.models.loaded import LoadedModel

__all__ = ["SharedPrefix", "text_of_length"]

_PREFIX, _QUESTION = "prefix", "question"


class SharedPrefix:
    """What every question's prompt begins with, and a store of its own for it, in which no visitor's cache has a part.

    slots   positions of the longest question with its answer: what a cache of fixed size must have, kept or not
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[tuple[Message, ...]],
        strategy: str,
        max_new_tokens: int,
        *,
        owner: str,
        stop: threading.Event,
        reader: Reader = AT_ONCE,
    ) -> None:
        """InvalidRequest when nothing can be kept, or a prompt with its answer does not fit."""
        self._engine, self._owner, self._stop, self._reader = engine, owner, stop, reader
        self._strategy = strategy
        self._store = KeptCaches(lambda _: 2**62, idle_s=86_400)
        loaded = engine.ready()
        if why := unkept_because(loaded.model, loaded.continues):
            raise InvalidRequest("model", f"a shared prefix would be processed again for every question. {why}")
        questions = [
            engine.check_length(GenerationRequest(messages, max_new_tokens, strategy)).token_ids for messages in prompts
        ]
        # What only these prompts share does not belong to it: the last message may be any.
        others = [(*prompts[0][:-1], replace(prompts[0][-1], content=text)) for text in ("a", "b")]
        self._prefix, *others_ids = (*(encode_prompt(loaded, messages).token_ids for messages in others), *questions)
        for other in others_ids:
            self._prefix = self._prefix[: common_prefix(self._prefix, other)]
        if not self._prefix:
            raise InvalidRequest(
                "system_prompt", "the chat template puts nothing before the question that could be kept"
            )
        self.slots = max(map(len, questions)) + max_new_tokens - 1

    def prepare(self) -> Generator[GenerationEvent, None, PreparedPrefix]:
        """Process what every prompt begins with, once, and keep it. Yields the signs of life of its run."""
        begin_s = time.perf_counter()
        # One new token: the cache then holds the prefix and nothing else.
        request = GenerationRequest(self._prefix, 1, self._strategy, fixed_length=True, cache_slots=self.slots)
        for event in self._run(request, _PREFIX):
            if isinstance(event, Waiting | Working):
                yield event
        prepare_s = time.perf_counter() - begin_s
        cache_bytes = self._store.storage_bytes(_PREFIX)
        return PreparedPrefix(self._store.share(_PREFIX), cache_bytes, prepare_s)

    def run(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """A run that begins with a copy of the prefix."""
        try:
            yield from self._run(request, _QUESTION)
        finally:
            self._store.release(_QUESTION)

    def _run(self, request: GenerationRequest, owner: str) -> Iterator[GenerationEvent]:
        return self._engine.run(request, owner, kept=self._store, stop=self._stop, reader=self._reader, patient=True)


def text_of_length(loaded: LoadedModel, text: str, num_tokens: int) -> tuple[str, int]:
    """A prompt of so many tokens, cut from `text`, which is repeated where it is too short; and how many it really has.

    Text cut between two tokens may be tokenised otherwise, so a few cuts are tried; the nearest below where none fits.
    InvalidRequest where there is none.
    """
    first, again = bare_ids(loaded, text), bare_ids(loaded, f" {text}")
    around = len(encode_prompt(loaded, text).token_ids) - len(first)  # such as a begin token, which comes once
    ids = first + again * (1 + (num_tokens + 8) // len(again)) if again else first
    nearest = ("", 0)
    for cut in range(num_tokens - around + 4, max(0, num_tokens - around - 8), -1):
        candidate = str(loaded.tokenizer.decode(ids[:cut], skip_special_tokens=True)).rstrip(
            "\ufffd"
        )  # half a character
        length = len(encode_prompt(loaded, candidate).token_ids) if candidate.strip() else 0
        if length == num_tokens:
            return candidate, length
        if nearest[1] < length < num_tokens:
            nearest = (candidate, length)
    if not nearest[1]:
        raise InvalidRequest("prompt", f"no prompt of {num_tokens:,} tokens can be cut from this text")
    return nearest
