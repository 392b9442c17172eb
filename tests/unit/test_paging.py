"""What an engine with a paged cache would say, worked out by hand; and the commands that start one on this machine only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvdemo.cli.main import main
from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import FixedState, LayerFootprint, MemoryPlan, MemoryRequest, Paged, TokenStream
from kvdemo.planner import catalog
from kvdemo.planner.paging import APART, CROSS, MOST_AT_ONCE, STATES, STREAMS, paged
from kvdemo.planner.plan import make_plan
from kvdemo.ui.memory.cards import engine_card
from kvdemo.ui.memory.form import MemoryForm
from kvdemo.ui.memory.plans import Beside, plan_view
from tests.fake_backend import FakeBackend
from tests.made_up import full_layers, plan_of, sliding_layers

SMALL = catalog.architecture("SmolLM2-135M")
DEFAULT = make_plan(replace(SMALL, dtype="float32"), MemoryRequest(2048, cache_dtype="float32"))


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
    assert in_pages(plan_of(sliding_layers()), 2**30, page_tokens=32).notes == (APART,)
    state = LayerFootprint(2, "state", fixed=(FixedState(1000),))
    assert in_pages(plan_of([*full_layers(2, 1, 8), state]), 2**30, page_tokens=32).notes == (STATES,)
    alone = plan_of([state])
    assert paged(alone.architecture, alone.request, 2**30) is None


@pytest.mark.parametrize("size", [0, -1, 10**9])
def test_a_page_size_that_is_none_is_refused_by_name(size: int) -> None:
    with pytest.raises(InvalidRequest, match="page_size"):
        replace(DEFAULT.request, page_tokens=size)


def test_what_cross_attention_and_further_streams_keep_is_said_not_to_be_counted() -> None:
    cross = LayerFootprint(2, "cross", 1, 8, 1, 8)
    assert in_pages(plan_of([*full_layers(2, 1, 8), cross]), 2**30, page_tokens=32).notes == (CROSS,)
    more = LayerFootprint(2, "compressed", 1, 8, 1, 8, streams=(TokenStream(8, every=4),))
    assert in_pages(plan_of([*full_layers(2, 1, 8), more]), 2**30, page_tokens=32).notes == (STREAMS,)


def test_positions_in_front_of_every_sequence_take_their_pages() -> None:
    led = [replace(layer, lead_tokens=1) for layer in full_layers(2, 1, 8)]
    plain, with_lead = (in_pages(plan_of(layers, seq_len=1024), 2**30) for layers in (full_layers(2, 1, 8), led))
    assert with_lead.at_once == plain.at_once * 64 / 65


def test_no_request_is_longer_than_the_model_allows() -> None:
    """An engine refuses to start with more."""
    found = in_pages(DEFAULT, 2**31, seq_len=100_000)
    assert found.seq_len == 8192
    assert found.at_once == 2912 / 512
    assert found.notes[0].startswith("The model's own limit is 8,192 tokens")
    commands = dict(found.commands)
    assert "--max-model-len 8192 --max-num-seqs 5" in commands["vLLM"]
    assert f"-c {5 * 8192} -np 5" in commands["llama.cpp"]


def test_a_length_that_does_not_fill_its_last_page_is_said_to_print_less() -> None:
    assert "The last page of 2,047 tokens is not full" in in_pages(DEFAULT, 2**31, seq_len=2047).notes[0]


@pytest.mark.parametrize("size", [1, 8, 17, 100])
def test_pages_that_vllm_does_not_take_are_said_and_have_no_command_for_it(size: int) -> None:
    found = in_pages(DEFAULT, 2**31, page_tokens=size)
    assert "vLLM" not in dict(found.commands)
    assert found.notes[-1].startswith("vLLM takes pages of 16 tokens or multiples of that")
    assert f"--cb-block-size {size} " in dict(found.commands)["transformers serve"]


def test_pages_that_vllm_takes_on_an_accelerator_only_are_said_to_be_so() -> None:
    assert "On a CPU vLLM takes multiples of 32 only" in in_pages(DEFAULT, 2**31).notes[-1]
    found = in_pages(DEFAULT, 2**31, page_tokens=128)
    assert "vLLM" in dict(found.commands)
    assert found.notes == ()


def test_a_known_model_is_asked_for_by_its_id_on_the_hub() -> None:
    plan = make_plan(catalog.architecture("Llama-3.1-8B"), MemoryRequest(32_768, budget_gib=80))
    assert plan.paged is not None
    for engine in ("vLLM", "transformers serve"):
        assert (
            "serve meta-llama/Llama-3.1-8B-Instruct --host 127.0.0.1 --dtype bfloat16 "
            in dict(plan.paged.commands)[engine]
        )


def test_an_engine_is_told_the_memory_and_the_dtype_that_the_figures_are_for() -> None:
    """Else it takes most of what is free, and the dtype of the published files."""
    command = dict(in_pages(DEFAULT, 2**31).commands)["vLLM"]
    assert "--dtype float32 " in command
    assert f"--kv-cache-memory-bytes {2912 * 737_280}" in command
    eight = dict(in_pages(DEFAULT, 2**31, cache_dtype="float8").commands)
    assert "--dtype float32 " in eight["vLLM"]
    assert "--kv-cache-dtype fp8" in eight["vLLM"]
    assert set(eight) == {"vLLM"}, "the others have no cache of this dtype"


def test_vllm_is_not_told_more_requests_than_it_starts_with() -> None:
    assert f"--max-num-seqs {MOST_AT_ONCE} " in dict(in_pages(DEFAULT, 2**31, seq_len=16).commands)["vLLM"]


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
    serve = dict(in_pages(DEFAULT, 2**30).commands)["transformers serve"]
    found = in_pages(DEFAULT, 2**30)
    assert f"--cb-block-size 16 --cb-num-blocks {found.num_pages} --cb-max-batch-tokens " in serve


@pytest.mark.parametrize(
    "name", ["a/b; some-command", "GPT-2 XL 1.5B", "a/$(b)", "a/b`c`", "--model/x", "a/b\nc", "../a/b", "a/b/c", ""]
)
def test_a_name_that_a_shell_would_read_otherwise_is_left_for_the_reader_to_put_in(name: str) -> None:
    nobodys = replace(DEFAULT.architecture, name=name, hub_id=None)
    for _, command in in_pages(replace(DEFAULT, architecture=nobodys), 2**30).commands:
        assert " MODEL --" in command or " MODEL.gguf --" in command
        assert not set(command) & set(";$`\n()&|<>")


def test_the_card_shows_the_figures_and_a_command_to_copy() -> None:
    card = engine_card(plan_of(budget_gib=80, name="<b>"))
    assert "Tokens that fit" in card
    assert "vllm serve MODEL --host 127.0.0.1" in card
    assert "kv-act-copy" in card
    assert engine_card(plan_of()) == ""


def test_the_form_says_the_page_and_only_the_card_follows_it() -> None:
    model = DEFAULT.architecture
    first = plan_view(FakeBackend(), model, MemoryForm(2048, budget_gib=4), Beside())
    then = plan_view(FakeBackend(), model, MemoryForm(2048, budget_gib=4, page_tokens=128), Beside(), first["shown"])
    assert " of 16 tokens, " in first["fits"]
    assert " of 128 tokens, " in then["fits"]
    assert set(then) == {"shown", "notice", "fits"}, "no chart is drawn again"


def test_a_memory_that_not_one_request_fits_in_is_said_and_has_no_command() -> None:
    plan = make_plan(DEFAULT.architecture, MemoryRequest(8192, cache_dtype="float32", budget_gib=0.7))
    card = engine_card(plan)
    assert "Not one request of 8,192 tokens fits" in card
    assert "kv-act-copy" not in card


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
