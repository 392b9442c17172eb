"""kvdemo, or python -m kvdemo: the page, or with a command's name that command, without a browser."""

import os
import sys

from kvdemo.cli import program
from kvdemo.cli.streams import make_streams_forgiving
from kvdemo.ending import end_on_signals
from kvdemo.surroundings import take_over


def run() -> int:
    """The page or a command as a program of its own; its exit status."""
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        from kvdemo.cli import page

        return page.main(program())
    if sys.argv[1] == "watch":  # somebody's program: streams, signals and environment are its own
        from kvdemo.cli import watch

        return watch.main(sys.argv[2:])
    make_streams_forgiving()
    # Before anything else is imported, which takes a moment, too.
    new_line = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""
    end_on_signals(130, f"{new_line}kvdemo: stopped", sys.stderr)
    for note in take_over(os.environ):
        print(f"kvdemo: {note}", file=sys.stderr)
    from kvdemo.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
