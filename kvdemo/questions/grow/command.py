"""kvdemo grow: the switches of "How does it grow?"."""

from __future__ import annotations

from typing import Annotated

import typer

from kvdemo.experiments.switches import TWO, Rounds, Strategies, lengths
from kvdemo.questions.grow.spec import GrowthSpec

__all__ = ["grow"]


def grow(
    prompt: Annotated[str, typer.Option(help="text that is cut or repeated to each length")] = "The red cat was",
    longest: Annotated[int, typer.Option(help="longest request allowed, tokens, the answer included")] = 512,
    prompt_lengths: Annotated[str, typer.Option(metavar="N,N,...", help="tokens of the prompts")] = "",
    answer_lengths: Annotated[str, typer.Option(metavar="N,N,...", help="tokens of the answers")] = "",
    strategy: Strategies = None,
    rounds: Rounds = 1,
    time_budget: Annotated[float, typer.Option(help="s; longer requests are left out after it")] = 300.0,
) -> GrowthSpec:
    """How does it grow? The same comparison at several lengths of prompt and answer, the shortest first.

    Ctrl-C stops and keeps what was done.
    """
    return GrowthSpec(
        prompt=prompt,
        strategies=tuple(strategy or TWO),
        prompt_tokens=lengths("prompt_lengths", prompt_lengths),
        new_tokens=lengths("answer_lengths", answer_lengths),
        longest_tokens=longest,
        rounds=rounds,
        time_budget_s=time_budget,
    )
