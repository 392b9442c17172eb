"""A conversation as the page keeps it: turns, and what may be done with them. Pure values, no Gradio, no backend.

Text is stored as it was typed or generated. A turn without an answer is shown, but the model does not read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message

__all__ = ["Conversation", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and what came of it.

    note      what a person must know about the answer: that it was stopped, or why it failed
    figures   one line about the run ("20 tokens · 24.8 tok/s")
    failed    the note reports an error
    drop      turns to drop so that the conversation fits the model again; 0: it fits, or that would not help
    record    the run without what is long and drawn nowhere
    """

    question: str
    answer: str = ""
    note: str = ""
    figures: str = ""
    failed: bool = False
    drop: int = 0
    record: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, oldest first.

    running      the last turn's answer is being written
    editing      index of the turn that the text in the composer will replace, with everything after it
    kept_draft   what stood in the composer before the edit
    """

    turns: tuple[Turn, ...] = ()
    running: bool = False
    editing: int | None = None
    kept_draft: str = ""

    def asked(self, question: str) -> Conversation:
        """The conversation with a new question, or with the edited one in its place; an answer is on its way."""
        Message("user", question)
        kept = self.turns if self.editing is None else self.turns[: self.editing]
        return Conversation((*kept, Turn(question)), running=True)

    def answered(self, answer: str, **known: Any) -> Conversation:
        """The conversation with the last question answered, as far as it got; `known`: the other fields of Turn."""
        return Conversation((*self.turns[:-1], replace(self.turns[-1], answer=answer, **known)))

    def without_oldest(self, count: int) -> Conversation:
        """The conversation without its `count` oldest turns; the last question always stays, and is asked again."""
        return Conversation(self.turns[min(count, len(self.turns) - 1) : -1]).asked(self.turns[-1].question)

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """The runs of the answered turns, oldest first."""
        return tuple(turn.record for turn in self.turns if turn.record is not None and turn.record.token_times_s)

    def read_at_each_turn(self, system_prompt: str = "") -> tuple[tuple[Message, ...], ...]:
        """What the model read for each turn of `records`, for measuring it again."""
        return tuple(
            Conversation(self.turns[: index + 1]).messages(system_prompt)
            for index, turn in enumerate(self.turns)
            if turn.record is not None and turn.record.token_times_s
        )

    def up_to(self, index: int) -> Conversation:
        """The turns before `index`; nothing is running and nothing is being edited."""
        return Conversation(self.turns[:index])

    def editing_turn(self, index: int, draft: str) -> Conversation:
        """The same conversation while turn `index` is being edited in the composer."""
        return replace(self, editing=index, kept_draft=draft)

    def messages(self, system_prompt: str = "") -> tuple[Message, ...]:
        """What the model is to read: the answered turns, then the last question."""
        sent: list[Message] = [Message("system", system_prompt)] if system_prompt.strip() else []
        for turn in self.turns[:-1]:
            if turn.answer.strip():
                sent += [Message("user", turn.question), Message("assistant", turn.answer)]
        return (*sent, Message("user", self.turns[-1].question))
