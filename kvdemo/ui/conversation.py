"""A conversation as the page keeps it: turns, and what may be done with them. Pure values, no Gradio, no backend.

Text is stored as it was typed or generated. A turn without an answer is shown, but the model does not read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvdemo.facts.requests import Message

__all__ = ["Conversation", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and what came of it.

    note      what a person must know about the answer: that it was stopped, or why it failed
    figures   one line about the run ("20 tokens · 24.8 tok/s")
    failed    the note reports an error
    """

    question: str
    answer: str = ""
    note: str = ""
    figures: str = ""
    failed: bool = False


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

    def answered(self, answer: str, *, note: str = "", figures: str = "", failed: bool = False) -> Conversation:
        """The conversation with the last question answered, as far as it got."""
        turn = replace(self.turns[-1], answer=answer, note=note, figures=figures, failed=failed)
        return Conversation((*self.turns[:-1], turn))

    def up_to(self, index: int) -> Conversation:
        """The turns before `index`; nothing is running and nothing is being edited."""
        return Conversation(self.turns[:index])

    def editing_turn(self, index: int, draft: str) -> Conversation:
        """The same conversation while turn `index` is being edited in the composer."""
        return replace(self, editing=index, kept_draft=draft)

    def messages(self, system_prompt: str = "") -> tuple[Message, ...]:
        """What the model is to read: the answered turns, then the last question."""
        told: list[Message] = [Message("system", system_prompt)] if system_prompt.strip() else []
        for turn in self.turns[:-1]:
            if turn.answer.strip():
                told += [Message("user", turn.question), Message("assistant", turn.answer)]
        return (*told, Message("user", self.turns[-1].question))
