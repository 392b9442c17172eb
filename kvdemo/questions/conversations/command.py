"""kvdemo conversations: the switches of "Will my conversations reuse it?"."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvdemo.experiments.input_files import read_bytes
from kvdemo.questions.conversations.reading import read_conversations
from kvdemo.questions.conversations.spec import PAGE_SIZES, ConversationsSpec

__all__ = ["conversations"]


def conversations(
    file: Annotated[
        Path | None, typer.Argument(help="JSON lines, a conversation or a request each; none: the template alone")
    ] = None,
    page_size: Annotated[
        list[int] | None, typer.Option(help="tokens of a page, beside 1; repeat it; default: 16, 128, 256")
    ] = None,
) -> ConversationsSpec:
    """Will my conversations reuse the cache? For each request what would be held, what is shared, and why not more.

    Needs the model's tokenizer only; the conversations stay on this machine. A line is {"messages": [...]} with optional
    tools, id, time and system, a list of messages, or {"prompt": "..."}. One that ends with an answer is a whole conversation.
    """
    talks, bad = read_conversations(read_bytes("file", file)) if file is not None else ((), ())
    pages = tuple(dict.fromkeys((1, *page_size))) if page_size else PAGE_SIZES
    return ConversationsSpec(talks, pages, bad=bad)
