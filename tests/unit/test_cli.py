"""The command line: JSON alone on stdout, exit codes, one line for wrong input. In this process, on a tiny folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kvdemo.cli.main import main
from tests.model_files import write_tiny_gguf
from tests.tiny import tiny_model, tiny_tokenizer

RUN_KEYS = [
    "strategy",
    "round",
    "order",
    "warmup",
    "prompt_tokens",
    "new_tokens",
    "finish_reason",
    "status",
    "token_ids",
    "token_times_s",
    "positions_computed",
    "positions_read",
    "queue_s",
    "prepare_s",
    "prefill_s",
    "ttft_s",
    "tpot_s",
    "decode_s",
    "decode_tokens_per_s",
    "generation_s",
    "request_s",
    "cache_bytes",
    "cache_storage_bytes",
    "peak_bytes",
    "text",
    "error",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    status, out, _ = run(capsys, *arguments, "--json", "-")
    assert status == 0
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_compare_prints_one_document_with_the_keys_others_rely_on(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    arguments = ["compare", "--model", str(folder), "--prompt", "hi there", "--max-new-tokens", "6"]
    told = document(capsys, *arguments, "--strategy", "none", "--strategy", "dynamic", "--strategy", "static")
    assert {"schema", "environment", "model", "request", "runs", "comparisons"} <= told.keys()
    assert told["schema"] == 1
    assert told["request"]["prompt"] == "hi there"
    assert (told["request"]["as_chat"], told["request"]["max_new_tokens"]) == (False, 6)
    assert told["request"]["fixed_length"] is True
    runs = told["runs"]
    assert all(set(RUN_KEYS) <= set(one) for one in runs)
    assert [(one["strategy"], one["warmup"]) for one in runs] == [
        *((key, True) for key in ("none", "dynamic", "static")),
        *((key, False) for key in ("none", "dynamic", "static")),
    ]
    timed = {one["strategy"]: one for one in runs if not one["warmup"]}
    assert sum(timed["none"]["positions_computed"]) == 6 * 8 + 15
    assert sum(timed["dynamic"]["positions_computed"]) == 8 + 5
    assert timed["none"]["token_ids"] == timed["dynamic"]["token_ids"]
    metrics = ("generation_s", "ttft_s", "tpot_s", "request_s")
    pairs = [(one["candidate"], one["metric"]) for one in told["comparisons"]]
    assert sorted(pairs) == sorted((arm, metric) for arm in ("dynamic", "static") for metric in metrics)
    for one in told["comparisons"]:
        assert (one["baseline"], one["rounds"], one["same_output"]) == ("none", 1, True)
        assert (one["low"], one["high"], one["coverage"]) == (None, None, None)
        expected = timed["none"][one["metric"]] / timed[one["candidate"]][one["metric"]]
        assert one["ratio"] == pytest.approx(expected)


def test_memory_prints_the_sizes_of_the_whole_batch(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    told = document(capsys, "memory", "--model", str(folder), "--seq-len", "100", "--batch-size", "3")
    per_token = 4 * 2 * 2 * 16 * 4
    assert told["request"] == {"batch_size": 3, "seq_len": 100, "cache_dtype": "float32"}
    assert told["cache"] == {
        "held_bytes": 300 * per_token,
        "reserved_bytes": 300 * per_token,
        "uniform_bytes": 300 * per_token,
        "reserved_attention_bytes": 300 * per_token,
        "fixed_state_bytes": 0,
        "bytes_per_token": per_token,
    }
    assert [layer["held_bytes"] for layer in told["layers"]] == [300 * per_token // 4] * 4
    weights = told["model"]["weight_bytes"]
    crossing = told["crossover_tokens"]
    assert 3 * per_token * (crossing - 1) < weights <= 3 * per_token * crossing


def test_memory_takes_a_config_file_and_loads_no_weights(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    config = folder / "config.json"
    told = document(capsys, "memory", "--config", str(config), "--seq-len", "10", "--cache-dtype", "bfloat16")
    assert told["cache"]["held_bytes"] == 10 * 4 * 2 * 2 * 16 * 2
    assert told["method"] == "traced"


def test_memory_plans_a_model_to_load_here_in_this_machines_memory_and_others_in_80_gib(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    here = document(capsys, "memory", "--model", str(folder))
    there = psutil.virtual_memory().total
    assert here["capacity"]["budget_source"] in ("this machine", "this container")
    assert 0 < here["capacity"]["budget_bytes"] <= there
    assert here["weights"] == {"bytes": here["model"]["weight_bytes"], "how": "as loaded: float32"}
    for asked, how in ((("--config", str(folder / "config.json")), "float32"), (("--model", "gpt-oss-120b"), "mxfp4")):
        other = document(capsys, "memory", *asked)
        assert (other["capacity"]["budget_source"], other["capacity"]["budget_bytes"]) == ("default", 80 * 2**30)
        assert other["weights"]["how"] == f"as published: {how}"
        assert other["capacity"]["fits"]
    given = document(capsys, "memory", "--model", "gpt-oss-120b", "--budget-gib", "40", "--weights-dtype", "bfloat16")
    assert (given["capacity"]["budget_source"], given["capacity"]["fits"]) == ("given", False)
    assert given["weights"] == {"bytes": 2 * 116_829_156_672, "how": "in bfloat16"}
    _, out, _ = run(capsys, "memory", "--model", "gpt-oss-120b")
    assert "weights as published: mxfp4" in out
    assert "budget 80.00 GiB (default): it fits" in out


def test_chat_streams_the_answer_to_stdout_and_the_figures_to_stderr(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, out, err = run(capsys, "chat", "hi", "--model", str(folder), "--max-new-tokens", "5")
    assert status == 0
    assert out.endswith("\n")
    assert "positions computed" in err


def test_chat_as_json_leaves_stdout_to_the_document(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    told = document(capsys, "chat", "hi", "--model", str(folder), "--max-new-tokens", "5")
    assert (told["strategy"], told["status"]) == ("dynamic", "ok")


def test_inspect_is_a_guard_for_somebodys_ci(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    off = '{"use_cache": false}'
    assert run(capsys, "inspect", "--model", str(folder), "--expect", "cached")[0] == 0
    assert run(capsys, "inspect", "--model", str(folder), "--expect", "uncached")[0] == 1
    assert run(capsys, "inspect", "--model", str(folder), "--generate-kwargs", off, "--expect", "cached")[0] == 1
    told = document(capsys, "inspect", "--model", str(folder), "--generate-kwargs", off)
    assert told["use_cache"] == {"value": False, "source": "call"}


def test_a_document_can_be_written_to_a_file(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "memory.json"
    status, out, _ = run(capsys, "memory", "--model", str(folder), "--seq-len", "10", "--json", str(target))
    assert status == 0
    assert "held" in out
    assert json.loads(target.read_text())["request"]["seq_len"] == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--prompt", ""], "prompt: is empty"),
        (["compare", "--max-new-tokens", "0"], "max_new_tokens: must be between 1"),
        (["compare", "--max-new-tokens", "-3"], "max_new_tokens: must be between 1"),
        (["compare", "--max-new-tokens", "x"], "--max-new-tokens"),
        (["compare", "--strategy", "none"], "strategies: choose between two"),
        (["compare", "--strategy", "none", "--strategy", "magic"], "'magic' is not one of none, dynamic"),
        (["compare", "--strategy", "none", "--strategy", "offloaded"], "offloaded cannot be used here"),
        (["compare", "--max-new-tokens", "5000"], "5,000 is more than the limit"),
        (["compare", "--max-new-tokens", "1020"], "this model's limit is 1,024"),
        (["compare", "--rounds", "0"], "rounds: must be between 1"),
        (["compare", "--no-such-option"], "--no-such-option"),
        (["chat", "hi", "--temperature", "nan"], "temperature: must be a finite number"),
        (["memory", "--seq-len", "0"], "seq_len: must be between 1"),
        (["memory", "--batch-size", "0"], "batch_size: must be between 1"),
        (["inspect", "--expect", "maybe"], "expect: 'maybe' is not one of cached, uncached"),
        (["inspect", "--generate-kwargs", "{"], "generate_kwargs: is not JSON"),
    ],
)
def test_wrong_input_is_one_line_on_stderr_and_exit_2(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str], words: str
) -> None:
    status, out, err = run(capsys, *arguments, "--model", str(folder))
    assert (status, out) == (2, "")
    told = [line for line in err.splitlines() if line.startswith("kvdemo: ")]
    assert len(told) == 1
    assert words in told[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"model_type": "llama",\n "hidden_size": }', "line 2"),
        ('{"model_type": "no-such-type"}', "does not know the model type"),
        ("<<<<<<< HEAD\n{}", "merge"),
    ],
)
def test_a_broken_config_is_one_line_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "config.json").write_text(content)
    status, out, err = run(capsys, "memory", "--config", str(tmp_path / "config.json"), "--seq-len", "10")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "memory", "--config", "no-such.json", "--seq-len", "10")
    assert (status, err) == (2, "kvdemo: config: there is no file no-such.json\n")


def test_a_model_that_is_not_there_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "chat", "hi", "--model", "./no-such-folder")
    assert (status, len(err.splitlines())) == (2, 1)


def test_help_needs_neither_torch_nor_the_page() -> None:
    code = (
        "import sys; from kvdemo.cli.main import main; main(['--help']); "
        "print([name for name in ('torch', 'gradio', 'pandas', 'plotly') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.endswith("[]\n")


def test_names_that_no_file_can_have_are_wrong_input(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    long = "a" * 300
    for arguments in (["--json", long], ["--config", long]):
        assert main(["memory", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("architecture", "words"),
    [("clip", "is a projector of pictures or sound"), ("neverheard", "the installed transformers does not know")],
)
def test_a_gguf_that_is_no_language_model_is_one_line_by_every_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, architecture: str, words: str
) -> None:
    file = write_tiny_gguf(tmp_path / "beside.gguf", architecture=architecture)
    for command in (["chat", "hi"], ["memory"], ["inspect"]):
        status, out, err = run(capsys, *command, "--model", str(file))
        (line,) = [line for line in err.splitlines() if line.startswith("kvdemo: ")]
        assert (status, out) == (2, "")
        assert words in line
        assert "Traceback" not in err
