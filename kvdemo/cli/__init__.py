"""The command line: the page and the commands, what they print and the files they write."""

import sys
from pathlib import Path

__all__ = ["program"]


def program() -> str:
    """What a person typed to start this program."""
    return "kvdemo" if Path(sys.argv[0]).stem == "kvdemo" else "python -m kvdemo"
