"""kvdemo prefix: the switches of "Does a shared prefix pay?"."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.input_files import read_text
from kvdemo.experiments.switches import NewTokens, Strategy
from kvdemo.facts.requests import checked_int
from kvdemo.questions.prefix.spec import MAX_QUESTIONS, PrefixSpec

__all__ = ["prefix"]


def prefix(
    file: Annotated[Path, typer.Argument(help="the system prompt that all questions share, as text")],
    question: Annotated[list[str] | None, typer.Option(help="asked after it; repeat it")] = None,
    strategy: Strategy = "dynamic",
    max_new_tokens: NewTokens = 64,
    rounds: Annotated[int, typer.Option(help="every question so many times")] = 1,
    time_budget: Annotated[float | None, typer.Option(help="s; questions are left out after it")] = None,
    stop_at_end: Annotated[bool, typer.Option(help="end an answer at its end token")] = False,
) -> PrefixSpec:
    """Does a shared prefix pay? The same questions after one long beginning, processed every time or once and kept.

    Ctrl-C stops and keeps what was done.
    """
    if not question:
        raise InvalidRequest("question", "ask at least one: --question TEXT")
    return PrefixSpec(
        system_prompt=read_text("file", file),
        questions=tuple(question) * checked_int("rounds", rounds, 1, MAX_QUESTIONS),
        strategy=strategy,
        max_new_tokens=max_new_tokens,
        fixed_length=not stop_at_end,
        time_budget_s=time_budget,
    )
