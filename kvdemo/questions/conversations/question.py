"""Will my conversations reuse it? The question's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvdemo.experiments.question import Page, Question
from kvdemo.questions.conversations import words
from kvdemo.questions.conversations.code import CONVERSATIONS_CODE
from kvdemo.questions.conversations.document import document, read
from kvdemo.questions.conversations.run import conversations as run
from kvdemo.questions.conversations.spec import ConversationsResult, ConversationsSpec
from kvdemo.questions.conversations.tables import misses_table, request_rows

__all__ = ["CONVERSATIONS"]


def draw(result: ConversationsResult, picked: Mapping[str, str]) -> Sequence[Any]:
    from kvdemo.questions.conversations.charts import draw

    return draw(result, picked)


def drawings(result: ConversationsResult) -> Sequence[Any]:
    from kvdemo.questions.conversations.charts import drawings

    return drawings(result)


def page() -> Page[ConversationsSpec]:
    from kvdemo.questions.conversations.page import PAGE

    return PAGE


def ask() -> Callable[..., ConversationsSpec]:
    from kvdemo.questions.conversations.command import conversations

    return conversations


CONVERSATIONS = Question(
    key="conversations",
    command="conversations",
    kind="conversations",
    title="Will my conversations reuse it?",
    empty=(
        "Run puts every request of a file through the model's chat template. It compares the tokens, one by one, with those "
        "that the turn before leaves in a cache. You then see here how much would be reused, where reuse ends, and why. "
        "Without a file, Run tries the template alone. No weights are needed."
    ),
    unit="requests",
    needs="tokenizer",
    example="conversations",
    spec=ConversationsSpec,
    result=ConversationsResult,
    run=run,
    words=words,
    document=document,
    read=read,
    runs=lambda _: (),
    rows=request_rows,
    labels=lambda _: {},
    strategies=lambda _: (),
    table=misses_table,
    draw=draw,
    drawings=drawings,
    page=page,
    ask=ask,
    code=CONVERSATIONS_CODE,
)
