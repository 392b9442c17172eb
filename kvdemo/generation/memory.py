"""How much memory there is, and how much of it is free: of an accelerator, of this machine, or of the container we run in.

A container's limit is the machine for whoever runs in it: beyond it the process is killed, whatever the machine has left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdemo.facts.plans import Budget

__all__ = ["ContainerMemory", "container_memory", "free_bytes", "machine_budget"]

GIB = 2**30
CGROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
VERSIONS = (  # folder, limit, what is used, and what of that the kernel gives back when it must
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """The tightest limit on this process in bytes, and what is free below it."""

    limit_bytes: int
    free_bytes: int


def container_memory(cgroups: Path = CGROUPS, own: Path = OWN_GROUPS) -> ContainerMemory | None:
    """The limit of the control groups that this process is in; None where there is none, and anywhere but on Linux."""
    try:
        groups = [line.split(":", 2) for line in own.read_text("utf-8").splitlines()]
    except OSError:
        return None
    found = []
    for folder, limit, used, spare in VERSIONS:
        path = next((group[2] for group in groups if len(group) == 3 and group[1] == folder), "/").strip("/")
        root = cgroups / folder
        # Inside a container the path is often the host's, and what is mounted is the container's own group.
        for place in {root, root / path, *(parent for parent in (root / path).parents if root in parent.parents)}:
            try:
                limit_bytes = int((place / limit).read_text("ascii"))  # "max" is no number
                used_bytes = int((place / used).read_text("ascii"))
                stat = dict(line.split() for line in (place / "memory.stat").read_text("ascii").splitlines())
            except (OSError, ValueError):
                continue
            in_use = used_bytes - int(stat.get(spare, 0))
            found.append(ContainerMemory(limit_bytes, max(0, limit_bytes - in_use)))
    return min(found, key=lambda one: one.free_bytes, default=None)


def machine_budget(device_type: str, *, cuda: Any = None, container: ContainerMemory | None = None) -> Budget:
    """All the memory that a model on this device may fill, rounded down to a tenth of a GiB, and whose it is."""
    if device_type == "cuda":
        import torch

        return Budget(_gib((cuda or torch.cuda).mem_get_info()[1]), "this machine's accelerator")
    import psutil

    total, container = int(psutil.virtual_memory().total), container or container_memory()
    if container is not None and container.limit_bytes < total:
        return Budget(_gib(container.limit_bytes), "this container")
    return Budget(_gib(total), "this machine")


def free_bytes(device_type: str, *, cuda: Any = None, container: ContainerMemory | None = None) -> int:
    """How many bytes could be allocated on this device now?

    On CUDA what torch's allocator holds without using it counts as free: the next tensor is put there.
    """
    if device_type == "cuda":
        import torch

        cuda = cuda or torch.cuda
        return int(cuda.mem_get_info()[0] + cuda.memory_reserved() - cuda.memory_allocated())
    import psutil

    available, container = int(psutil.virtual_memory().available), container or container_memory()
    return available if container is None else min(available, container.free_bytes)


def _gib(num_bytes: int) -> float:
    return max(0.1, math.floor(10 * num_bytes / GIB) / 10)
