"""python -m kvdemo memory: predicted for any model, or measured on the loaded one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.cli.plan_lines import print_measured, print_plan
from kvdemo.cli.session import MEASURING, OWNER, loaded_backend, settings_for, stopping_on_ctrl_c
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.input_files import read_text
from kvdemo.experiments.switches import JsonTo
from kvdemo.facts.plans import Budget, MeasuredPoint, MemoryRequest
from kvdemo.facts.requests import MeasureSpec

__all__ = ["memory"]


def memory(
    seq_len: Annotated[int, typer.Option(help="tokens of one request")] = 4096,
    batch_size: Annotated[int, typer.Option(help="requests at once")] = 1,
    config: Annotated[Path | None, typer.Option(help="a config.json; no weights are needed")] = None,
    model: Annotated[str | None, typer.Option(help="a known model, a hub id, a local folder or a .gguf file")] = None,
    cache_dtype: Annotated[str | None, typer.Option(help="bfloat16, float16, float32 or float8")] = None,
    weights_dtype: Annotated[
        str | None, typer.Option(help="the same, or int4; default: as the weights are published, or loaded here")
    ] = None,
    budget_gib: Annotated[
        float | None,
        typer.Option(help="memory there is, GiB; default: this machine's for a model to load here, 80 for others"),
    ] = None,
    keep_free: Annotated[float, typer.Option(help="share of the budget to leave free")] = 0.1,
    tensor_parallel: Annotated[int, typer.Option(help="accelerators that share the heads")] = 1,
    page_size: Annotated[int, typer.Option(help="tokens of a page, in an engine with a paged cache")] = 16,
    measure: Annotated[
        list[int] | None,
        typer.Option(help="load the model, fill caches of so many tokens and weigh them; repeat it", metavar="TOKENS"),
    ] = None,
    strategy: Annotated[list[str] | None, typer.Option(help="with --measure: which caches; repeat it")] = None,
    json_to: JsonTo = None,
) -> None:
    """What the cache of a model weighs, layer by layer: predicted exactly, or really filled and weighed."""
    check_targets({"json": (json_to, ANY_ENDING)}, {"config": config})
    if measure:
        if config is not None:
            raise InvalidRequest("measure", "needs a model with its weights: give --model, not --config")
        _measure(MeasureSpec(tuple(measure), tuple(strategy or ("dynamic", "static"))), model, json_to)
        return
    if strategy:
        raise InvalidRequest("strategy", "belongs to --measure")
    from kvdemo.backend import Backend

    if config is not None and model is not None:
        raise InvalidRequest("config", "give --config or --model, not both")
    backend = Backend(settings_for(None))
    try:
        geometry = backend.architecture_named(model, config=read_text("config", config) if config is not None else "")
        budget = Budget(budget_gib, "given") if budget_gib is not None else backend.usual_budget(geometry)
        request = MemoryRequest(
            seq_len=seq_len,
            batch_size=batch_size,
            cache_dtype=cache_dtype or geometry.dtype,
            weights_dtype=weights_dtype,
            budget_gib=budget.gib,
            budget_source=budget.source,
            keep_free=keep_free,
            tensor_parallel=tensor_parallel,
            page_tokens=page_size,
        )
        made = backend.plan_of(geometry, request)
    finally:
        backend.close()
    written = write_all({"json": (json_to, lambda: backend.plan_document(made))})
    if json_to != "-":
        print_plan(made)
    if not written:
        raise typer.Exit(1)


def _measure(spec: MeasureSpec, model: str | None, json_to: str | None) -> None:
    with loaded_backend(model, spec.strategies) as backend, stopping_on_ctrl_c(backend) as interruption:
        steps = backend.measure_memory(spec, owner=OWNER, reader=MEASURING)
        points = tuple(point for point in steps if isinstance(point, MeasuredPoint))
        document = backend.measured_document(points)
    written = write_all({"json": (json_to, lambda: document)})
    if json_to != "-":
        print_measured(points)
    if interruption.happened:
        raise typer.Exit(130)
    if not written:
        raise typer.Exit(1)
