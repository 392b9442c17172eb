"""python -m kvdemo ..."""

import os
import sys

from kvdemo.cli.streams import make_streams_forgiving
from kvdemo.ending import end_on_signals
from kvdemo.surroundings import take_over


def run() -> int:
    """The command line as a program of its own; its exit status."""
    # Before anything else is imported, which takes a moment, too.
    new_line = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""
    end_on_signals(130, f"{new_line}kvdemo: stopped", sys.stderr)
    for note in take_over(os.environ):
        print(f"kvdemo: {note}", file=sys.stderr)
    from kvdemo.cli.main import main

    return main()


if __name__ == "__main__":
    make_streams_forgiving()
    sys.exit(run())
