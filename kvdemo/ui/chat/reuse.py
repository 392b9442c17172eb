"""Would this conversation be reused? Every turn beside what the one before leaves held, by the ids that the model wrote."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.form_values import notice, refusal
from kvdemo.components.markup import fragment
from kvdemo.components.wiring import CHATTING, Updates, owner_of
from kvdemo.errors import KvdemoError
from kvdemo.facts.requests import Message
from kvdemo.facts.templates import TemplateMessage, TemplateRequest
from kvdemo.questions.conversations.spec import Asked, ConversationsResult, ConversationsSpec, Talk
from kvdemo.questions.table import question_of
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.compare.results import headline_card, result_tables

__all__ = ["ChatReuse", "asked_in", "chat_reuse", "tell"]

PLACE = "chat/reuse"
NEXT = "And then?"  # stands for the next question, so that the last answer counts
NOTHING_YET = "There is no answer yet to be reused."


@dataclass(frozen=True, slots=True)
class ChatReuse:
    button: gr.Button
    words: gr.Markdown


def chat_reuse() -> ChatReuse:
    button = gr.Button("Would this conversation be reused?", size="sm", elem_id="chat-reuse")
    return ChatReuse(button, fragment(elem_id="chat-reuse-told"))


def tell(
    parts: ChatReuse, backend: Backend, request: gr.Request, conversation: Conversation, system_prompt: str
) -> Updates:
    """Headline and misses of this conversation."""
    asked = asked_in(conversation, system_prompt)
    if not asked:
        return {parts.words: notice(NOTHING_YET)}
    spec = ConversationsSpec((Talk("this conversation", asked),))
    try:
        *_, result = backend.ask(spec, owner=owner_of(request, PLACE), reader=CHATTING)
    except KvdemoError as error:
        return {parts.words: notice(refusal(error))}
    assert isinstance(result, ConversationsResult)
    question = question_of(result)
    return {parts.words: headline_card(question, result) + result_tables(question, result)}


def asked_in(conversation: Conversation, system_prompt: str) -> tuple[Asked, ...]:
    """The answered turns in order, each as the model read it, and a next question; () where nothing is answered."""
    found = []
    for index, turn in enumerate(conversation.turns):
        if turn.answer.strip():
            read = Conversation(conversation.turns[: index + 1]).messages(system_prompt)
            ids = turn.record.token_ids if turn.record is not None else None
            answer = TemplateMessage("assistant", turn.answer)
            found.append(Asked(TemplateRequest(_told(read)), answer, tuple(ids) if ids else None))
    if not found:
        return ()
    next_turn = conversation.asked(NEXT).messages(system_prompt)
    return (*found, Asked(TemplateRequest(_told(next_turn))))


def _told(messages: tuple[Message, ...]) -> tuple[TemplateMessage, ...]:
    return tuple(TemplateMessage(one.role, one.content) for one in messages)
