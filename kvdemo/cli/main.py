"""kvdemo chat|compare|grow|...|replay|memory|inspect: the same backend without a browser.

Exit 0: done; 1: a run failed, or what it gave could not be handed over; 2: wrong input, with one line on stderr; 130:
Ctrl-C or SIGTERM. With --json - stdout holds one JSON document and nothing else; what a person wants to read meanwhile goes
to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from kvdemo.cli import program
from kvdemo.cli.ask import Follow, command_of
from kvdemo.cli.chat import chat
from kvdemo.cli.inspect import inspect
from kvdemo.cli.memory import memory
from kvdemo.cli.replay import replay
from kvdemo.cli.session import last
from kvdemo.cli.streams import failure_of
from kvdemo.errors import InvalidRequest, KvdemoError, ModelUnavailable
from kvdemo.questions.table import QUESTIONS, Table

__all__ = ["main", "names_of_commands"]

MOVED = {
    "--grow": "kvdemo grow",
    "--prompt-lengths": "kvdemo grow",
    "--answer-lengths": "kvdemo grow",
    "--longest": "kvdemo grow, and of kvdemo prompts",
    "--prompts": "kvdemo prompts FILE",
    "--shared-prefix": "kvdemo prefix FILE",
    "--question": "kvdemo prefix FILE",
}
"""Switches that compare once had, and the commands that have them now."""


PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Of a command that reads its own arguments."""


def watch(context: typer.Context) -> None:
    """Run your script and say what its generate calls do with a cache."""
    from kvdemo.cli import watch as command

    raise typer.Exit(command.main(context.args))


def about() -> None:
    """What a KV cache buys, and what it costs, on a real language model."""


def commands(table: Table, follow: Follow) -> typer.Typer:
    """The command line: chat, one command per question, memory and inspect."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(about)
    app.command("chat")(chat)
    for question in table:
        if question.command == "watch":
            app.command("watch", context_settings=PASSED_ON, add_help_option=False)(watch)
            continue
        app.command(question.command)(command_of(question, table, follow))
    app.command("replay")(replay)
    app.command("memory")(memory)
    app.command("inspect")(inspect)
    return app


def names_of_commands(table: Table = QUESTIONS) -> str:
    """Each command on a line with what it does, for the help of the program."""
    said = {
        str(command.name): (command.callback.__doc__ or "").strip().splitlines()[0]
        for command in commands(table, last).registered_commands
        if command.callback is not None
    }
    width = max(map(len, said))
    lines = "".join(f"  {name:{width}}  {words}\n" for name, words in said.items())
    return f"commands, without a browser ({program()} COMMAND --help says more):\n{lines}"


def main(arguments: Sequence[str] | None = None, table: Table = QUESTIONS, follow: Follow = last) -> int:
    """Run the command line; the exit status. follow: takes a question's steps to its result."""
    app = commands(table, follow)
    try:
        status = app(args=arguments, prog_name=program(), standalone_mode=False)
    except (InvalidRequest, ModelUnavailable) as error:
        return _complain(str(error), 2)
    except KvdemoError as error:
        return _complain(str(error), 1)
    except typer.TyperException as error:
        option = getattr(error, "option_name", None)
        moved = f" It is a switch of {MOVED[option]} now." if option in MOVED else ""
        return _complain(f"{error.format_message()}{moved}", 2)
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
