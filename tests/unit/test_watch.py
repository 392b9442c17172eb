"""kvdemo watch finds the truth about programs as their owners write them, and leaves them as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
import transformers
from transformers.generation.utils import GenerationMixin
from transformers.modeling_utils import PreTrainedModel

import kvdemo
from benchmarks.streaming import load_default
from kvdemo.questions.documents import any_document, from_any_document
from tests.known import known
from tests.tiny import tiny_model, tiny_tokenizer

APPLICATIONS = Path(__file__).resolve().parents[1] / "applications"
ROOT = APPLICATIONS.parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    (path / "generation_config.json").write_text(
        '{"eos_token_id": 256}'
    )  # as published ones are: silent about the cache
    return path


@pytest.fixture(scope="module")
def without_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As training leaves a model: use_cache is off in config.json, and there is no generation_config.json."""
    path = tmp_path_factory.mktemp("models") / "off"
    tiny_model().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "use_cache": False}))
    (path / "generation_config.json").unlink()
    return path


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str
    record: dict[str, Any]

    @property
    def calls(self) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = self.record["calls"]
        return calls


OF_DOCUMENT = {"schema", "kind", "environment", "model", "request", "calls", "script", "verdict", "comparisons"}
OF_CALL = {
    *("where", "model_type", "batch_size", "use_cache", "cache_class", "positions_computed", "positions_read"),
    *("prompt_tokens", "new_tokens", "reused_tokens", "generation_s", "ttft_s", "tpot_s", "peak_cache_bytes"),
    "finish_reason",
}


def check_document(record: dict[str, Any]) -> None:
    """Whatever a program does, its document has every key, says what is not known by null, and opens again."""
    assert record.keys() >= OF_DOCUMENT
    assert record["kind"] == "watch"
    assert record["script"].keys() == {"exit_code", "wall_s", "generation_s", "other_s"}
    assert record["script"]["wall_s"] >= record["script"]["generation_s"] >= 0
    assert record["verdict"].keys() == {"cached", "sentence"}
    assert record["verdict"]["cached"] in (True, False, None)
    for call in record["calls"]:
        assert call.keys() >= OF_CALL
        assert call["use_cache"].keys() == {"value", "source"}
        assert "token_ids" not in call
    assert (len(record["comparisons"]) > 0) is (len(record["request"]["compare"]) > 0)
    assert any_document(from_any_document(record)) == record


class Watched(Protocol):
    def __call__(self, *words: str | Path, switches: Sequence[str] = (), module: bool = False) -> Ran:
        """A program of tests/applications with its arguments, watched."""


def command(written: Path, words: Sequence[str | Path], switches: Sequence[str], module: bool) -> list[str]:
    """The arguments of kvdemo watch."""
    program = ["-m", str(words[0])] if module else [str(APPLICATIONS / str(words[0]))]
    return ["--json", str(written), *switches, *program, *map(str, words[1:])]


def recorded(written: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
    if record:
        check_document(record)
    return record


@pytest.fixture
def watched_alone(tmp_path: Path) -> Watched:
    """In a process of its own, in which the program is the first to import torch and transformers."""
    written = tmp_path / "watch.json"

    def run(*words: str | Path, switches: Sequence[str] = (), module: bool = False) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "kvdemo", "watch", *command(written, words, switches, module)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=300,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr, recorded(written))

    return run


ONE_AFTER_THE_OTHER = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from kvdemo.cli.watch import main

for line in sys.stdin:
    words, out, err = json.loads(line)
    with open(out, "w") as out, open(err, "w") as err, redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    print(status, flush=True)
"""


@pytest.fixture(scope="module")
def one_after_the_other() -> Iterator[subprocess.Popen[str]]:
    """A process that watches one program after the other: torch and transformers are imported once for all of them."""
    with subprocess.Popen(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield process
        known(process.stdin).close()
        assert process.wait(60) == 0


# In make test one program has a process to itself, the plain one; in make test-all every program has.
@pytest.fixture(params=["after others", pytest.param("alone", marks=pytest.mark.slow)])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Watched:
    """After other programs in one process, or alone in its own: what is seen is the same."""
    if request.param == "alone":
        alone: Watched = request.getfixturevalue("watched_alone")
        return alone
    process: subprocess.Popen[str] = request.getfixturevalue("one_after_the_other")
    written, out, err = (tmp_path / name for name in ("watch.json", "out.txt", "err.txt"))

    def run(*words: str | Path, switches: Sequence[str] = (), module: bool = False) -> Ran:
        asked = [command(written, words, switches, module), str(out), str(err)]
        print(json.dumps(asked), file=process.stdin, flush=True)
        status = int(known(process.stdout).readline())
        return Ran(status, out.read_text(), err.read_text(), recorded(written))

    return run


def test_a_plain_program_is_told_with_its_cache_its_proof_and_who_decided(watched_alone: Watched, folder: Path) -> None:
    ran = watched_alone("plain.py", folder, "--two", "words", switches=["--expect", "cached"])
    assert (ran.status, ran.out) == (0, "made 27 tokens with ['--two', 'words']\n")
    (call,) = ran.calls
    assert call["where"].startswith("plain.py:")
    assert call["use_cache"] == {"value": True, "source": "library default"}
    assert (call["cache_class"], call["batch_size"], call["model_type"]) == ("DynamicCache", 1, "llama")
    assert call["positions_computed"] == [19, *[1] * 7]
    assert call["positions_read"] == [0, *range(19, 26)]
    assert (call["prompt_tokens"], call["new_tokens"], call["reused_tokens"]) == (19, 8, 0)
    assert call["finish_reason"] == "length"
    assert ran.record["verdict"]["cached"] is True
    assert ran.record["script"]["exit_code"] == 0
    assert "cache         in use: DynamicCache, left at the library's default" in ran.err
    assert "proof         forwards saw 19, 1, 1, 1 ... tokens" in ran.err
    assert "Nothing to change for speed: the cache is on." in ran.err


def test_a_config_that_switches_the_cache_off_is_found_and_the_expectation_is_not_met(
    watched: Watched, without_cache: Path
) -> None:
    ran = watched("plain.py", without_cache, switches=["--expect", "cached"])
    assert ran.status == 1
    (call,) = ran.calls
    assert call["use_cache"] == {"value": False, "source": "config.json"}
    assert call["positions_computed"] == list(range(19, 27))
    assert ran.record["verdict"]["cached"] is False
    assert "config.json" in ran.record["verdict"]["sentence"]


def test_batches_and_beams_are_counted_over_their_rows(watched: Watched, folder: Path) -> None:
    one, beams = watched("batch.py", folder).calls
    assert (one["batch_size"], one["rows"], one["positions_computed"]) == (3, 3, [45, 3, 3, 3, 3])
    assert (beams["batch_size"], beams["beams"], beams["rows"]) == (3, 2, 6)
    assert beams["cached"] is True


def test_a_cache_kept_between_calls_is_told_with_how_much_each_call_reused(watched: Watched, folder: Path) -> None:
    calls = watched("chat_kept.py", folder).calls
    assert [call["reused_tokens"] for call in calls] == [0, 16, 29]
    assert {call["cache_origin"] for call in calls} == {"handed over"}


@pytest.mark.parametrize(
    ("way", "cached", "computed"), [("kept", True, [4, 1, 1, 1, 1, 1]), ("bare", False, [4, 5, 6, 7, 8, 9])]
)
def test_a_loop_of_ones_own_is_seen_by_its_forwards(
    watched: Watched, folder: Path, way: str, cached: bool, computed: list[int]
) -> None:
    ran = watched("own_loop.py", folder, way)
    (call,) = ran.calls
    assert (call["how"], call["cached"], call["positions_computed"]) == ("own loop", cached, computed)
    assert ran.record["verdict"]["cached"] is cached


def test_a_pipeline_is_a_call_of_generate(watched: Watched, folder: Path) -> None:
    (call,) = watched("with_pipeline.py", folder).calls
    assert (call["how"], call["new_tokens"]) == ("generate", 6)
    assert call["where"].startswith("with_pipeline.py:")


def test_the_model_that_assists_is_counted_apart(watched: Watched, folder: Path) -> None:
    (call,) = watched("assisted.py", folder).calls
    assert call["new_tokens"] == 8
    assert call["assistant"]["forwards"] > 0


def test_continuous_batching_goes_around_generate_and_is_seen_all_the_same(watched: Watched, folder: Path) -> None:
    ran = watched("many.py", folder)
    assert {call["how"] for call in ran.calls} == {"generate_batch"}
    assert sum(call["new_tokens"] for call in ran.calls) == 8


def test_calls_in_threads_are_told_apart(watched: Watched, folder: Path) -> None:
    calls = watched("threads.py", folder).calls
    assert sorted(call["prompt_tokens"] for call in calls) == [3, 6]
    assert all(call["positions_computed"] == [call["prompt_tokens"], 1, 1, 1, 1] for call in calls)


def test_a_program_that_never_generates_is_told_to_look_elsewhere(watched: Watched) -> None:
    ran = watched("never.py")
    assert (ran.status, ran.out, ran.calls) == (0, "the text comes from elsewhere\n", [])
    assert "generate was never called: this text comes from elsewhere; use the endpoint check" in ran.err


def test_a_program_that_fails_fails_as_it_did_and_what_was_seen_is_kept(watched: Watched, folder: Path) -> None:
    ran = watched("fails.py", folder)
    assert ran.status == 1
    assert "LookupError: as it always did" in ran.err
    assert len(ran.calls) == 1


def test_a_module_has_its_relative_imports_its_name_and_its_exit_status(watched: Watched, folder: Path) -> None:
    ran = watched("tests.applications.package", folder, module=True)
    assert (ran.status, ran.out) == (3, "7\n")
    assert ran.calls[0]["where"].startswith("tests/applications/package/answers.py:") or ran.calls[0][
        "where"
    ].startswith("answers.py:")


# --- the program is left as it is: what Python says of it alone is what it says of it here ------------------------------


def python(*words: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """One process of Python, with these switches and texts."""
    return subprocess.run(
        [sys.executable, *words], input=given, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )


def test_what_a_program_writes_passes_through_in_its_order_and_ours_stands_apart_behind_it() -> None:
    program = ["tests/applications/says.py", "-x", "--json", "two words"]
    alone, seen = python(*program), python("-m", "kvdemo", "watch", *program)
    assert (seen.returncode, seen.stdout) == (alone.returncode, alone.stdout)
    assert alone.stdout.endswith("out at the end\n")
    assert f"__main__ {APPLICATIONS / 'says.py'} {program!r} True {APPLICATIONS}\n" in seen.stdout
    assert alone.stderr == "err 1\nerr 2\n"
    assert seen.stderr.startswith(f"{alone.stderr}\ngenerate was never called")


@pytest.mark.parametrize(
    ("how", "status", "says"),
    [
        ("none", 0, ""),
        ("0", 0, ""),
        ("7", 7, ""),
        ("text", 1, "goodbye\n"),
        ("error", 1, "LookupError: as it always did\n"),
    ],
)
def test_a_program_ends_as_it_ends_alone(how: str, status: int, says: str) -> None:
    program = (APPLICATIONS / "leaves.py", how)
    alone, seen = python(*program), python("-m", "kvdemo", "watch", *program)
    assert (seen.returncode, seen.stdout) == (alone.returncode, alone.stdout) == (status, "cleaned up\n")
    assert seen.stderr.startswith(alone.stderr), "the traceback is the program's own, without a frame of ours"
    assert alone.stderr.endswith(says)
    left = f"generate was never called: your script ended with exit code {status}.\n"
    assert seen.stderr.endswith(left) is (status != 0)


@pytest.mark.skipif(sys.platform == "win32", reason="ends by a signal")
def test_a_program_that_is_interrupted_is_ended_by_the_signal_after_what_it_does_at_its_end() -> None:
    program = (APPLICATIONS / "leaves.py", "interrupt")
    alone, seen = python(*program), python("-m", "kvdemo", "watch", *program)
    assert (seen.returncode, seen.stdout) == (alone.returncode, alone.stdout) == (-2, "cleaned up\n")
    assert seen.stderr.startswith(alone.stderr)
    assert seen.stderr.endswith("\ngenerate was never called: your script was interrupted.\n")


def test_a_program_reads_its_standard_input_in_a_comparison_it_is_empty() -> None:
    program = [APPLICATIONS / "reads.py"]
    assert python("-m", "kvdemo", "watch", *program, given="one\ntwo\n").stdout == "read one\nread two\n"
    compared = python("-m", "kvdemo", "watch", "--compare", "none,as-is", "--rounds", "1", *program, given="one\n")
    assert (compared.returncode, compared.stdout) == (0, "")


def test_what_is_said_of_a_program_imports_nothing_that_it_did_not_import(
    tmp_path: Path, watched_alone: Watched
) -> None:
    """One that was interrupted while it imported torch has half of it; one without torch waits for no import of it."""
    half, bare = tmp_path / "half.py", tmp_path / "bare.py"
    bare.write_text("import atexit, sys\natexit.register(lambda: print('torch' in sys.modules))\n")
    half.write_text(
        "import sys, types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\n"
        "torch.get_num_threads = lambda: 1\nraise KeyboardInterrupt\n"
    )
    assert watched_alone(bare).out == "False\n"
    ran = watched_alone(half)
    assert ran.err.count("Traceback") == 1
    assert (ran.record["script"]["exit_code"], ran.record["environment"]["torch"]) == (130, torch.__version__)


def test_a_module_that_is_not_there_is_told_as_python_tells_it() -> None:
    seen = python("-m", "kvdemo", "watch", "-m", "no_such_module")
    assert seen.returncode == 1
    assert "No module named no_such_module" in seen.stderr


def test_stdout_holds_the_document_and_nothing_else_where_it_is_asked_for() -> None:
    seen = python("-m", "kvdemo", "watch", "--json", "-", APPLICATIONS / "says.py")
    assert json.loads(seen.stdout)["kind"] == "watch"
    written = [line for line in seen.stderr.splitlines() if line.startswith(("out", "err"))]
    assert sorted(written) == ["err 1", "err 2", "out 1", "out 2", "out at the end"]


@pytest.mark.slow
def test_stdout_holds_the_document_of_a_comparison_alone_too(folder: Path) -> None:
    switches = ["--json", "-", "--compare", "none,as-is", "--rounds", "1"]
    seen = python("-m", "kvdemo", "watch", *switches, APPLICATIONS / "plain.py", folder)
    assert json.loads(seen.stdout)["request"]["compare"] == ["none", "as-is"]
    assert seen.stderr.count("made 27 tokens") == 1, "the first run is heard, and no other"
    assert "Ready to decide? Not enough evidence yet" in seen.stderr


@pytest.mark.slow
def test_stdout_of_a_comparison_is_that_of_the_first_run(folder: Path) -> None:
    seen = python(
        "-m", "kvdemo", "watch", "--compare", "none,as-is", "--rounds", "1", APPLICATIONS / "plain.py", folder
    )
    assert (seen.returncode, seen.stdout) == (0, "made 27 tokens with []\n")


def test_a_run_of_a_comparison_that_fails_says_its_last_words(watched_alone: Watched) -> None:
    seen = watched_alone("leaves.py", "error", switches=["--compare", "none,as-is", "--rounds", "1"])
    assert seen.status == 1
    assert seen.err.count("LookupError: as it always did") == 2, (
        "the first is heard, of the other its last words are told"
    )
    assert "as it is failed. The last that it said:" in seen.err


@pytest.mark.parametrize("way", ["python", "multiprocessing"])
def test_a_program_whose_processes_generate_is_told_that_they_are_not_watched(watched_alone: Watched, way: str) -> None:
    ran = watched_alone("child.py", way)
    assert (ran.status, ran.out, ran.record["processes"]) == (0, "generated elsewhere\n", 1)
    assert ran.record["verdict"]["sentence"].startswith(
        "generate was never called in this process. It started another process, which is not watched: put with "
    )


@pytest.mark.parametrize("places", [1, 2])
def test_where_several_places_generate_their_blocks_stand_apart(places: int) -> None:
    model, ids = tiny_model(), torch.tensor([[1, 2, 3]])
    with kvdemo.watch() as seen:
        model.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=None)
        if places == 2:
            model.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=None)
    lines = str(seen).splitlines()
    assert lines.count("") == (2 if places == 2 else 0)
    assert sum(line.startswith("Your script took ") for line in lines) == places - 1
    assert sum(line.startswith("  your script ") for line in lines) == 2 - places


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["nowhere.py"], "script"),
        ([], "script"),
        (["--expect", "maybe", "plain.py"], "expect"),
        (["--rounds", "x", "--compare", "none,as-is", str(APPLICATIONS / "plain.py")], "rounds"),
        (["--compare", "none,nonsense", str(APPLICATIONS / "plain.py")], "compare"),
        (["--compare", "python=/nowhere/python", str(APPLICATIONS / "plain.py")], "compare"),
    ],
)
def test_wrong_input_is_one_line_with_its_field(
    words: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvdemo.cli.watch import main

    words = [str(APPLICATIONS / word) if word == "plain.py" else word for word in words]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"kvdemo: {field}: ")


def test_everything_that_is_patched_is_the_original_again() -> None:
    def found() -> list[object]:
        import threading

        return [
            GenerationMixin.__dict__["generate"],
            GenerationMixin.__dict__["_prepare_cache_for_generation"],
            PreTrainedModel.__dict__.get("__call__", torch.nn.Module.__dict__["__call__"]),
            threading.Thread.__dict__["start"],
            transformers.ContinuousBatchingManager.__dict__["start"],
        ]

    before, model = found(), tiny_model()
    ids = torch.tensor([[1, 2, 3]])
    with kvdemo.watch() as seen:
        model.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=None)
        assert found() != before
    assert all(one is other for one, other in zip(found(), before, strict=True))
    assert not model._forward_pre_hooks
    assert seen.record().calls[0].positions_computed == (3, 1, 1)
    watching = kvdemo.watch()
    with pytest.raises(KeyboardInterrupt), watching:
        raise KeyboardInterrupt
    assert all(one is other for one, other in zip(found(), before, strict=True))


@pytest.mark.slow
def test_a_comparison_overrides_the_cache_and_nothing_else(watched_alone: Watched, without_cache: Path) -> None:
    ran = watched_alone("plain.py", without_cache, switches=["--compare", "none,dynamic", "--rounds", "2"])
    assert ran.status == 0
    assert {run["arm"] for run in ran.record["runs"]} == {"none", "dynamic"}
    computed = {run["arm"]: run["positions_computed"] for run in ran.record["runs"]}
    assert computed == {"none": sum(range(19, 27)), "dynamic": 26}
    assert {one["metric"] for one in ran.record["comparisons"]} == {"generation_s", "wall_s"}
    assert all(one["same_output"] for one in ran.record["comparisons"])


@pytest.mark.real
@pytest.mark.slow
def test_a_comparison_of_a_program_gives_the_ratio_of_a_comparison_on_the_same_prompt(
    tmp_path: Path, watched_alone: Watched
) -> None:
    """On the default model, with the same prompt, lengths and rounds: the two intervals overlap, and the ids are equal."""
    folder, prompt, new_tokens = tmp_path / "model", "The red cat was", "40"
    loaded = load_default()
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    loaded.thread.close()
    del loaded
    compared = tmp_path / "compared.json"
    switches = ["--prompt", prompt, "--max-new-tokens", new_tokens, "--rounds", "6", "--json", str(compared)]
    assert python("-m", "kvdemo", "compare", "--strategy", "none", "--strategy", "dynamic", *switches).returncode == 0
    program = ("story.py", folder, prompt, new_tokens)
    seen = watched_alone(*program, switches=["--compare", "none,as-is", "--rounds", "6"])
    assert seen.status == 0
    assert seen.calls[0]["prompt_tokens"] == 4
    assert {run["positions_computed"] for run in seen.record["runs"]} == {sum(range(4, 44)), 43}
    one, other = (
        next(each for each in record["comparisons"] if each["metric"] == "generation_s")
        for record in (json.loads(compared.read_text(encoding="utf-8")), seen.record)
    )
    assert one["same_output"] is other["same_output"] is True
    assert one["rounds"] == other["rounds"] == 6
    intervals = [(each["low"], each["high"]) for each in (one, other)]
    # The first generate of a process is slower by itself, some hundredths of a second of about two.
    assert max(low for low, _ in intervals) <= 1.05 * min(high for _, high in intervals), intervals
    assert one["low"] > 1


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, kvdemo; print([name for name in sys.modules if name.startswith(('kvdemo.', 'torch', 'transformers'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
