"""How much memory there is and how much is free: this machine's, its container's, an accelerator's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from kvdemo.facts.plans import Budget
from kvdemo.generation.memory import ContainerMemory, container_memory, free_bytes, machine_budget

GIB = 2**30


def group(folder: Path, version: int, limit: str, used: int, spare: int) -> None:
    """A control group's files as the kernel shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, str(used)), strict=True):
        (folder / name).write_text(f"{value}\n")
    stat = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon 5\n{stat} {spare}\n")


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own"
    path.write_text(text)
    return path


def test_a_containers_limit_counts_without_what_the_kernel_gives_back(tmp_path: Path) -> None:
    group(tmp_path / "cg", 2, str(4 * GIB), 3 * GIB, GIB)
    assert container_memory(tmp_path / "cg", own(tmp_path, "0::/\n")) == ContainerMemory(4 * GIB, 2 * GIB)


def test_the_tightest_of_nested_groups_counts(tmp_path: Path) -> None:
    group(tmp_path / "cg" / "user", 2, str(8 * GIB), GIB, 0)
    group(tmp_path / "cg" / "user" / "shell", 2, "max", GIB, 0)
    found = container_memory(tmp_path / "cg", own(tmp_path, "0::/user/shell\n"))
    assert found == ContainerMemory(8 * GIB, 7 * GIB)


def test_an_older_kernels_limit_is_read_where_it_is_mounted(tmp_path: Path) -> None:
    group(tmp_path / "cg" / "memory", 1, str(2 * GIB), GIB, 0)
    found = container_memory(tmp_path / "cg", own(tmp_path, "5:cpu:/\n4:memory:/docker/ab12\n0::/\n"))
    assert found == ContainerMemory(2 * GIB, GIB)


@pytest.mark.parametrize("text", ["", "0::/\n", "nonsense\n", "0::/../..\n"])
def test_without_a_limit_there_is_no_container(tmp_path: Path, text: str) -> None:
    assert container_memory(tmp_path / "cg", own(tmp_path, text)) is None
    assert container_memory(tmp_path / "cg", tmp_path / "no-such-file") is None


def test_the_budget_is_this_machines_or_its_containers_and_says_so() -> None:
    total = psutil.virtual_memory().total
    whole = machine_budget("cpu", container=ContainerMemory(10**18, 10**18))
    assert whole.source == "this machine"
    assert total - 0.11 * GIB < whole.gib * GIB <= total
    assert machine_budget("cpu", container=ContainerMemory(GIB // 2, 0)) == Budget(0.5, "this container")


def test_an_accelerators_memory_is_its_own_and_what_its_allocator_does_not_use_is_free() -> None:
    cuda = SimpleNamespace(
        mem_get_info=lambda: (10 * GIB, 80 * GIB), memory_reserved=lambda: 6 * GIB, memory_allocated=lambda: 4 * GIB
    )
    assert machine_budget("cuda", cuda=cuda) == Budget(80, "this machine's accelerator")
    assert free_bytes("cuda", cuda=cuda) == 12 * GIB


def test_what_is_free_ends_at_the_containers_limit() -> None:
    assert free_bytes("cpu", container=ContainerMemory(GIB, 7)) == 7
    assert 0 < free_bytes("cpu", container=ContainerMemory(10**18, 10**18)) < 10**18
