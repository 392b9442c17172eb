"""A question of the table as a command: its own switches, and those that all have. Opens the backend, prints, writes files."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.cli.results import print_result
from kvdemo.cli.session import (
    MEASURING,
    OWNER,
    endpoint_from,
    last,
    loaded_backend,
    settings_for,
    stopping_on_ctrl_c,
)
from kvdemo.errors import KvdemoError
from kvdemo.experiments.question import AnyResult, Needs, Question
from kvdemo.experiments.switches import JsonTo, KeyEnv, Model, Url
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.endpoint import Endpoint
from kvdemo.questions.documents import any_document
from kvdemo.questions.table import Table
from kvdemo.settings import TINY_WINDOW

if TYPE_CHECKING:
    from kvdemo.backend.protocol import Backend

__all__ = ["command_of"]

Follow = Callable[[Iterator[Any]], Any]
REPORT_ENDINGS = (".html", ".htm", ".md")

ReportTo = Annotated[str | None, typer.Option(metavar="FILE.html|FILE.md", help="write a report for others")]
CsvTo = Annotated[str | None, typer.Option(metavar="FILE", help="write one row per run")]
COMMON: dict[str, tuple[Any, Any]] = {
    "model": (Model, None),
    "json_to": (JsonTo, None),
    "report": (ReportTo, None),
    "csv": (CsvTo, None),
}
AT_ENDPOINT: dict[str, tuple[Any, Any]] = {"url": (Url, None), "key_env": (KeyEnv, None)}


def command_of(question: Question[Any, Any], table: Table, follow: Follow = last) -> Callable[..., None]:
    """What typer makes a command of. follow: takes the question's steps to their result."""
    ask = question.ask()
    own = inspect.signature(ask, eval_str=True).parameters

    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name in COMMON}
        endpoint = endpoint_from(common["model"], **{name: given.pop(name, None) for name in AT_ENDPOINT})
        sources = {name: value for name, value in given.items() if isinstance(value, Path)}
        answer(question, ask(**given), table, sources, follow, endpoint=endpoint, **common)

    switches = COMMON | (AT_ENDPOINT if question.at_endpoint is not None else {})
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in switches.items()
    ]
    run.__signature__ = inspect.Signature([*own.values(), *common])  # type: ignore[attr-defined]
    run.__doc__ = ask.__doc__
    run.__name__ = question.command
    return run


def answer(
    question: Question[Any, Any],
    spec: Any,
    table: Table,
    sources: Mapping[str, Path],
    follow: Follow,
    *,
    model: str | None,
    json_to: str | None,
    report: str | None,
    csv: str | None,
    endpoint: Endpoint | None = None,
) -> None:
    """Ask it, write what is asked for, then print the answer. Whatever can refuse is asked before anything runs.

    sources: the files that it reads, by field; none of them is written over."""
    check_targets(
        {"json": (json_to, ANY_ENDING), "csv": (csv, (".csv",)), "report": (report, REPORT_ENDINGS)},
        sources,
    )
    decision, change = None, None
    with (
        loaded_backend(*asked_of(question, spec, model, endpoint, table)) as backend,
        stopping_on_ctrl_c(backend) as interruption,
    ):
        if (
            report is not None and endpoint is None
        ):  # before anything runs: the files that it reads may be beyond reading
            with without("report: what is in force is not known"):
                decision = backend.inspect(InspectSpec())
        result: AnyResult = follow(backend.ask(spec, owner=OWNER, reader=MEASURING, endpoint=endpoint))
        if decision is not None:
            with without("report: how to keep a strategy is not known"):
                change = kept(backend, question, result)

    def page() -> str:
        from kvdemo.report.report import report_html, report_markdown

        form = report_markdown if report is not None and report.lower().endswith(".md") else report_html
        return form(result, decision=decision, change=change, table=table)

    def rows() -> str:
        from kvdemo.report.spreadsheet import csv_file

        return csv_file(result, table)

    written = write_all(
        {"json": (json_to, lambda: any_document(result, table)), "csv": (csv, rows), "report": (report, page)}
    )
    if json_to != "-":
        print_result(question, result)
        print(verdict_line(result, decision, change, table))
        if report is not None:
            print_own_command(question, result, settings_for(model).model)
    if interruption.happened:
        raise typer.Exit(130)
    if not written or any(run.status == "failed" for _, run in question.runs(result)):
        raise typer.Exit(1)


def asked_of(
    question: Question[Any, Any], spec: Any, model: str | None, endpoint: Endpoint | None, table: Table
) -> tuple[str | None, tuple[str, ...], Table, Needs]:
    """What the backend is opened with: of a server, --model is one that it lists, and nothing is loaded here."""
    if endpoint is not None:
        return None, (), table, "endpoint"
    return model, question.strategies(spec), table, question.needs


def verdict_line(result: AnyResult, decision: CacheDecision | None, change: CacheAdvice | None, table: Table) -> str:
    """Ready to decide? As far as this one result goes; the page collects several."""
    from kvdemo.report.contents import readiness_of

    found = readiness_of(result, decision, change, table)
    return f"Ready to decide? {found.sentence} {found.because}"


def print_own_command(question: Question[Any, Any], result: AnyResult, given: str | None) -> None:
    """A report leaves open where a model lies; on this machine the command can say it."""
    from kvdemo.report.contents import command_line
    from kvdemo.report.reproduce import to_fill_in

    command = command_line(question, result, given)
    if given not in (None, TINY_WINDOW) and command and to_fill_in(result.model):
        print(f"The report does not say where the model lies. Here, this repeats it:\n{command}")


@contextmanager
def without(what: str) -> Iterator[None]:
    """Go on without what cannot be had; a person is told."""
    try:
        yield
    except KvdemoError as error:
        print(f"kvdemo: {what}: {error}", file=sys.stderr)


def kept(backend: Backend, question: Question[Any, Any], result: AnyResult) -> CacheAdvice | None:
    """Keep this, Go back: for the strategy that was fastest; None where nothing was compared."""
    one = question.comparison(result)
    if one is None or (chosen := one.fastest) is None:
        return None
    call = json.dumps({"max_new_tokens": one.spec.max_new_tokens, "do_sample": False})
    prompt_tokens = max(run.prompt_tokens or 0 for run in one.runs)
    return backend.advice(
        chosen, num_tokens=prompt_tokens + one.spec.max_new_tokens, spec=InspectSpec(generate_kwargs=call)
    )
