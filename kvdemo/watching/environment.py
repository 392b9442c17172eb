"""The surroundings of the program that was watched; of one without torch, too."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

from kvdemo import __version__
from kvdemo.facts.results import Environment
from kvdemo.generation.environment import environment

__all__ = ["environment_here"]


def environment_here() -> Environment:
    """Versions, processor, threads, accelerator of this process; torch is imported for it where the program did not."""
    try:
        return environment()
    except ImportError:
        return Environment(
            kvdemo=__version__,
            python=platform.python_version(),
            torch="not installed",
            transformers="not installed",
            platform=platform.platform(terse=True),
            processor=platform.processor() or platform.machine(),
            cpu_cores=os.cpu_count() or 1,
            threads=1,
            accelerator=None,
            commit=None,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
