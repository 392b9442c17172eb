"""Will my conversations reuse it? Every request through the model's template, beside what the turn before leaves in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.bench import Bench
from kvdemo.facts.results import Progress
from kvdemo.questions.conversations.causes import AVOIDABLE, Sent
from kvdemo.questions.conversations.lint import lint
from kvdemo.questions.conversations.reuse import Place, reuse_of, sent_together
from kvdemo.questions.conversations.shared import shared_beginnings
from kvdemo.questions.conversations.spec import (
    BadLine,
    ConversationReuse,
    ConversationsResult,
    ConversationsSpec,
    Talk,
    Totals,
    TurnReuse,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["conversations", "totals_of"]

AT_ONCE, AT_ONCE_CHARS = 128, 1_000_000  # requests encoded together, and their characters
MAX_CHARS = 100_000_000  # of all prompts together: a long conversation is sent again with every turn
TELL_S = 0.5


def conversations(spec: ConversationsSpec, bench: Bench) -> Iterator[Progress | ConversationsResult]:
    """What a cache would hold for every request, and why not more. InvalidRequest at once where there is no tokenizer.

    A request that the template refuses is named, and the others are answered.
    """
    tokens = bench.tokens
    if tokens is None:
        raise InvalidRequest("model", "its tokenizer cannot be had here")
    began_s = told_s = bench.clock()
    pages = spec.page_sizes
    now = datetime.now(UTC).isoformat() if tokens.prints_time else ""
    total = sum(len(talk.asked) for talk in spec.conversations)
    yield Progress("the template by itself", 0, total, 0.0)
    template = lint(tokens, pages)
    answered: list[list[TurnReuse]] = [[] for _ in spec.conversations]
    first_ids: list[NDArray[np.int32]] = []
    refused, last = list(spec.bad), dict[int, Sent]()
    done, reason = 0, "conversations"
    for batch in batches(spec.conversations):
        if bench.stop():
            reason = "stopped"
            break
        for place, sent in sent_together(tokens, batch, now, refused):
            before = last.get(place)
            if before is None:
                first_ids.append(sent.ids)
            answered[place].append(reuse_of(tokens, before, sent, pages))
            last[place] = sent
        done += len(batch)
        for place in {place for place, _, is_last in batch if is_last}:
            last.pop(place, None)
        if bench.clock() - told_s >= TELL_S:
            told_s = bench.clock()
            spent_s = told_s - began_s
            yield Progress("comparing tokens", done, total, spent_s, spent_s / done * (total - done))
    found = tuple(
        ConversationReuse(talk.id, tuple(turns))
        for talk, turns in zip(spec.conversations, answered, strict=True)
        if turns
    )
    left = total - done
    if left and reason == "conversations":
        words = f"The last {left:,} requests were left out: all together are longer than {MAX_CHARS:,} characters."
        refused.append(BadLine(0, words))
    yield ConversationsResult(
        spec=replace(spec, conversations=(), bad=()),
        model=bench.model,
        environment=bench.environment,
        conversations=found,
        shared_beginnings=shared_beginnings(tokens, first_ids, pages),
        totals=totals_of(found, pages, bench.prefill_tokens_per_s),
        template=template,
        refused=tuple(refused),
        stopped_because=reason,
    )


def batches(talks: Sequence[Talk]) -> Iterator[list[Place]]:
    """Requests to be encoded together, as many as all may have characters."""
    batch: list[Place] = []
    chars = total = 0
    for place, talk in enumerate(talks):
        for asked in talk.asked:
            total += asked.request.chars
            if total > MAX_CHARS:
                break
            if batch and (len(batch) >= AT_ONCE or chars + asked.request.chars > AT_ONCE_CHARS):
                yield batch
                batch, chars = [], 0
            chars += asked.request.chars
            batch.append((place, asked, asked is talk.asked[-1]))
    if batch:
        yield batch


def totals_of(
    found: Sequence[ConversationReuse], pages: Sequence[int], prefill_tokens_per_s: float | None = None
) -> Totals:
    turns = [turn for talk in found for turn in talk.turns]
    again: dict[str, int] = {}
    for turn in turns:
        if turn.miss is not None and turn.again_tokens:
            again[turn.miss.kind] = again.get(turn.miss.kind, 0) + turn.again_tokens
    reused = {str(page): sum(turn.reused_tokens[str(page)] for turn in turns) for page in pages}
    avoidable = sum(count for kind, count in again.items() if kind in AVOIDABLE)
    return Totals(sum(turn.prompt_tokens for turn in turns), reused, avoidable, again, prefill_tokens_per_s)
