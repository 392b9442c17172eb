"""How the time of a conversation went: the steps of the latest answer, first-token time by turn, with and without reuse.

The line without reuse is drawn only where it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.components.wiring import MEASURING
from kvdemo.errors import KvdemoError
from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.settings import ChatSettings

__all__ = ["drawn", "measured_without_reuse", "prefill_tokens_per_s", "saved_words"]

FEWEST_TURNS = 3


def drawn(conversation: Conversation, without_reuse_s: tuple[float | None, ...] = ()) -> tuple[Any, Any, str]:
    """(steps of the latest answer, first-token time by turn or None, words); figures None where there is nothing yet."""
    records = conversation.records
    if not records:
        return None, None, _said("The times of your answers are drawn here once there is one.")
    from kvdemo.charts.chat_charts import answer_steps_chart, first_token_chart

    steps = answer_steps_chart(records[-1]) if records[-1].step_s else None
    if len(records) < FEWEST_TURNS:
        return steps, None, _said("From the third answer on, you see here how soon each one began.")
    return steps, first_token_chart(records, without_reuse_s), ""


def measured_without_reuse(
    backend: Backend, conversation: Conversation, settings: ChatSettings, owner: str
) -> Iterator[tuple[str, tuple[float | None, ...]]]:
    """Process every turn afresh: words and the times so far, after each turn."""
    turns = conversation.read_at_each_turn(settings.system_prompt)
    times: list[float | None] = []
    yield _said(f"Reading turn 1 of {len(turns)} again, with an empty cache."), ()
    try:
        runs = backend.turns_without_reuse(
            turns,
            strategy=str(settings.strategy),
            longest_answer=settings.longest(),
            owner=owner,
            reader=MEASURING,
        )
        try:
            for step in runs:
                if isinstance(step, RunRecord):
                    times.append(step.ttft_s)
                words = f"{len(times)} of {len(turns)} turns measured without reuse."
                yield _said(words), tuple(times)
        finally:
            runs.close()
    except KvdemoError as error:
        yield Markup('<div class="kv-notice" role="alert">{}</div>').format(text(error)), tuple(times)


def prefill_tokens_per_s(conversation: Conversation) -> float | None:
    """This conversation's own prefill speed: that of the turn which processed most prompt tokens.

    A turn that does not say how many it reused says nothing about it.
    """
    processed = [
        (run.prompt_tokens - run.reused_tokens, run.prefill_tokens_per_s)
        for run in conversation.records
        if run.reused_tokens is not None and run.prompt_tokens is not None
    ]
    return max(processed, key=lambda turn: turn[0], default=(0, None))[1]


def saved_words(reused_tokens: int, tokens_per_s: float | None) -> str:
    """What reuse saved, as an estimate; "" where there is nothing to estimate it from."""
    if not reused_tokens or not tokens_per_s:
        return ""
    saved = format_seconds(reused_tokens / tokens_per_s)
    speed = format_count(round(tokens_per_s))
    return f"About {saved} saved: an estimate from this conversation's own prefill speed, {speed} tokens per second."


def _said(words: str) -> str:
    return Markup('<div class="kv-small" role="status">{}</div>').format(text(words))
