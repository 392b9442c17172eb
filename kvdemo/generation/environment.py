"""Where something was measured: versions, processor, threads, accelerator, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kvdemo import __version__
from kvdemo.facts.results import Environment
from kvdemo.shipped import checkout

__all__ = ["environment"]


def environment(*, on_page: bool = False) -> Environment:
    """The environment of this process, at this moment. on_page: it serves the page that asked for the measurement."""
    import torch

    return Environment(
        kvdemo=__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=_version("transformers"),
        platform=platform.platform(terse=True),
        processor=_processor(),
        cpu_cores=_cpu_cores(),
        threads=torch.get_num_threads(),
        accelerator=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        commit=_commit(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        on_page=on_page,
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _cpu_cores() -> int:
    """Cores this process may use, not those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the checkout this code runs from, None outside one."""
    root = checkout()
    if root is None or not (root / ".git").exists():
        return None
    try:
        git = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            # GIT_DIR and its like, as hooks have them, would name another repository.
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return git.stdout.strip() or None
