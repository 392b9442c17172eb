"""What an engine with a paged cache would say, worked out by hand; and the commands that start one on this machine only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvdemo.cli.main import main
from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import FixedState, LayerFootprint, MemoryPlan, Paged
from kvdemo.planner.paging import APART, STATES, paged
from kvdemo.ui.memory.cards import engine_card
from tests.made_up import full_layers, plan_of, sliding_layers

DEFAULT = plan_of(full_layers(30, 3, 64), name="SmolLM2-135M-Instruct", dtype="float32", seq_len=2048)


def in_pages(plan: MemoryPlan, cache_bytes: int | None, **changes: Any) -> Paged:
    found = paged(plan.architecture, replace(plan.request, **changes), cache_bytes)
    assert found is not None
    return found


def test_the_default_model_in_two_gibibytes_by_hand() -> None:
    found = in_pages(DEFAULT, 2 * 2**30)
    assert found.page_bytes == 16 * 30 * 2 * 3 * 64 * 4 == 737_280
    assert found.num_pages == 2**31 // 737_280 == 2912
    assert found.tokens == 46_592
    assert found.at_once == 2912 / 128 == 22.75


def test_a_page_of_another_size_holds_as_much_memory() -> None:
    found = in_pages(DEFAULT, 2 * 2**30, page_tokens=128)
    assert (found.page_bytes, found.num_pages, found.tokens) == (5_898_240, 364, 46_592)


def test_the_budget_of_the_plan_is_what_the_weights_leave() -> None:
    plan = plan_of(budget_gib=80, seq_len=32_768)
    assert plan.capacity is not None
    assert plan.paged is not None
    assert plan.paged.cache_bytes == plan.capacity.usable_bytes
    assert int(plan.paged.at_once) == plan.capacity.most_at_once == 14
    assert plan_of().paged is None


def test_a_budget_that_the_weights_fill_leaves_no_page_and_no_command() -> None:
    found = plan_of(budget_gib=1).paged
    assert found is not None
    assert (found.num_pages, found.tokens, found.at_once, found.commands) == (0, 0, 0.0, ())


def test_windows_and_states_are_said_not_to_be_counted_so() -> None:
    assert in_pages(plan_of(sliding_layers()), 2**30).notes == (APART,)
    state = LayerFootprint(2, "state", fixed=(FixedState(1000),))
    assert in_pages(plan_of([*full_layers(2, 1, 8), state]), 2**30).notes == (STATES,)
    alone = plan_of([state])
    assert paged(alone.architecture, alone.request, 2**30) is None


@pytest.mark.parametrize("size", [0, -1, 10**9])
def test_a_page_size_that_is_none_is_refused_by_name(size: int) -> None:
    with pytest.raises(InvalidRequest, match="page_size"):
        replace(DEFAULT.request, page_tokens=size)


def test_commands_say_length_number_and_dtype_and_listen_on_this_machine_only() -> None:
    found = in_pages(DEFAULT, 2**30, cache_dtype="float8", tensor_parallel=3)
    commands = dict(found.commands)
    assert all("--host 127.0.0.1" in command for command in commands.values())
    vllm = commands["vLLM"]
    for part in (
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "--max-model-len 2048",
        "--kv-cache-dtype fp8",
        "--tensor-parallel-size 3",
    ):
        assert part in vllm
    assert f"--max-num-seqs {int(found.at_once)}" in vllm
    serve = commands["transformers serve"]
    assert f"--cb-block-size 16 --cb-num-blocks {found.num_pages} --cb-max-batch-tokens " in serve


@pytest.mark.parametrize(
    "name", ["a/b; some-command", "GPT-2 XL 1.5B", "a/$(b)", "a/b`c`", "--model/x", "a/b\nc", "../a/b", "a/b/c", ""]
)
def test_a_name_that_a_shell_would_read_otherwise_is_left_for_the_reader_to_put_in(name: str) -> None:
    for _, command in in_pages(replace(DEFAULT, architecture=replace(DEFAULT.architecture, name=name)), 2**30).commands:
        assert " MODEL --" in command or " MODEL.gguf --" in command
        assert not set(command) & set(";$`\n()&|<>")


def test_the_card_shows_the_figures_and_a_command_to_copy() -> None:
    card = engine_card(plan_of(budget_gib=80, name="<b>"))
    assert "Tokens that fit" in card
    assert "vllm serve MODEL --host 127.0.0.1" in card
    assert "kv-act-copy" in card
    assert engine_card(plan_of()) == ""


def test_the_command_prints_it_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.json"
    arguments = ["memory", "--model", "Llama-3.1-8B", "--seq-len", "32768", "--budget-gib", "80", "--page-size", "32"]
    assert main([*arguments, "--json", str(target)]) == 0
    assert "an engine with pages of 32 tokens:" in capsys.readouterr().out
    engine = json.loads(target.read_text())["engine"]
    assert engine["page_tokens"] == 32
    assert engine["tokens"] == 32 * engine["num_pages"]
    assert "--max-model-len 32768" in engine["commands"]["vLLM"]
    assert main([*arguments[:-1], "0"]) == 2
