"""kvdemo endpoint: the switches of "Is my endpoint caching?"."""

from __future__ import annotations

from typing import Annotated

import typer

from kvdemo.questions.endpoint.spec import REQUESTS, SECONDS, TOKENS, EndpointSpec

__all__ = ["endpoint"]


def endpoint(
    requests: Annotated[int, typer.Option(metavar="N", help="the most that are sent")] = REQUESTS,
    tokens: Annotated[int, typer.Option(metavar="N", help="the most, prompts and answers together")] = TOKENS,
    seconds: Annotated[float, typer.Option(metavar="S", help="the most that it takes")] = SECONDS,
) -> EndpointSpec:
    """Is my endpoint caching? By times alone: does it use a KV cache, reuse prefixes, serve requests together?

    Each is in use, not in use, or cannot be told. Ctrl-C stops and keeps what was done.
    """
    return EndpointSpec(requests, tokens, seconds)
