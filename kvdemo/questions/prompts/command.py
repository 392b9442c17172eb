"""kvdemo prompts: the switches of "On my prompts?"."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvdemo.experiments.input_files import read_bytes
from kvdemo.experiments.prompt_file import PromptRow, kind_of, read_prompt_file, representative
from kvdemo.experiments.switches import TWO, NewTokens, Rounds, Strategies
from kvdemo.questions.prompts.spec import PromptSetSpec

__all__ = ["prompts"]


def prompts(
    prompts: Annotated[
        Path,
        typer.Argument(metavar="FILE|representative", help=".txt, .json(l), .csv or .tsv; or the set that is shipped"),
    ],
    as_chat: Annotated[bool, typer.Option("--chat/--text", help="send prompts as chat messages, or as text")] = True,
    max_new_tokens: NewTokens = 64,
    strategy: Strategies = None,
    rounds: Rounds = 1,
    longest: Annotated[int | None, typer.Option(help="longest request allowed, tokens")] = None,
    time_budget: Annotated[float | None, typer.Option(help="s; prompts are left out after it")] = None,
    stop_at_end: Annotated[bool, typer.Option(help="end an answer at its end token")] = False,
) -> PromptSetSpec:
    """On my prompts? The comparison on each of many prompts.

    Ctrl-C stops and keeps what was done.
    """
    return PromptSetSpec(
        prompts=_rows(prompts),
        strategies=tuple(strategy or TWO),
        max_new_tokens=max_new_tokens,
        rounds=rounds,
        as_chat=as_chat,
        fixed_length=not stop_at_end,
        longest_tokens=longest,
        time_budget_s=time_budget,
    )


def _rows(file: Path) -> tuple[PromptRow, ...]:
    if str(file) == "representative":
        return representative()
    found = read_prompt_file(read_bytes("prompts", file), kind_of(file.name))
    if found.unused:
        print(f"Note: {file.name} holds what is not used: {', '.join(found.unused)}", file=sys.stderr)
    return found.rows
