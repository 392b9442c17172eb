"""What a request finds of what the turn before leaves in a cache.

By token ids: held after a turn = its prompt and answer less one token; shared = longest common beginning of held and the next
prompt; reused = the whole pages in min(shared, held, prompt - 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.bench import Tokens
from kvdemo.facts.templates import Rendered, TemplateMessage, TemplateRequest
from kvdemo.questions.conversations.causes import Sent, explain, first_request
from kvdemo.questions.conversations.spec import Asked, BadLine, Miss, TurnReuse

__all__ = ["Place", "common_tokens", "reuse_of", "sent_together"]

Place = tuple[int, Asked, bool]
"""(its conversation's index, a request, is it the last one of its conversation?)"""


def sent_together(
    tokens: Tokens, batch: Sequence[Place], now: str, refused: list[BadLine]
) -> Iterator[tuple[int, Sent]]:
    """Each request as it was sent; those that the template refuses go to `refused`."""
    rendered: list[tuple[int, Asked, Rendered, str]] = []
    for place, asked, is_last in batch:
        at = asked.request.at or now
        known = asked if at == asked.request.at else replace(asked, request=replace(asked.request, at=at))
        try:
            prompt = tokens.render(known.request)
            rendered.append((place, known, prompt, "" if is_last else emitted(tokens, known, prompt)))
        except InvalidRequest as error:
            refused.append(BadLine(known.line, str(error)))
    texts = [prompt for _, _, prompt, _ in rendered]
    whole = [replace(prompt, text=prompt.text + answer) for _, _, prompt, answer in rendered if answer]
    ids = tokens.encode([*texts, *whole])
    held = iter(ids[len(texts) :])
    for (place, asked, prompt, answer), prompt_ids in zip(rendered, ids, strict=False):
        if not len(prompt_ids):
            refused.append(BadLine(asked.line, "gives no tokens"))
            continue
        kept = next(held) if answer else prompt_ids
        yield place, Sent(asked, prompt, prompt_ids, answer, held_after(tokens, asked, prompt_ids, answer, kept))


def held_after(
    tokens: Tokens, asked: Asked, prompt: NDArray[np.int32], emitted: str, whole: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Prompt and answer less one token. An answer as text ends with the end token, which is the one less."""
    if asked.answer_ids is not None:
        return np.concatenate([prompt, np.asarray(asked.answer_ids[:-1], np.int32)])
    if not emitted or common_tokens(prompt, whole) == len(prompt):
        return whole
    # Encoded in one go it would join with the prompt, which the model had read by then.
    return np.concatenate([prompt, tokens.encode([Rendered(emitted)])[0]])


def emitted(tokens: Tokens, asked: Asked, prompt: Rendered) -> str:
    """What the model wrote after the prompt, as far as its text tells: without the end token."""
    answer = asked.answer
    if asked.answer_ids is not None:
        return tokens.decode(asked.answer_ids[:-1])
    if answer is None:
        return ""
    if (answer.reasoning or answer.tool_calls) and (own := _as_template_writes(tokens, asked.request, answer, prompt)):
        return own
    calls = "".join(f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in answer.tool_calls)
    if not answer.reasoning:
        return answer.content + calls
    opened = prompt.text.rstrip().endswith("<think>")
    return f"{'' if opened else '<think>' + chr(10)}{answer.reasoning}\n</think>\n\n{answer.content}{calls}"


def _as_template_writes(tokens: Tokens, request: TemplateRequest, answer: TemplateMessage, prompt: Rendered) -> str:
    """Reasoning and calls of tools as the template writes them for the latest answer; "" where it leaves some out."""
    try:
        text = tokens.render(replace(request, messages=(*request.messages, answer)), answered=True).text
    except InvalidRequest:
        return ""
    if not text.startswith(prompt.text):
        return ""
    own = text[len(prompt.text) :]
    own = own.split(tokens.end)[0] if tokens.end else own
    parts = [answer.reasoning, answer.content, *(call.name for call in answer.tool_calls)]
    return own if all(part.strip() in own for part in parts) else ""


def reuse_of(tokens: Tokens, before: Sent | None, now: Sent, pages: Sequence[int]) -> TurnReuse:
    """What one request finds of what the one before left."""
    prompt = len(now.ids)
    if before is None:
        return TurnReuse(
            prompt, 0, 0, {str(page): 0 for page in pages}, 0, first_request(tokens, now.ids), False, now.asked.line
        )
    held = len(before.held)
    shared = common_tokens(before.held, now.ids)
    most = min(shared, held, prompt - 1)
    again = max(0, min(held, prompt - 1) - shared)
    miss: Miss | None = explain(tokens, before, now, shared) if again else None
    assumed = before.asked.answer is not None and before.asked.answer_ids is None
    reused = {str(page): most // page * page for page in pages}
    return TurnReuse(prompt, held, shared, reused, again, miss, assumed, now.asked.line)


def common_tokens(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Length of the longest common beginning."""
    length = min(len(one), len(other))
    differ = (one[:length] != other[:length]).nonzero()[0]
    return int(differ[0]) if len(differ) else length
