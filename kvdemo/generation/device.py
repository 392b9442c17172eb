"""Clocks and memory of the device the model runs on.

An accelerator is synchronised before a clock is read at a boundary, and its allocator tells the peak; a CPU needs no
synchronising, and the process's resident size, sampled, is the nearest thing to a peak that it has.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from kvdemo.facts.records import PeakKind

__all__ = ["CpuDevice", "CudaDevice", "Device", "MpsDevice", "device_of"]


class Device(Protocol):
    """What a run asks of its device. Seconds of a monotonic clock; bytes."""

    peak_kind: PeakKind

    def now_s(self) -> float:
        """The time when everything given to the device until now is done."""

    def start_peak(self) -> None:
        """Forget earlier peaks and take the baseline."""

    def sample_peak(self) -> None:
        """Look at the memory in use, where nobody else remembers its peak."""

    def peak_bytes(self) -> int:
        """The peak since start_peak, above the baseline."""


class CpuDevice:
    peak_kind: PeakKind = "resident"

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()
        self._baseline = self._peak = 0

    def now_s(self) -> float:
        return time.perf_counter()

    def start_peak(self) -> None:
        self._baseline = self._peak = self._resident()

    def sample_peak(self) -> None:
        self._peak = max(self._peak, self._resident())

    def peak_bytes(self) -> int:
        return self._peak - self._baseline

    def _resident(self) -> int:
        return int(self._process.memory_info().rss)


class CudaDevice:
    peak_kind: PeakKind = "allocator"

    def __init__(self, cuda: Any = None) -> None:
        import torch

        self._cuda = torch.cuda if cuda is None else cuda
        self._baseline = 0

    def now_s(self) -> float:
        self._cuda.synchronize()
        return time.perf_counter()

    def start_peak(self) -> None:
        self._cuda.reset_peak_memory_stats()
        self._baseline = self._cuda.memory_allocated()

    def sample_peak(self) -> None:
        pass  # the allocator remembers

    def peak_bytes(self) -> int:
        return int(self._cuda.max_memory_allocated()) - self._baseline


class MpsDevice:
    peak_kind: PeakKind = "allocator, sampled"

    def __init__(self, mps: Any = None) -> None:
        import torch

        self._mps = torch.mps if mps is None else mps
        self._baseline = self._peak = 0

    def now_s(self) -> float:
        self._mps.synchronize()
        return time.perf_counter()

    def start_peak(self) -> None:
        self._baseline = self._peak = self._mps.current_allocated_memory()

    def sample_peak(self) -> None:
        self._peak = max(self._peak, self._mps.current_allocated_memory())

    def peak_bytes(self) -> int:
        return int(self._peak - self._baseline)


def device_of(device_type: str) -> Device:
    """The clocks and memory of "cuda", "mps" or "cpu"."""
    makers: dict[str, type[CudaDevice] | type[MpsDevice] | type[CpuDevice]] = {"cuda": CudaDevice, "mps": MpsDevice}
    return makers.get(device_type, CpuDevice)()
