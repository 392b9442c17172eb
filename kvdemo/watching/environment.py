"""The surroundings of the program that was watched; of one that never came to import torch, too."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from kvdemo import __version__
from kvdemo.facts.results import Environment
from kvdemo.generation.environment import environment

__all__ = ["environment_here"]


def environment_here() -> Environment:
    """Versions, processor, threads, accelerator of this process. torch is not imported for it: that takes seconds."""
    if hasattr(sys.modules.get("torch"), "get_num_threads"):
        try:
            return environment()
        except (AttributeError, ImportError):  # interrupted while it was imported
            pass
    cores = os.cpu_count() or 1
    return Environment(
        kvdemo=__version__,
        python=platform.python_version(),
        torch=_version("torch"),
        transformers=_version("transformers"),
        platform=platform.platform(terse=True),
        processor=platform.processor() or platform.machine(),
        cpu_cores=cores,
        threads=cores,
        accelerator=None,
        commit=None,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
