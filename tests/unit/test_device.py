"""Clocks and peaks of accelerators that are not here: fakes of torch's module, with the calls they record."""

from __future__ import annotations

import time

from kvdemo.generation.device import CpuDevice, CudaDevice, MpsDevice, device_of


class FakeCuda:
    """Stands in for torch.cuda; remembers when its work was done."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.done_s: list[float] = []
        self.allocated = 30
        self.peak = 130

    def synchronize(self) -> None:
        self.calls.append("synchronize")
        begun_s = time.perf_counter()
        while time.perf_counter() == begun_s:  # the device's own time, one tick of the clock
            pass
        self.done_s.append(time.perf_counter())

    def reset_peak_memory_stats(self) -> None:
        self.calls.append("reset")
        self.peak = self.allocated

    def memory_allocated(self) -> int:
        return self.allocated

    def max_memory_allocated(self) -> int:
        return self.peak


class FakeMps:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.allocated = 30

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def current_allocated_memory(self) -> int:
        return self.allocated


def test_an_accelerator_is_waited_for_before_the_clock_is_read_at_both_ends() -> None:
    cuda = FakeCuda()
    device = CudaDevice(cuda)
    read_s = [device.now_s(), device.now_s()]
    assert cuda.calls == ["synchronize", "synchronize"]
    assert all(read >= done for read, done in zip(read_s, cuda.done_s, strict=True))


def test_mps_has_its_own_call() -> None:
    mps = FakeMps()
    MpsDevice(mps).now_s()
    assert mps.calls == ["synchronize"]


def test_a_peak_is_above_the_baseline_and_forgets_the_run_before() -> None:
    cuda = FakeCuda()
    device = CudaDevice(cuda)
    device.start_peak()  # keeps the 30 of the weights, forgets the 130 of the run before
    cuda.peak = 60
    assert device.peak_bytes() == 30
    assert device.peak_kind == "allocator"


def test_a_sampled_peak_is_the_largest_sample_above_the_baseline() -> None:
    mps = FakeMps()
    device = MpsDevice(mps)
    device.start_peak()
    for mps.allocated in (50, 90, 40):
        device.sample_peak()
    assert device.peak_bytes() == 60


def test_a_cpu_tells_the_resident_size_of_the_process_and_says_so() -> None:
    device = CpuDevice()
    device.start_peak()
    held = bytearray(64 * 1024 * 1024)
    held[::4096] = b"x" * len(held[::4096])
    device.sample_peak()
    assert device.peak_bytes() >= 32 * 1024 * 1024
    assert device.peak_kind == "resident"


def test_the_device_follows_the_model() -> None:
    assert isinstance(device_of("cpu"), CpuDevice)
