"""kvdemo watch: its switches. The command itself runs a program and stands apart: see kvdemo/cli/watch.py."""

from __future__ import annotations

from typing import Annotated

import typer

from kvdemo.questions.application.spec import ApplicationSpec

__all__ = ["watch"]


def watch(
    program: Annotated[str, typer.Argument(metavar="SCRIPT", help="a script and its arguments, or -m MODULE")],
) -> ApplicationSpec:
    """Run your script and say what its generate calls do with a cache."""
    return ApplicationSpec(program)
