"""Switches that several commands share, and what they are read with. Only a command imports typer."""

from __future__ import annotations

from typing import Annotated

import typer

from kvdemo.errors import InvalidRequest

__all__ = [
    "TWO",
    "JsonTo",
    "KeyEnv",
    "Model",
    "NewTokens",
    "Rounds",
    "Seed",
    "Strategies",
    "Strategy",
    "System",
    "Temperature",
    "Url",
    "lengths",
]

TWO = ("none", "dynamic")

Model = Annotated[
    str | None, typer.Option(help="hub id, local folder, .gguf file or tiny-window; default: SmolLM2-135M-Instruct")
]
JsonTo = Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="write the result as JSON; - for stdout")]
Url = Annotated[
    str | None, typer.Option(metavar="URL", help="ask an OpenAI-compatible server; --model: one that it lists")
]
KeyEnv = Annotated[
    str | None, typer.Option(metavar="NAME", help="the environment variable that holds the key for that server")
]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", help="longest answer, tokens")]
Strategy = Annotated[str, typer.Option(help="key of a cache strategy")]
Strategies = Annotated[list[str] | None, typer.Option("--strategy", help="repeat it; the first is the baseline")]
Rounds = Annotated[int, typer.Option(help="every strategy once in each; six for an interval")]
System = Annotated[str, typer.Option("--system", help="system prompt")]
Temperature = Annotated[float, typer.Option(help="0: always the likeliest token")]
Seed = Annotated[int, typer.Option(help="of the sampling")]


def lengths(field: str, text: str) -> tuple[int, ...]:
    """ "16,64" as numbers; InvalidRequest that names the field otherwise."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 12 for part in parts):
        raise InvalidRequest(field, f"must be whole numbers with commas between them, not {text[:40]!r}")
    return tuple(int(part) for part in parts)
