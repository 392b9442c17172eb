"""python -m kvdemo chat."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Any

import typer

from kvdemo.cli.answer_line import answer_line
from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.cli.session import CHATTING, OWNER, endpoint_from, loaded_backend, stopping_on_ctrl_c
from kvdemo.cli.streams import failure_of
from kvdemo.errors import RunFailed
from kvdemo.experiments.switches import JsonTo, KeyEnv, Model, NewTokens, Seed, Strategy, System, Temperature, Url
from kvdemo.facts.events import Finished, PromptEncoded, TokenEmitted, Waiting
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message, SamplingParams

__all__ = ["chat"]


def chat(
    prompt: Annotated[str, typer.Argument(help="your question")],
    system: System = "",
    max_new_tokens: NewTokens = 256,
    strategy: Strategy = "dynamic",
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    model: Model = None,
    json_to: JsonTo = None,
    url: Url = None,
    key_env: KeyEnv = None,
) -> None:
    """Ask the model and watch the answer arrive."""
    turns = (*((Message("system", system),) if system else ()), Message("user", prompt))
    sampling = SamplingParams(temperature=temperature, seed=seed)
    endpoint = endpoint_from(model, url, key_env)
    check_targets({"json": (json_to, ANY_ENDING)})
    out = sys.stderr if json_to == "-" else sys.stdout
    record, failed, written = None, None, True
    opened = loaded_backend(model, (strategy,)) if endpoint is None else loaded_backend(None, (), needs="endpoint")
    with opened as backend, stopping_on_ctrl_c(backend) as interruption:
        events = backend.chat(
            turns,
            max_new_tokens=max_new_tokens,
            strategy=strategy,
            sampling=sampling,
            owner=OWNER,
            reader=CHATTING,
            endpoint=endpoint,
        )
        try:
            for event in events:
                if isinstance(event, PromptEncoded):
                    for words in event.notices:
                        print(f"Note: {words}", file=sys.stderr)
                elif isinstance(event, TokenEmitted | Finished):
                    print(event.text, end="", flush=True, file=out)
                elif isinstance(event, Waiting):
                    print(f"Waiting, place {event.place}", file=sys.stderr)
                if isinstance(event, Finished):
                    record = event.record
                elif json_to is None and failure_of(out) is not None:  # nobody will ever see the rest
                    break
        except RunFailed as error:
            record, failed = error.record, error
    if record is not None and json_to is not None:
        written = write_all({"json": (json_to, partial(_document, record))})
    if failed is not None:
        raise failed
    if record is not None:
        print(file=out)
        if endpoint is not None:
            for words in record.notices:
                print(f"Note: {words}", file=sys.stderr)
        print(answer_line(record), file=sys.stderr)
    if interruption.happened:
        raise typer.Exit(130)
    if not written:
        raise typer.Exit(1)


def _document(record: RunRecord) -> dict[str, Any]:
    from kvdemo.experiments.documents import run_document

    return run_document(record)
