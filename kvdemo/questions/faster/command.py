"""kvdemo compare: the switches of "Is it faster?"."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import CompareSpec
from kvdemo.experiments.switches import TWO, NewTokens, Rounds, Strategies, System
from kvdemo.questions.faster.words import DEMONSTRATION_PROMPT

__all__ = ["compare"]


def compare(
    prompt: Annotated[str, typer.Option(help="text that every strategy continues")] = DEMONSTRATION_PROMPT,
    as_chat: Annotated[bool, typer.Option("--chat/--text", help="send it as a chat message, or as text")] = False,
    system: System = "",
    max_new_tokens: NewTokens = 64,
    strategy: Strategies = None,
    rounds: Rounds = 1,
    time_budget: Annotated[float | None, typer.Option(help="s; go on until the answer is clear")] = None,
    stop_at_end: Annotated[bool, typer.Option(help="end an answer at its end token")] = False,
    noise: Annotated[
        bool,
        typer.Option(
            "--noise", help="how noisy is this machine? run the first strategy beside itself, alone or with others"
        ),
    ] = False,
    norms: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER,HEAD", help="record the lengths of the keys and values there, after the timed runs"
        ),
    ] = None,
) -> CompareSpec:
    """Is it faster? Two or more cache strategies side by side on one prompt.

    Ctrl-C stops and keeps what was done.
    """
    return CompareSpec(
        prompt=prompt,
        strategies=tuple(strategy or (TWO[1:] if noise else TWO)),
        max_new_tokens=max_new_tokens,
        rounds=rounds,
        as_chat=as_chat,
        system_prompt=system,
        fixed_length=not stop_at_end,
        time_budget_s=time_budget,
        noise=noise,
        norms=None if norms is None else layer_and_head(norms),
    )


def layer_and_head(text: str) -> tuple[int, int]:
    """ "3,1" -> (3, 1); InvalidRequest otherwise."""
    found = re.fullmatch(r"\s*(\d{1,5})\s*,\s*(\d{1,5})\s*", text, re.ASCII)
    if found is None:
        raise InvalidRequest("norms", "write a layer and a KV head, both from 0: 3,1")
    return int(found[1]), int(found[2])
