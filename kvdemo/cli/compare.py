"""python -m kvdemo compare: is it faster, how does it grow, on my prompts, does a shared prefix pay."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from kvdemo.cli import questions
from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.cli.options import JsonTo, Model, NewTokens, System
from kvdemo.cli.results import print_result
from kvdemo.cli.session import OWNER, last, loaded_backend, settings_for, stopping_on_ctrl_c
from kvdemo.errors import KvdemoError
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.results import ComparisonResult
from kvdemo.questions.documents import AnyResult

__all__ = ["compare"]

REPORT_ENDINGS = (".html", ".htm", ".md")


def compare(
    prompt: Annotated[
        str, typer.Option(help="text that every strategy continues; with --grow cut or repeated to each length")
    ] = questions.PROMPT,
    as_chat: Annotated[
        bool | None,
        typer.Option("--chat/--text", help="send prompts as chat messages (default with --prompts) or as text"),
    ] = None,
    system: System = "",
    max_new_tokens: NewTokens = 64,
    strategy: Annotated[list[str] | None, typer.Option(help="repeat it; the first is the baseline")] = None,
    rounds: Annotated[int, typer.Option(help="every strategy once in each; six for an interval")] = 1,
    time_budget: Annotated[
        float | None, typer.Option(help="s; one prompt: go on until the answer is clear; else: the end (--grow: 300)")
    ] = None,
    stop_at_end: Annotated[bool, typer.Option(help="end an answer at its end token")] = False,
    grow: Annotated[bool, typer.Option("--grow", help="how does it grow? by length of prompt and answer")] = False,
    longest: Annotated[
        int | None, typer.Option(help="--grow, --prompts: longest request allowed, tokens (--grow: 512)")
    ] = None,
    prompt_lengths: Annotated[str | None, typer.Option(metavar="N,N,...", help="--grow: tokens of the prompts")] = None,
    answer_lengths: Annotated[str | None, typer.Option(metavar="N,N,...", help="--grow: tokens of the answers")] = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|representative", help="on my prompts? .txt, .json(l), .csv or .tsv; or the shipped set"
        ),
    ] = None,
    shared_prefix: Annotated[
        Path | None, typer.Option(metavar="FILE", help="does a shared prefix pay? the system prompt that all share")
    ] = None,
    question: Annotated[list[str] | None, typer.Option(help="--shared-prefix: asked after it; repeat it")] = None,
    model: Model = None,
    json_to: JsonTo = None,
    report: Annotated[str | None, typer.Option(metavar="FILE.html|FILE.md", help="write a report for others")] = None,
    csv: Annotated[str | None, typer.Option(metavar="FILE", help="write one row per run")] = None,
) -> None:
    """Two or more cache strategies side by side: on one prompt, on many, at many lengths, or after a shared prefix.

    Ctrl-C stops and keeps what was done.
    """
    asked = questions.asked(
        prompt=prompt,
        as_chat=as_chat,
        system=system,
        max_new_tokens=max_new_tokens,
        strategies=tuple(strategy or ()),
        rounds=rounds,
        time_budget_s=time_budget,
        fixed_length=not stop_at_end,
        grow=grow,
        longest=longest,
        prompt_lengths=prompt_lengths,
        answer_lengths=answer_lengths,
        prompts=prompts,
        shared_prefix=shared_prefix,
        questions=tuple(question or ()),
    )
    check_targets(
        {"json": (json_to, ANY_ENDING), "csv": (csv, (".csv",)), "report": (report, REPORT_ENDINGS)},
        {"prompts": prompts, "shared_prefix": shared_prefix},
    )
    decision, change = None, None
    with loaded_backend(model, questions.strategies_of(asked)) as backend, stopping_on_ctrl_c(backend) as interruption:
        if report is not None:  # before anything runs: the files that it reads may be beyond reading
            with _without("report: what is in force is not known"):
                decision = backend.inspect(InspectSpec())
        result = last(questions.steps(backend, asked, OWNER))
        if decision is not None:
            with _without("report: how to keep a strategy is not known"):
                change = _kept(backend, result)
    markdown = report is not None and report.lower().endswith(".md")
    written = write_all(
        {
            "json": (json_to, lambda: _document(result)),
            "csv": (csv, lambda: _rows(result)),
            "report": (report, lambda: _report(result, decision, change, markdown=markdown)),
        }
    )
    if json_to != "-":
        print_result(result)
        if report is not None and isinstance(result, ComparisonResult):
            _print_own_command(result, settings_for(model).model)
    if interruption.happened:
        raise typer.Exit(130)
    if not written or any(run.status == "failed" for run in questions.runs_of(result)):
        raise typer.Exit(1)


def _print_own_command(result: ComparisonResult, given: str | None) -> None:
    """A report leaves open where a model lies; on this machine the command can say it."""
    from kvdemo.report.reproduce import command_of, to_fill_in

    if given is not None and to_fill_in(result.model):
        print(f"The report does not say where the model lies. Here, this repeats it:\n{command_of(result, given)}")


@contextmanager
def _without(what: str) -> Iterator[None]:
    """Go on without what cannot be had; a person is told."""
    try:
        yield
    except KvdemoError as error:
        print(f"kvdemo: {what}: {error}", file=sys.stderr)


def _kept(backend: Any, result: AnyResult) -> CacheAdvice | None:
    """Keep this, Go back: for the strategy that was fastest on one prompt; None where nothing was compared."""
    chosen = questions.fastest(result)
    if chosen is None or not isinstance(result, ComparisonResult):
        return None
    call = json.dumps({"max_new_tokens": result.spec.max_new_tokens, "do_sample": False})
    prompt_tokens = max(run.prompt_tokens for run in result.runs)
    advice: CacheAdvice = backend.advice(
        chosen, num_tokens=prompt_tokens + result.spec.max_new_tokens, spec=InspectSpec(generate_kwargs=call)
    )
    return advice


def _report(result: AnyResult, decision: CacheDecision | None, change: Any, *, markdown: bool) -> str:
    from kvdemo.report.report import report_html, report_markdown

    return (report_markdown if markdown else report_html)(result, decision=decision, change=change)


def _document(result: AnyResult) -> dict[str, Any]:
    from kvdemo.questions.documents import any_document

    return any_document(result)


def _rows(result: AnyResult) -> str:
    from kvdemo.report.spreadsheet import csv_file

    return csv_file(result)
