"""Compile time is measured, stands on the record of its run, and is paid once: in the warm-up, and on disk for later starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvdemo.caches.strategies import strategy_of
from kvdemo.experiments.summary import arms
from kvdemo.facts.requests import CompareSpec, GenerationRequest
from kvdemo.facts.results import ComparisonResult
from kvdemo.generation.admission import checked_slots
from kvdemo.generation.compiling import timing_compiles
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import keep_compiled_code
from tests.tiny import tiny_loaded
from tests.tiny_backend import ready_backend


def test_the_clock_runs_while_something_is_compiled_and_only_then() -> None:
    import torch

    doubled = torch.compile(lambda value: value * 2, backend="eager")
    with timing_compiles() as first:
        doubled(torch.ones(3))
    with timing_compiles() as second:
        doubled(torch.ones(3))
    assert first.spent_s is not None
    assert first.spent_s > 0
    assert second.spent_s is None


def test_the_clock_leaves_nothing_behind_when_compiling_fails() -> None:
    import torch
    from torch._dynamo import callback_handler
    from torch._dynamo.exc import BackendCompilerFailed

    def broken(graph: object, inputs: object) -> None:
        raise ArithmeticError("no code today")

    with pytest.raises(BackendCompilerFailed), timing_compiles() as clock:
        torch.compile(lambda value: value + 1, backend=broken)(torch.ones(2))
    assert clock.spent_s is not None
    assert callback_handler.start_callbacks == callback_handler.end_callbacks == []


def test_compiled_code_is_kept_beside_the_converted_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that it is put back afterwards
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    keep_compiled_code(tmp_path / "home")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "home" / "compiled")
    keep_compiled_code(tmp_path / "elsewhere")
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "home" / "compiled")


def test_a_compiled_arm_reserves_the_same_power_of_two_in_warm_up_and_rounds(tiny: LoadedModel) -> None:
    compiled = strategy_of("static-compiled")
    for new_tokens, asked, reserved in ((12, None, 512), (12, 30, 512), (600, 607, 1024), (600, None, 1024)):
        request = GenerationRequest("x", new_tokens, "static-compiled", cache_slots=asked)
        assert checked_slots(tiny, request, compiled, 8) == reserved


@pytest.mark.slow
def test_a_comparison_compiles_in_the_warm_up_only_and_leaves_no_process() -> None:
    import psutil
    import torch

    torch.compiler.reset()  # another test may have compiled the same code
    loaded = tiny_loaded()
    reason = strategy_of("static-compiled").reason(loaded.model)
    loaded.thread.close()
    if reason is not None:
        pytest.skip(reason)
    backend = ready_backend()
    spec = CompareSpec("hi there", ("dynamic", "static-compiled"), max_new_tokens=12, rounds=2)
    *_, result = backend.compare(spec)
    backend.close()
    assert isinstance(result, ComparisonResult)
    compiled = [run for run in result.runs if run.strategy == "static-compiled"]
    assert [run.compile_s is not None for run in compiled] == [True, False, False]
    assert all(run.compile_s is None for run in result.runs if run.strategy == "dynamic")
    layers = 4 * 2 * 2 * 16 * 4
    assert [run.cache_bytes for run in compiled] == [512 * layers] * 3
    arm = arms(result)[1]
    assert arm.compile_s == compiled[0].compile_s
    assert result.comparisons[0].verdict.same_output is True
    assert psutil.Process().children(recursive=True) == []
