"""kvdemo load: the switches of "With many at once?"."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvdemo.experiments.input_files import read_bytes
from kvdemo.experiments.prompt_file import PromptRow, kind_of, read_prompts, representative
from kvdemo.experiments.switches import NewTokens, lengths
from kvdemo.questions.load.spec import HERE, LoadSpec

__all__ = ["load"]

DEFAULT_PROMPT = "The red cat was"
DEFAULT_MODES = ("one-by-one", "padded", "continuous")


def load(
    prompts: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|representative]", help="prompts, taken in turn; or the set that is shipped"),
    ] = None,
    prompt: Annotated[str, typer.Option(help="of every request, where no file is given")] = DEFAULT_PROMPT,
    requests: Annotated[int, typer.Option(help="how many")] = 8,
    mode: Annotated[list[str] | None, typer.Option(help=f"repeat it: {', '.join(one.key for one in HERE)}")] = None,
    rate: Annotated[float | None, typer.Option(help="requests a second, Poisson gaps; default: all together")] = None,
    arrival_seed: Annotated[int, typer.Option(help="of the gaps")] = 0,
    as_chat: Annotated[bool, typer.Option("--chat/--text", help="send prompts as chat messages, or as text")] = False,
    max_new_tokens: NewTokens = 64,
    rounds: Annotated[int, typer.Option(help="every mode once in each; six for an interval")] = 1,
    page_size: Annotated[int, typer.Option(help="tokens of a page of the paged cache")] = 128,
    pages: Annotated[int | None, typer.Option(help="that there are; default: enough for all at once")] = None,
    target_ttft: Annotated[float | None, typer.Option(help="s from arrival to first token")] = None,
    target_request: Annotated[float | None, typer.Option(help="s from arrival to last token")] = None,
    sweep: Annotated[str, typer.Option(metavar="N,N,...", help="further numbers of requests")] = "",
    time_budget: Annotated[float | None, typer.Option(help="s; rounds are left out after it")] = None,
    stop_at_end: Annotated[bool, typer.Option(help="end an answer at its end token")] = False,
) -> LoadSpec:
    """With many at once? The same requests one by one, as a padded batch, and by continuous batching with a paged cache.

    Ctrl-C stops and keeps what was done.
    """
    return LoadSpec(
        prompts=_rows(prompts, prompt),
        requests=requests,
        modes=tuple(mode or DEFAULT_MODES),
        max_new_tokens=max_new_tokens,
        rate_per_s=rate,
        arrival_seed=arrival_seed,
        rounds=rounds,
        as_chat=as_chat,
        fixed_length=not stop_at_end,
        page_size=page_size,
        num_pages=pages,
        target_ttft_s=target_ttft,
        target_request_s=target_request,
        sweep=lengths("sweep", sweep),
        time_budget_s=time_budget,
    )


def _rows(file: Path | None, prompt: str) -> tuple[PromptRow, ...]:
    if file is None:
        return (PromptRow(prompt, "prompt"),)
    if str(file) == "representative":
        return representative()
    return read_prompts(read_bytes("prompts", file), kind_of(file.name))
