"""Want of memory is recognised by what Linux, macOS, Windows, CUDA and MPS really say, and by a real failed allocation."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kvdemo.errors import ModelUnavailable, OutOfMemory, is_out_of_memory
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.conversion import convert
from kvdemo.models.loader import in_one_line, load
from kvdemo.models.source import ModelSource
from kvdemo.models.thread import ModelThread
from kvdemo.settings import Settings
from tests.known import ended
from tests.model_files import write_tiny_gguf
from tests.tiny import tiny_loaded

MORE_THAN_THERE_IS = 2**50


class FromWindows(OSError):
    """As Windows raises it: its own number beside one of C."""

    def __init__(self, winerror: int, strerror: str) -> None:
        super().__init__(errno.EINVAL, strerror)
        self.winerror = winerror


SAID = [
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
        "1125899906842624 bytes. Error code 12 (Cannot allocate memory)"  # Linux and macOS
    ),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:116] data. DefaultCPUAllocator: not enough memory: you tried to allocate 17179869184 "
        "bytes."  # Windows
    ),
    RuntimeError("unable to mmap 988097824 bytes from file </m/model.safetensors>: Cannot allocate memory (12)"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB"),
    RuntimeError(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"
    ),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError(
        "MPS backend out of memory (MPS allocated: 17.93 GB, other allocations: 384.00 KB, max allowed: 18.13 GB)."
    ),
    RuntimeError("Invalid buffer size: 32.00 GiB"),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    FromWindows(1455, "The paging file is too small for this operation to complete"),
    FromWindows(8, "Nicht genügend Arbeitsspeicherressourcen verfügbar, um diesen Befehl zu verarbeiten"),
    Exception("Error while deserializing header: I/O error: Cannot allocate memory (os error 12)"),
    Exception("The paging file is too small for this operation to complete. (os error 1455)"),
]


@pytest.mark.parametrize("error", SAID, ids=lambda error: f"{type(error).__name__}: {str(error)[:40]}")
def test_the_words_of_every_system_and_device_are_known(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert "not enough memory" in in_one_line(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("size mismatch for lm_head.weight"),
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("memory_limit must be positive"),
        FromWindows(5, "Access is denied"),
        ModelUnavailable("not enough memory is what another sentence of ours may quote"),
    ],
)
def test_what_is_something_else_stays_something_else(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_a_real_failed_allocation_is_known() -> None:
    with pytest.raises(RuntimeError) as by_torch:
        torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8)
    with pytest.raises(MemoryError) as by_numpy:
        np.empty(MORE_THAN_THERE_IS, dtype=np.uint8)
    assert is_out_of_memory(by_torch.value)
    assert is_out_of_memory(by_numpy.value)


def test_a_run_whose_allocation_really_fails_says_so_and_the_next_one_works() -> None:
    loaded = tiny_loaded()
    request = GenerationRequest("hi", 3)

    def too_much(*_: Any) -> None:
        torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8)

    hook = loaded.model.register_forward_pre_hook(too_much)
    with pytest.raises(OutOfMemory, match="There was not enough memory for this run"):
        list(stream(loaded, request, turnstile=Turnstile(4)))
    hook.remove()
    finished = ended(stream(loaded, request, turnstile=Turnstile(4)))
    loaded.thread.close()
    assert finished.record.status == "ok"


def test_a_load_whose_allocation_really_fails_blames_no_file(tmp_path: Path) -> None:
    def too_much(words: str) -> None:
        if words.startswith("weights"):
            torch.empty(MORE_THAN_THERE_IS, dtype=torch.uint8)

    from tests.tiny import tiny_model, tiny_tokenizer

    tiny_model().save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    thread = ModelThread()
    with pytest.raises(ModelUnavailable, match="tiny cannot be loaded: there is not enough memory"):
        load(
            Settings(home=tmp_path),
            ModelSource("folder", "tiny", "", tmp_path / "tiny"),
            thread=thread,
            progress=too_much,
        )
    thread.close()


def test_unpacking_that_wants_memory_is_not_told_as_a_full_disk(tmp_path: Path) -> None:
    gguf = tmp_path / "tiny.gguf"
    write_tiny_gguf(gguf)

    def unpack(*_: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with pytest.raises(OSError, match="Cannot allocate memory"):
        convert(gguf, tmp_path / "home", unpack=unpack, progress=print)
