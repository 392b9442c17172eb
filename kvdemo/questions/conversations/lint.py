"""A model's chat template by itself: does every further turn begin with what the turn before leaves in a cache?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from kvdemo.experiments.bench import Tokens
from kvdemo.facts.templates import TemplateMessage, TemplateRequest, ToolCall
from kvdemo.questions.conversations.reuse import reuse_of, sent_together
from kvdemo.questions.conversations.spec import Asked, BadLine, Check, Lint

__all__ = ["lint"]

TOOL = (
    '{"type": "function", "function": {"name": "look_up", "description": "Looks up a word.", "parameters": '
    '{"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}}}'
)
SYSTEM = TemplateMessage("system", "You answer in a few words.")
ASKED = TemplateMessage("user", "Name three planets.")
ANSWER = TemplateMessage("assistant", "Mars, Venus and Earth.")
NEXT = TemplateMessage("user", "And a moon?")
DAYS = ("2026-01-02T03:04:05", "2026-02-03T04:05:06")


def lint(tokens: Tokens, pages: Sequence[int] = (1,)) -> Lint:
    """Each case yes or no, with its first difference."""
    turns = _turns(ASKED, ANSWER, NEXT)
    called = TemplateMessage("assistant", tool_calls=(ToolCall("look_up", '{"word": "moon"}', "call00001"),))
    tool_result = TemplateMessage("tool", "A moon goes around a planet.", name="look_up", call_id="call00001")
    with_tools = (
        Asked(TemplateRequest((ASKED,), (TOOL,)), called),
        Asked(TemplateRequest((ASKED, called, tool_result), (TOOL,)), ANSWER),
        Asked(TemplateRequest((ASKED, called, tool_result, ANSWER, NEXT), (TOOL,))),
    )
    cases = {
        "over turns": turns,
        "with a system prompt": _turns(SYSTEM, ASKED, ANSWER, NEXT),
        "with reasoning": _turns(ASKED, replace(ANSWER, reasoning="The user wants planets."), NEXT),
        "with tool calls": with_tools,
        "after a stopped answer": _turns(ASKED, TemplateMessage("assistant", "Mars, Venus and "), NEXT),
    }
    if tokens.prints_time:
        cases["on another day"] = tuple(
            replace(one, request=replace(one.request, at=day)) for one, day in zip(turns, DAYS, strict=True)
        )
    checks = tuple(_check(tokens, name, asked, pages) for name, asked in cases.items())
    return Lint(checks[0].stable, checks)


def _turns(*messages: TemplateMessage) -> tuple[Asked, ...]:
    """An answer asked for, and the question after it."""
    answer = next(at for at, one in enumerate(messages) if one.role == "assistant")
    return Asked(TemplateRequest(messages[:answer]), messages[answer]), Asked(TemplateRequest(messages))


def _check(tokens: Tokens, name: str, asked: Sequence[Asked], pages: Sequence[int]) -> Check:
    refused: list[BadLine] = []
    batch = [(0, one, at == len(asked) - 1) for at, one in enumerate(asked)]
    sent = [one for _, one in sent_together(tokens, batch, DAYS[0] if tokens.prints_time else "", refused)]
    if refused:
        return Check(name, None, note=refused[0].why)
    turns = [reuse_of(tokens, before, now, pages) for before, now in itertools.pairwise(sent)]
    miss = next((turn.miss for turn in turns if turn.miss is not None), None)
    return Check(name, miss is None, miss)
