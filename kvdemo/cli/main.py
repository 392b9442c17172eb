"""python -m kvdemo chat|compare|memory|inspect: the same backend without a browser.

Exit 0: done; 1: a run failed, or what it gave could not be handed over; 2: wrong input, with one line on stderr; 130:
Ctrl-C or SIGTERM. With --json - stdout holds one JSON document and nothing else; what a person wants to read meanwhile goes
to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from kvdemo.cli.chat import chat
from kvdemo.cli.compare import compare
from kvdemo.cli.inspect import inspect
from kvdemo.cli.memory import memory
from kvdemo.cli.streams import failure_of
from kvdemo.errors import InvalidRequest, KvdemoError, ModelUnavailable

__all__ = ["main"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)
for command in (chat, compare, memory, inspect):
    app.command()(command)


@app.callback()
def about() -> None:
    """What a KV cache buys, and what it costs, on a real language model."""


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
    if status:
        return int(status)
    failure = failure_of(sys.stdout)
    if failure is None:
        return 0
    # Whoever closes a pipe has read what he wanted: no complaint.
    return 1 if isinstance(failure, BrokenPipeError) else _complain(f"cannot write the output: {failure.strerror}", 1)


def _complain(message: str, status: int) -> int:
    print(f"kvdemo: {' '.join(message.split())}", file=sys.stderr)
    return status
