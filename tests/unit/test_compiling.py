"""Compile time is measured, stands on the record of its run, and is paid once: in the warm-up, and on disk for later starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvdemo.caches.strategies import strategy_of
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.summary import arms
from kvdemo.facts.events import Finished
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.generation.admission import checked_slots
from kvdemo.generation.compiling import timing_compiles
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import keep_compiled_code
from tests.known import known
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


def needs_compiler(loaded: LoadedModel) -> None:
    if (reason := strategy_of("static-compiled").reason(loaded.model)) is not None:
        pytest.skip(reason)


def test_a_compiled_run_reads_its_prompt_in_one_go_since_every_length_of_a_chunk_would_be_compiled(
    tiny: LoadedModel,
) -> None:
    needs_compiler(tiny)
    loaded, asked = tiny_loaded(), []
    loaded.model.generate = lambda **options: asked.append(options["prefill_chunk_size"])
    for strategy in ("static", "static-compiled"):
        request = GenerationRequest("hi there", 4, strategy, prefill_chunk=4)
        assert list(stream(loaded, request, turnstile=Turnstile(1)))
    loaded.thread.close()
    assert asked == [4, None]


@pytest.mark.slow
def test_only_the_first_turn_of_a_chat_compiles_however_long_the_prompts_are(tiny: LoadedModel) -> None:
    import torch
    from torch._dynamo.utils import counters

    needs_compiler(tiny)
    torch.compiler.reset()
    backend = ready_backend()
    graphs = []

    def turn(messages: tuple[Message, ...], keep: bool = True) -> RunRecord:
        *_, last = backend.chat(messages, max_new_tokens=8, strategy="static-compiled", owner="me", keep=keep)
        assert isinstance(last, Finished)
        graphs.append(counters["stats"]["unique_graphs"])
        return last.record

    first = turn((Message("user", "x" * 600),))
    told = (Message("user", "x" * 600), Message("assistant", first.text), Message("user", "y" * 60))
    edited = (*told[:2], Message("user", "another question"))
    later = [turn(told), turn(edited), turn(edited, keep=False)]
    assert len(known(first.positions_computed)) <= 8
    assert first.compile_s is not None
    assert [record.compile_s for record in later] == [None] * 3
    assert len(set(graphs)) == 1
    assert [known(record.reused_tokens) > 600 for record in later] == [True, True, False]
    backend.close()


@pytest.mark.slow
def test_a_comparison_compiles_in_the_warm_up_only_and_leaves_no_process(tiny: LoadedModel) -> None:
    import psutil
    import torch

    needs_compiler(tiny)
    torch.compiler.reset()  # another test may have compiled the same code
    backend = ready_backend()
    spec = CompareSpec("hi there", ("dynamic", "static-compiled"), max_new_tokens=12, rounds=2)
    *_, result = backend.ask(spec)
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
