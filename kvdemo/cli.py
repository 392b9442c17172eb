"""python -m kvdemo chat|compare|memory|inspect: the same backend without a browser.

Exit 0: done; 1: a run failed; 2: wrong input, with one line on stderr. With --json - stdout holds one JSON document and
nothing else; whatever a person wants to read meanwhile goes to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from kvdemo import terminal
from kvdemo.errors import InvalidRequest, KvdemoError, ModelUnavailable
from kvdemo.facts.decision import InspectSpec
from kvdemo.facts.events import Finished, TokenEmitted, Waiting
from kvdemo.facts.model import Failed
from kvdemo.facts.plans import MemoryRequest
from kvdemo.facts.requests import CompareSpec, Message, SamplingParams, checked_choice
from kvdemo.facts.results import ComparisonResult
from kvdemo.settings import Settings

__all__ = ["main"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)

Model = Annotated[str | None, typer.Option(help="hub id, local folder or .gguf file; default: SmolLM2-135M-Instruct")]
JsonTo = Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="write the result as JSON; - for stdout")]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", help="longest answer, tokens")]
Strategy = Annotated[str, typer.Option(help="key of a cache strategy")]
System = Annotated[str, typer.Option("--system", help="system prompt")]
Temperature = Annotated[float, typer.Option(help="0: always the likeliest token")]
Seed = Annotated[int, typer.Option(help="of the sampling")]


@app.callback()
def about() -> None:
    """What a KV cache buys, and what it costs, on a real language model."""


@app.command()
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
    out = sys.stderr if json_to == "-" else sys.stdout
    with _backend(model, (strategy,)) as backend:
        events = backend.chat(turns, max_new_tokens=max_new_tokens, strategy=strategy, sampling=sampling, owner="cli")
        for event in events:
            if isinstance(event, TokenEmitted | Finished):
                print(event.text, end="", flush=True, file=out)
            elif isinstance(event, Waiting):
                print(f"Waiting, place {event.place}", file=sys.stderr)
            if isinstance(event, Finished):
                print(file=out)
                print(terminal.answer_line(event.record), file=sys.stderr)
                if json_to is not None:
                    from kvdemo.experiments.documents import run_document

                    _write_json(json_to, run_document(event.record))


@app.command()
def compare(
    prompt: Annotated[str, typer.Option(help="text that every strategy continues")] = "The red cat was",
    as_chat: Annotated[bool, typer.Option("--chat", help="send the prompt as a chat message")] = False,
    system: System = "",
    max_new_tokens: NewTokens = 64,
    strategy: Annotated[list[str] | None, typer.Option(help="repeat it; the first is the baseline")] = None,
    rounds: Annotated[int, typer.Option(help="every strategy once in each; six for an interval")] = 1,
    time_budget: Annotated[
        float | None, typer.Option(help="s; go on until the answer is clear or this has passed")
    ] = None,
    stop_at_end: Annotated[bool, typer.Option(help="end an answer at its end token")] = False,
    model: Model = None,
    json_to: JsonTo = None,
) -> None:
    """The same prompt with two or more cache strategies, side by side."""
    spec = CompareSpec(
        prompt=prompt,
        strategies=tuple(strategy or ("none", "dynamic")),
        max_new_tokens=max_new_tokens,
        rounds=rounds,
        as_chat=as_chat,
        system_prompt=system,
        fixed_length=not stop_at_end,
        time_budget_s=time_budget,
    )
    with _backend(model, spec.strategies) as backend:
        result = _last(backend.compare(spec, owner="cli"))
    assert isinstance(result, ComparisonResult)
    if json_to != "-":
        terminal.print_comparison(result)
    if json_to is not None:
        from kvdemo.experiments.documents import document

        _write_json(json_to, document(result))
    if any(run.status == "failed" for run in result.runs):
        raise typer.Exit(1)


@app.command()
def memory(
    seq_len: Annotated[int, typer.Option(help="tokens of one request")] = 4096,
    batch_size: Annotated[int, typer.Option(help="requests at once")] = 1,
    config: Annotated[Path | None, typer.Option(help="a config.json; no weights are needed")] = None,
    model: Annotated[str | None, typer.Option(help="a known model, a hub id, a local folder or a .gguf file")] = None,
    cache_dtype: Annotated[str | None, typer.Option(help="bfloat16, float16, float32 or float8")] = None,
    weights_dtype: Annotated[str | None, typer.Option(help="the same, or int4")] = None,
    budget_gib: Annotated[float | None, typer.Option(help="memory there is, GiB")] = None,
    keep_free: Annotated[float, typer.Option(help="share of the budget to leave free")] = 0.1,
    tensor_parallel: Annotated[int, typer.Option(help="accelerators that share the heads")] = 1,
    json_to: JsonTo = None,
) -> None:
    """What the cache of a model weighs, layer by layer, predicted exactly."""
    from kvdemo.backend import Backend

    if config is not None and model is not None:
        raise InvalidRequest("config", "give --config or --model, not both")
    backend = Backend(_settings(None))
    geometry = backend.architecture_named(model, config=_read_text("config", config) if config is not None else "")
    request = MemoryRequest(
        seq_len=seq_len,
        batch_size=batch_size,
        cache_dtype=cache_dtype or geometry.dtype,
        weights_dtype=weights_dtype,
        budget_gib=budget_gib,
        keep_free=keep_free,
        tensor_parallel=tensor_parallel,
    )
    made = backend.plan_of(geometry, request)
    backend.close()
    if json_to != "-":
        terminal.print_plan(made)
    if json_to is not None:
        _write_json(json_to, backend.plan_document(made))


@app.command()
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
    spec = InspectSpec(
        generate_kwargs=generate_kwargs,
        config=_read_text("config", config) if config is not None else None,
        generation_config=_read_text("generation_config", generation_config) if generation_config is not None else None,
    )
    backend = Backend(_settings(model))
    try:
        decision = backend.inspect(spec)
    finally:
        backend.close()
    if json_to != "-":
        terminal.print_decision(decision)
    if json_to is not None:
        _write_json(json_to, decision.document())
    if expect is not None and decision.value is not (expect == "cached"):
        print(f"kvdemo: expected {expect}, and it is not so", file=sys.stderr)
        raise typer.Exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    try:
        status = app(args=arguments, prog_name="python -m kvdemo", standalone_mode=False)
    except (InvalidRequest, ModelUnavailable) as error:
        return _complain(str(error), 2)
    except KvdemoError as error:
        return _complain(str(error), 1)
    except typer.TyperException as error:
        return _complain(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # python would complain once more at its end
        return 1
    return status if isinstance(status, int) else 0


@contextmanager
def _backend(model: str | None, strategies: Sequence[str]) -> Iterator[Any]:
    """A backend with its model loaded; a strategy that is not in the table is refused before, a missing model after."""
    from kvdemo.backend import Backend

    backend = Backend(_settings(model))
    try:
        for key in strategies:
            checked_choice("strategies", key, [row.key for row in backend.strategies()])
        backend.start()
        with terminal.loading(backend):
            status = backend.wait_until_settled()
        if isinstance(status, Failed):
            raise ModelUnavailable(status.reason)
        yield backend
    finally:
        backend.close()


def _settings(model: str | None) -> Settings:
    return Settings.from_environment(os.environ, model=model)


def _last(steps: Iterator[Any]) -> Any:
    """Follow an experiment to its result, with its progress on stderr; Ctrl-C ends it and keeps what was done."""
    step = None
    with terminal.progress() as show:
        for step in steps:
            show(step)
    return step


def _read_text(field: str, path: Path) -> str:
    if not path.is_file():
        raise InvalidRequest(field, f"there is no file {path}")
    if path.stat().st_size > 5 * 1024 * 1024:
        raise InvalidRequest(field, f"{path} is larger than 5 MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(field, f"{path} is not UTF-8 text") from error


def _write_json(target: str, document: dict[str, Any]) -> None:
    from kvdemo.experiments.documents import dumps

    if target == "-":
        print(dumps(document))
        return
    try:
        Path(target).write_text(dumps(document) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidRequest("json", f"{target} cannot be written: {error.strerror}") from error


def _complain(message: str, status: int) -> int:
    print(f"kvdemo: {' '.join(message.split())}", file=sys.stderr)
    return status
