"""The table of questions: what people ask. Page, commands, documents and reports read it; nobody asks for a result's type."""

from __future__ import annotations

from typing import Any

from kvdemo.experiments.question import AnyResult, Question
from kvdemo.questions.application.question import APPLICATION
from kvdemo.questions.conversations.question import CONVERSATIONS
from kvdemo.questions.endpoint.question import ENDPOINT
from kvdemo.questions.faster.question import FASTER
from kvdemo.questions.grow.question import GROW
from kvdemo.questions.load.question import LOAD
from kvdemo.questions.prefix.question import PREFIX
from kvdemo.questions.prompts.question import PROMPTS

__all__ = ["QUESTIONS", "Table", "asked_by", "question_of"]

Table = tuple[Question[Any, Any], ...]
QUESTIONS: Table = (FASTER, PROMPTS, GROW, PREFIX, LOAD, ENDPOINT, CONVERSATIONS, APPLICATION)


def asked_by(spec: object, table: Table = QUESTIONS) -> Question[Any, Any]:
    """The question that this request asks."""
    return next(row for row in table if type(spec) is row.spec)


def question_of(result: AnyResult, table: Table = QUESTIONS) -> Question[Any, Any]:
    """The question that this result answers."""
    return next(row for row in table if type(result) is row.result)
