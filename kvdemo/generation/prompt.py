"""A prompt as a person gives it -> token ids, with a notice for everything that was changed on the way."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import Message, Prompt

if TYPE_CHECKING:
    from kvdemo.models.loaded import LoadedModel

__all__ = ["EncodedPrompt", "bare_ids", "chat_templates", "encode_prompt", "refusal_of"]

NO_TEMPLATE = "This model has no chat template: it sees the conversation as plain text."
IN_PARTS = "This model's template takes no plain text: each message was given to it as a list of parts."
TEXT_CHANGED = "This model's template changed the text of a message on its way to the model."
SYSTEM_FOLDED = "This model's template takes no system prompt: it was put in front of the first question."
# What templates write around turns: <|im_start|>, [INST], ### Human:
MARK = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]{2,40}\]|#{2,} ?[A-Z]\w*:")
PLAIN_MARK = re.compile(r"^(?:System|User|Assistant):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids of a prompt, and what a person must know about how they came to be. took_s: the time that it took, s."""

    token_ids: tuple[int, ...]
    notices: tuple[str, ...] = ()
    took_s: float = field(default=0.0, compare=False)


def encode_prompt(loaded: LoadedModel, prompt: Prompt) -> EncodedPrompt:
    """Which ids does the model see for this prompt? InvalidRequest when there are none or the template refuses it."""
    began_s = time.perf_counter()
    notices: list[str] = []
    messages = () if isinstance(prompt, str) else tuple(part for part in prompt if isinstance(part, Message))
    with loaded.encoding:
        if isinstance(prompt, str):
            ids = _ids_of(loaded.tokenizer(prompt))
        elif not messages:
            ids = [part for part in prompt if isinstance(part, int)]
        elif not loaded.tokenizer.chat_template:
            notices.append(NO_TEMPLATE)
            notices += _said_of_markers(
                messages, {mark for one in messages for mark in PLAIN_MARK.findall(one.content)}
            )
            ids = _ids_of(loaded.tokenizer(_as_plain_text(messages)))
        else:
            ids = _render(loaded, messages, notices)
    if not ids:
        raise InvalidRequest("prompt", "gives no tokens")
    _refuse_unknown(loaded, ids, "messages" if messages else "prompt")
    return EncodedPrompt(tuple(ids), tuple(notices), time.perf_counter() - began_s)


def _refuse_unknown(loaded: LoadedModel, ids: list[int], field: str) -> None:
    """A tokenizer may have more tokens than its model: an added one for which the embedding was never made larger."""
    try:
        rows = int(loaded.model.get_input_embeddings().num_embeddings)
    except (NotImplementedError, AttributeError):  # embedded in a way of its own
        return
    unknown = next((token_id for token_id in ids if not 0 <= token_id < rows), None)
    if unknown is not None:
        token = str(loaded.tokenizer.decode([unknown]))[:60] if 0 <= unknown < len(loaded.tokenizer) else ""
        raise InvalidRequest(
            field,
            f"holds the token {token!r} ({unknown:,}), which this model does not know: it has {rows:,}, counted from 0. "
            "Take it out, or save the model with a larger embedding.",
        )


def bare_ids(loaded: LoadedModel, text: str) -> list[int]:
    """The ids of a piece of text, without the tokens that the tokenizer puts before and after a prompt."""
    with loaded.encoding:
        return _ids_of(loaded.tokenizer(text, add_special_tokens=False))


def _render(loaded: LoadedModel, messages: tuple[Message, ...], notices: list[str]) -> list[int]:
    """The ids by the first way of telling the template these messages in which all that a person wrote arrives."""
    refusal = ""
    for template, said_of_template in chat_templates(loaded.tokenizer.chat_template):
        for tried, in_parts, said_of_way in _ways(messages):
            render = _Render(loaded.tokenizer, template, in_parts)
            try:
                shape = _Shape.of(tried, render)
                if shape.left_out:
                    refusal = refusal or f"the model's chat template leaves out the {shape.left_out}"
                    continue
                arrives = _in(render.text(tried), tried)
                ids = render.ids(tried)
            except Exception as error:  # a template is a program, and raises whatever it likes
                refusal = refusal or refusal_of(error)
                continue
            notices += [*said_of_template, *said_of_way, *([] if arrives else [TEXT_CHANGED])]
            notices += _said_of_markers(tried, _markers(loaded.tokenizer, shape.text))
            return ids
    raise InvalidRequest("messages", refusal or "the model names no chat template that can be used")


@dataclass(frozen=True, slots=True)
class _Render:
    """A tokenizer's chat template; `name` where it has several, in_parts: each content as a list of parts."""

    tokenizer: Any
    name: str | None
    in_parts: bool

    def text(self, messages: tuple[Message, ...]) -> str:
        return str(self._apply(messages, tokenize=False))

    def ids(self, messages: tuple[Message, ...]) -> list[int]:
        return _ids_of(self._apply(messages, tokenize=True))

    def _apply(self, messages: tuple[Message, ...], *, tokenize: bool) -> Any:
        conversation = [
            {"role": one.role, "content": [{"type": "text", "text": one.content}] if self.in_parts else one.content}
            for one in messages
        ]
        options: dict[str, Any] = {} if self.name is None else {"chat_template": self.name}
        return self.tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=tokenize, **options
        )


def chat_templates(chat_template: str | dict[str, str]) -> list[tuple[str | None, list[str]]]:
    """Names of templates to try, each with what a person must know; None: the only one, or the default one."""
    if not isinstance(chat_template, dict) or "default" in chat_template:
        return [(None, [])]
    names = ", ".join(chat_template)
    return [
        (name, [f"This model has no default among its chat templates ({names}): {name} was used."])
        for name in chat_template
    ]


def _ways(messages: tuple[Message, ...]) -> list[tuple[tuple[Message, ...], bool, list[str]]]:
    """(messages, contents as lists of parts, what a person must know): as they are, then what else templates want."""
    folded = _fold_system(messages)
    ways: list[tuple[tuple[Message, ...], bool, list[str]]] = [(messages, False, [])]
    if folded != messages:
        ways.append((folded, False, [SYSTEM_FOLDED]))
    return [*ways, *((tried, True, [*said, IN_PARTS]) for tried, _, said in ways)]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a template makes of a conversation, whatever is said in it: found with a word of ours in place of each text.

    text       the template's own text around them
    left_out   what of a person's it does not print: "message", "system prompt" or ""
    """

    text: str
    left_out: str

    @classmethod
    def of(cls, messages: tuple[Message, ...], render: _Render) -> _Shape:
        words = [f"kvdemo{index}word" for index, _ in enumerate(messages)]
        stand_ins = zip(messages, words, strict=True)
        text = render.text(tuple(Message(one.role, word) if one.content.strip() else one for one, word in stand_ins))
        missing = [one for one, word in zip(messages, words, strict=True) if _is_told(one) and word not in text]
        names = {"user": "message", "system": "system prompt"}
        return cls(re.sub("|".join(words), "\n", text), names[missing[-1].role] if missing else "")


def _is_told(message: Message) -> bool:
    """Must this reach the model? What it said itself may be shortened: templates leave out earlier reasoning."""
    return message.role != "assistant" and bool(message.content.strip())


def _in(rendered: str, messages: tuple[Message, ...]) -> bool:
    """Is every text in it word for word? White space does not count: templates trim it."""
    squeezed = "".join(rendered.split())
    return all("".join(message.content.split()) in squeezed for message in messages if _is_told(message))


def refusal_of(error: Exception) -> str:
    """What a template raised, in one line: its author's words, or the kind of fault."""
    from jinja2.exceptions import TemplateError

    said = " ".join(str(error).split())[:200]
    if isinstance(error, TemplateError):
        return f"the model's chat template refuses this conversation: {said}"
    return f"the model's chat template fails on this conversation ({type(error).__name__}: {said})"


def _markers(tokenizer: Any, template_text: str) -> set[str]:
    """What marks turns for this model: its special tokens, and what looks like a mark in the template's own text."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return {mark for mark in special if mark.strip()} | set(MARK.findall(template_text))


def _said_of_markers(messages: tuple[Message, ...], markers: set[str]) -> list[str]:
    texts = [message.content for message in messages if _is_told(message)]
    found = [mark for mark in sorted(markers) if any(mark in text for text in texts)]
    if not found:
        return []
    named = ", ".join(found[:5]) + (" ..." if len(found) > 5 else "")
    return [f"This text contains the model's own markers ({named}): to the model they begin and end turns."]


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
