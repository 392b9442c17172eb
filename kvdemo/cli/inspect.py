"""python -m kvdemo inspect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvdemo.cli.decision_lines import print_decision
from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.cli.session import settings_for
from kvdemo.experiments.input_files import read_text
from kvdemo.experiments.switches import JsonTo, Model
from kvdemo.facts.decision import InspectSpec
from kvdemo.facts.requests import checked_choice

__all__ = ["inspect"]


def inspect(
    generate_kwargs: Annotated[str, typer.Option(metavar="JSON", help="arguments of your call of generate")] = "{}",
    config: Annotated[Path | None, typer.Option(help="a config.json; default: that of the model")] = None,
    generation_config: Annotated[Path | None, typer.Option(help="a generation_config.json")] = None,
    expect: Annotated[str | None, typer.Option(help="cached or uncached: exit 1 when it is not so")] = None,
    model: Model = None,
    json_to: JsonTo = None,
) -> None:
    """Which cache will generate use, and who decided: the call, a file, the library, or the model?"""
    from kvdemo.backend import Backend

    if expect is not None:
        checked_choice("expect", expect, ("cached", "uncached"))
    check_targets({"json": (json_to, ANY_ENDING)}, {"config": config, "generation_config": generation_config})
    spec = InspectSpec(
        generate_kwargs=generate_kwargs,
        config=read_text("config", config) if config is not None else None,
        generation_config=read_text("generation_config", generation_config) if generation_config is not None else None,
    )
    backend = Backend(settings_for(model))
    try:
        decision = backend.inspect(spec)
    finally:
        backend.close()
    written = write_all({"json": (json_to, decision.document)})
    if json_to != "-":
        print_decision(decision)
    if expect is not None and decision.value is not (expect == "cached"):
        print(f"kvdemo: expected {expect}, and it is not so", file=sys.stderr)
        raise typer.Exit(1)
    if not written:
        raise typer.Exit(1)
