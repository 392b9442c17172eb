"""A prompt as a person gives it -> token ids, with a notice for everything that was changed on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import Message, Prompt

if TYPE_CHECKING:
    from kvdemo.models.loaded import LoadedModel

__all__ = ["EncodedPrompt", "encode_prompt"]

NO_TEMPLATE = "This model has no chat template: it sees the conversation as plain text."
SYSTEM_FOLDED = "This model's template takes no system prompt: it was put in front of the first question."


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids of a prompt, and what a person must know about how they came to be."""

    token_ids: tuple[int, ...]
    notices: tuple[str, ...] = ()


def encode_prompt(loaded: LoadedModel, prompt: Prompt) -> EncodedPrompt:
    """Which ids does the model see for this prompt? InvalidRequest when there are none or the template refuses it."""
    notices: list[str] = []
    messages = () if isinstance(prompt, str) else tuple(part for part in prompt if isinstance(part, Message))
    with loaded.encoding:
        if isinstance(prompt, str):
            ids = _ids_of(loaded.tokenizer(prompt))
        elif not messages:
            ids = [part for part in prompt if isinstance(part, int)]
        elif loaded.tokenizer.chat_template is None:
            notices.append(NO_TEMPLATE)
            ids = _ids_of(loaded.tokenizer(_as_plain_text(messages)))
        else:
            ids = _render(loaded, messages, notices)
    if not ids:
        raise InvalidRequest("prompt", "gives no tokens")
    return EncodedPrompt(tuple(ids), tuple(notices))


def _render(loaded: LoadedModel, messages: tuple[Message, ...], notices: list[str]) -> list[int]:
    from jinja2.exceptions import TemplateError

    try:
        return _apply_template(loaded, messages)
    except TemplateError as error:
        refusal = error
    folded = _fold_system(messages)
    if folded != messages:
        try:
            ids = _apply_template(loaded, folded)
        except TemplateError as error:
            refusal = error
        else:
            notices.append(SYSTEM_FOLDED)
            return ids
    raise InvalidRequest("messages", f"the model's chat template refuses this conversation: {refusal}")


def _apply_template(loaded: LoadedModel, messages: tuple[Message, ...]) -> list[int]:
    conversation = [{"role": message.role, "content": message.content} for message in messages]
    return _ids_of(loaded.tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=True))


def _fold_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The system prompt in front of the first user turn; the same messages when there is none to fold."""
    if len(messages) < 2 or messages[0].role != "system" or messages[1].role != "user":
        return messages
    system, first, *rest = messages
    if not system.content.strip():
        return (first, *rest)
    return (Message("user", f"{system.content}\n\n{first.content}"), *rest)


def _as_plain_text(messages: tuple[Message, ...]) -> str:
    turns = [f"{message.role.capitalize()}: {message.content}" for message in messages]
    return "\n".join([*turns, "Assistant:"])


def _ids_of(encoded: Any) -> list[int]:
    """The ids of what a tokenizer returns: a BatchEncoding, or a plain list."""
    return list(encoded if isinstance(encoded, list) else encoded["input_ids"])
