"""Is this machine quiet enough to measure on? Anything busy beside torch ruins a run."""

from __future__ import annotations

import os
import sys

import psutil

__all__ = ["say_if_busy"]

QUIET_LOAD = 0.5
QUIET_PERCENT = 15.0


def say_if_busy() -> None:
    """Look before measuring, and say on stderr when somebody else is at work."""
    load = os.getloadavg()[0]
    percent = psutil.cpu_percent(interval=1.0)
    if load > QUIET_LOAD or percent > QUIET_PERCENT:
        print(
            f"Somebody else is at work here: load average {load:.1f}, processors {percent:.0f} % busy. "
            "The figures below may be off.",
            file=sys.stderr,
            flush=True,
        )
