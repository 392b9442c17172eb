"""python -m kvdemo chat."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kvdemo.commands.files import check_target, write_json
from kvdemo.commands.options import JsonTo, Model, NewTokens, Seed, Strategy, System, Temperature
from kvdemo.commands.session import OWNER, loaded_backend, stopping_on_ctrl_c
from kvdemo.facts.events import Finished, PromptEncoded, TokenEmitted, Waiting
from kvdemo.facts.requests import Message, SamplingParams
from kvdemo.terminal.answer import answer_line

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
) -> None:
    """Ask the model and watch the answer arrive."""
    turns = (*((Message("system", system),) if system else ()), Message("user", prompt))
    sampling = SamplingParams(temperature=temperature, seed=seed)
    check_target("json", json_to)
    out = sys.stderr if json_to == "-" else sys.stdout
    with loaded_backend(model, (strategy,)) as backend, stopping_on_ctrl_c(backend) as interruption:
        events = backend.chat(turns, max_new_tokens=max_new_tokens, strategy=strategy, sampling=sampling, owner=OWNER)
        for event in events:
            if isinstance(event, PromptEncoded):
                for words in event.notices:
                    print(f"Note: {words}", file=sys.stderr)
            elif isinstance(event, TokenEmitted | Finished):
                print(event.text, end="", flush=True, file=out)
            elif isinstance(event, Waiting):
                print(f"Waiting, place {event.place}", file=sys.stderr)
            if isinstance(event, Finished):
                print(file=out)
                print(answer_line(event.record), file=sys.stderr)
                if json_to is not None:
                    from kvdemo.experiments.documents import run_document

                    write_json(json_to, run_document(event.record))
    if interruption.happened:
        raise typer.Exit(130)
