"""The observer by itself: what it sees in this process, what it leaves behind, and another environment that it works in."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import sysconfig
import venv
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ContinuousBatchingConfig, DynamicCache, GenerationConfig

import kvdemo
from kvdemo.experiments.pieces import plain
from kvdemo.questions.application.code import COUNTING_CODE
from kvdemo.questions.application.run import compare_program, result_of
from kvdemo.questions.application.spec import ApplicationResult, ApplicationSpec
from kvdemo.questions.application.words import headline
from kvdemo.watching.elsewhere import ENTRY, why_not
from kvdemo.watching.environment import environment_here
from kvdemo.watching.override import Override
from kvdemo.watching.record import Call, cached_of, union_s
from tests.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[2]
APPLICATIONS = ROOT / "tests" / "applications"
IDS = torch.tensor([list(b"fox")])
posix = pytest.mark.skipif(os.name != "posix", reason="signals and scripts of a shell")


def seen_of(work: Callable[[], Any], **options: Any) -> tuple[Call, ...]:
    with kvdemo.watch(**options) as seen, torch.no_grad():
        work()
    record = seen.record()
    assert record.notes == ()
    return record.calls


def answer(model: Any, **said: Any) -> None:
    model.generate(IDS, max_new_tokens=4, eos_token_id=None, **said)


def newest(outputs: Any) -> Any:
    return outputs.logits[:, -1:].argmax(-1)


# --- what it leaves behind -------------------------------------------------------------------------------------------


def test_every_attribute_that_was_patched_is_the_original_object_again() -> None:
    model = tiny_model()
    pages = ContinuousBatchingConfig(
        page_size=16, num_blocks=8, max_batch_tokens=64, auto_switch_to_flash=False, use_cuda_graph=False
    )
    finders = list(sys.meta_path)
    with kvdemo.watch() as seen:
        model.generate(IDS, max_new_tokens=2)
        model.generate_batch([[1, 2, 3]], GenerationConfig(max_new_tokens=2, eos_token_id=-1), pages)
        patched = [(owner, name, before, vars(owner)[name]) for owner, name, before, _ in seen.patches.replaced]
        assert all(now is not before for *_, before, now in patched)
    names = {name for _, name, *_ in patched}
    assert {"generate", "__call__", "start", "schedule_batch", "_run_generation_loop", "deliver_batch"} <= names
    for owner, name, before, made in patched:
        now = vars(owner).get(name)
        assert now is before or (now is None and name == "__call__"), f"{owner}.{name}"
        assert now is not made
    assert sys.meta_path == finders
    assert not model._forward_pre_hooks


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_call_that_raises_is_told_and_leaves_nothing_on_the_model(error: type[BaseException]) -> None:
    model = tiny_model()

    def raises(_ids: Any, _scores: Any) -> Any:
        raise error

    with kvdemo.watch() as seen, pytest.raises(error):
        model.generate(IDS, max_new_tokens=2, logits_processor=[raises])
    (call,) = seen.record().calls
    assert (call.error, call.positions_computed, call.finish_reason) == (error.__name__, (3,), None)
    assert not model._forward_pre_hooks


def test_what_somebody_patches_on_top_meanwhile_is_left_to_him() -> None:
    from transformers.generation.utils import GenerationMixin

    original = GenerationMixin.generate
    try:
        with kvdemo.watch():
            ours = GenerationMixin.generate

            def theirs(model: Any, *args: Any, **kwargs: Any) -> Any:
                return ours(model, *args, **kwargs)

            GenerationMixin.generate = theirs
        assert GenerationMixin.generate is theirs
        assert tiny_model().generate(IDS, max_new_tokens=2, eos_token_id=None).shape == (1, 5)
    finally:
        GenerationMixin.generate = original


def test_a_loops_cache_is_not_held_when_the_program_lets_it_go() -> None:
    model = tiny_model()
    with kvdemo.watch() as seen, torch.no_grad():
        outputs = model(IDS, use_cache=True)
        outputs = model(newest(outputs), cache=outputs.cache, use_cache=True)
        held = weakref.ref(outputs.cache)
        del outputs
        gc.collect()
        assert held() is None
    (call,) = seen.record().calls
    assert (call.peak_cache_tokens, call.peak_cache_bytes) == (4, 4 * 1024)


# --- what it sees ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_cache_is_seen_under_both_of_its_names(name: str) -> None:
    model = tiny_model()

    def work() -> None:
        outputs = model(IDS, use_cache=True)
        for _ in range(3):
            outputs = model(newest(outputs), use_cache=True, **{name: getattr(outputs, name)})
        model.generate(IDS, max_new_tokens=3, eos_token_id=None, **{name: DynamicCache(config=model.config)})

    loop, call = seen_of(work)
    assert (loop.how, loop.positions_computed, loop.positions_read) == ("own loop", (3, 1, 1, 1), (0, 3, 4, 5))
    assert (loop.cache_class, loop.cached, loop.new_tokens) == ("DynamicCache", True, 4)
    assert (call.cache_origin, call.positions_computed, call.cached) == ("handed over", (3, 1, 1), True)


def test_a_loop_over_a_compiled_model_is_seen_too() -> None:
    model = tiny_model()
    compiled = torch.compile(model, backend="eager", dynamic=True)

    def work() -> None:
        ids = IDS
        for _ in range(3):
            ids = torch.cat([ids, newest(compiled(ids, use_cache=False))], 1)

    (call,) = seen_of(work)
    assert (call.how, call.positions_computed, call.cached) == ("own loop", (3, 4, 5), False)


def test_forwards_that_belong_to_no_loop_are_counted_and_called_no_generation() -> None:
    model = tiny_model()
    with kvdemo.watch() as seen, torch.no_grad():
        for length in (3, 4, 5):  # scored texts that grow, and do not begin with each other
            model(torch.full((1, length), length))
    record = seen.record()
    assert (record.calls, record.single_forwards, record.cached) == ((), 3, None)


def test_several_models_are_told_apart_by_name(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    models = []
    for name in ("one", "two"):
        tiny_model().save_pretrained(tmp_path / name)
        models.append(AutoModelForCausalLM.from_pretrained(tmp_path / name))
    with kvdemo.watch() as seen:
        for model in models:
            model.generate(IDS, max_new_tokens=2, eos_token_id=None)
    record = seen.record()
    assert [call.model for call in record.calls] == ["one", "two"]
    assert [facts.name for facts in record.models] == ["one", "two"]
    assert str(tmp_path) not in str(record)


def headline_of(seen: Any) -> str:
    record = dataclasses.replace(seen.record(), environment=environment_here())
    return plain(headline(result_of(ApplicationSpec("program.py"), record)))


def test_the_headline_names_what_was_called_and_how_often() -> None:
    model = tiny_model()
    pages = ContinuousBatchingConfig(
        page_size=16, num_blocks=8, max_batch_tokens=64, auto_switch_to_flash=False, use_cuda_graph=False
    )
    with kvdemo.watch() as once:
        model.generate_batch([[1, 2, 3]], GenerationConfig(max_new_tokens=2, eos_token_id=-1), pages)
    assert headline_of(once).startswith("generate_batch was called once from ")
    with kvdemo.watch() as often:
        for _ in range(2):
            answer(model)
    assert headline_of(often).startswith("Generate was called twice from ")
    with kvdemo.watch() as mixed:
        for use_cache in (True, False, False):
            answer(model, use_cache=use_cache)
    assert headline_of(mixed).startswith("It generated 3 times, in different ways. The cache is off in 2 of 3 calls: ")


def test_a_line_that_changes_the_model_in_memory_is_told_from_its_files(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    tiny_model().save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    model.generation_config.use_cache = False
    (call,) = seen_of(lambda: model.generate(IDS, max_new_tokens=3, eos_token_id=None))
    assert (call.use_cache.value, call.use_cache.source, call.cached) == (False, "code", False)


def test_a_prompt_in_chunks_is_through_when_all_of_it_was_seen() -> None:
    model = tiny_model()
    ids = torch.tensor([list(b"The quick brown fox")])
    (call,) = seen_of(lambda: model.generate(ids, max_new_tokens=3, eos_token_id=None, prefill_chunk_size=8))
    assert call.positions_computed == (8, 8, 3, 1, 1)
    assert (call.prompt_tokens, call.new_tokens, call.cached) == (19, 3, True)


@pytest.mark.parametrize(
    ("key", "computed", "cache"),
    [
        ("none", (3, 4, 5, 6), None),
        ("dynamic", (3, 1, 1, 1), "DynamicCache"),
        ("static", (3, 1, 1, 1), "StaticCache"),
        ("fp8", (3, 1, 1, 1), "QuantizedCache"),
    ],
)
def test_the_cache_of_a_call_is_overridden_whatever_the_call_says(
    key: str, computed: tuple[int, ...], cache: str | None
) -> None:
    model = tiny_model(head_dim=32)
    for said in ({"use_cache": False}, {"use_cache": True}, {"cache": DynamicCache(config=model.config)}):
        (call,) = seen_of(partial(answer, model, **said), override=Override(key))
        assert (call.positions_computed, call.cache_class, call.use_cache.source) == (computed, cache, "watch")


def test_a_call_that_brings_only_what_is_new_keeps_the_cache_that_it_needs() -> None:
    model = tiny_model()
    cache = DynamicCache(config=model.config)
    override = Override("none")
    with kvdemo.watch(override=override) as seen, torch.no_grad():
        model(IDS, cache=cache, use_cache=True)
        model.generate(IDS[:, :1], attention_mask=torch.ones(1, 4), cache=cache, max_new_tokens=2, eos_token_id=None)
    assert seen.record().calls[-1].reused_tokens == 3
    assert any("left as it is" in note or "left as it was" in note for note in seen.record().notes)


@pytest.mark.parametrize(
    ("forwards", "prompt", "cached"),
    [
        ([(4, 0), (1, 4), (1, 5)], 4, True),
        ([(4, 0), (5, 0), (6, 0)], 4, False),
        ([(8, 0), (8, 8), (3, 16), (1, 19)], 19, True),
        ([(1, 0), (2, 0)], 1, False),
        ([(4, 0)], 4, None),
        ([], None, None),
        ([(4, None), (1, None)], 4, True),
        ([(None, 0), (1, 4)], 4, None),
    ],
)
def test_forwards_prove_whether_a_cache_was_used(forwards: Any, prompt: int | None, cached: bool | None) -> None:
    assert cached_of(forwards, prompt) is cached


def test_time_that_several_calls_share_counts_once() -> None:
    assert union_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (1.5, 1.6)]) == 4.0


@pytest.mark.parametrize(
    ("use_cache", "last"),
    [(True, "computed 1 positions, read 5 from DynamicCache"), (False, "computed 6 positions, read 0 from no cache")],
)
def test_the_lines_that_show_it_without_kvdemo_do(
    use_cache: bool, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"model": tiny_model()}
    exec(compile(COUNTING_CODE, "counting.py", "exec"), names)
    answer(names["model"], use_cache=use_cache)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("computed 3 positions, read 0 from ")
    assert lines[-1] == last


# --- another process, another environment ----------------------------------------------------------------------------


@posix
def test_an_interrupt_ends_the_program_as_it_would_end_alone_and_what_was_seen_is_kept(tmp_path: Path) -> None:
    written = tmp_path / "watch.json"
    command = [sys.executable, "-m", "kvdemo", "watch", "--json", str(written), str(APPLICATIONS / "waits.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=ROOT, **pipes) as running:  # type: ignore[call-overload]
        assert running.stdout.readline() == "waiting\n"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (-signal.SIGINT, "cleaned up\n")
    assert "KeyboardInterrupt" in err
    assert f"{os.sep}watching{os.sep}" not in err, "no frame of ours"
    assert '"exit_code": 130' in written.read_text(encoding="utf-8")


@pytest.mark.parametrize("runs", [0, 3])
def test_a_comparison_that_is_interrupted_keeps_what_was_done(runs: int) -> None:
    with kvdemo.watch(name="program.py") as seen:
        pass
    left = dataclasses.asdict(dataclasses.replace(seen.record(0), environment=environment_here()))
    started: list[str] = []

    def launch(arm: str, first: bool) -> tuple[Any, str]:
        if len(started) == runs:
            raise KeyboardInterrupt
        started.append(arm)
        return left, ""

    spec = ApplicationSpec("program.py", compare=("none", "as-is"))
    steps = compare_program(spec, launch, {}, clock=itertools.count().__next__)
    if not runs:
        with pytest.raises(KeyboardInterrupt):
            list(steps)
        return
    *_, result = steps
    assert isinstance(result, ApplicationResult)
    assert result.stopped_because == "stopped"
    assert [run.status for run in result.runs] == ["ok", "ok", "ok", "cancelled"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second environment: with the torch and transformers of this one, and without kvdemo."""
    folder = tmp_path_factory.mktemp("other")
    venv.EnvBuilder(with_pip=False, symlinks=os.name == "posix").create(folder)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    told = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    Path(place, "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def test_the_observer_needs_the_standard_library_only(other: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [other, ENTRY, "--record", tmp_path / "record.json", "--", APPLICATIONS / "modules.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == "['kvdemo']\n", done.stderr
    assert (tmp_path / "record.json").is_file()


@pytest.mark.slow
def test_a_program_is_compared_with_itself_in_another_environment(other: Path, tmp_path: Path) -> None:
    from kvdemo.cli.watch import main
    from kvdemo.experiments.documents import loads
    from kvdemo.questions.documents import from_any_document

    tiny_model().save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    ways = ["--compare", "as-is", "--compare", f"python={other}", "--rounds", "1", "--json", str(tmp_path / "a.json")]
    assert main([*ways, str(APPLICATIONS / "plain.py"), str(tmp_path / "tiny")]) == 0
    result = from_any_document(loads((tmp_path / "a.json").read_bytes()))
    assert isinstance(result, ApplicationResult)
    assert [arm.label for arm in result.arms] == ["as it is", "the other environment"]
    assert {arm.transformers for arm in result.arms} == {result.environment.transformers}
    assert {run.positions_computed for run in result.runs} == {26}
    assert all(one.same_output for one in result.comparisons)
    assert str(other) not in (tmp_path / "a.json").read_text(encoding="utf-8")


@posix
@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ("3 10 1 1", "is Python 3.10; watching needs 3.11 or newer"),
        ("3 12 1 0", "has no transformers"),
        ("3 12 0 0", "has no torch and no transformers"),
        ("hello", "is no Python that can be asked for its version"),
    ],
)
def test_an_environment_that_cannot_be_watched_in_is_refused_in_a_sentence(
    tmp_path: Path, answers: str, sentence: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {answers}\n")
    python.chmod(0o755)
    assert why_not(str(python)) == f"{python} {sentence}"
    assert why_not(sys.executable) is None


@posix
@pytest.mark.parametrize("answers", ["3 10 1 1", "3 6 1 1"])
def test_an_older_python_is_refused_by_the_command_before_anything_runs(
    tmp_path: Path, answers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interpreter is a stand-in that answers as an old one does: there is none on most machines."""
    from kvdemo.cli.watch import main

    python, started = tmp_path / "python", tmp_path / "started"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo {answers} || touch {started}\n')
    python.chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(f"open({str(started)!r}, 'w')")
    assert main(["--compare", "as-is", "--compare", f"python={python}", str(program)]) == 2
    version = ".".join(answers.split()[:2])
    sentence = f"kvdemo: compare: {python} is Python {version}; watching needs 3.11 or newer\n"
    assert capsys.readouterr() == ("", sentence)
    assert not started.exists()


def test_the_observers_first_file_is_read_by_any_python_3_which_then_says_that_it_is_too_old() -> None:
    import ast

    ast.parse(ENTRY.read_text(encoding="utf-8"), feature_version=(3, 4))


# Another version of transformers: the Python of an environment that has one, beside torch.
OTHER_PYTHON = os.environ.get("KVDEMO_TEST_PYTHON", "")
LOSES_IT = """
import sys, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
inputs = AutoTokenizer.from_pretrained(sys.argv[1])("The quick brown fox", return_tensors="pt")
on = transformers.__version__ != sys.argv[2]  # as if that version had another default
model.generate(**inputs, max_new_tokens=8, do_sample=False, eos_token_id=None, use_cache=on)
"""


@pytest.mark.slow
@pytest.mark.skipif(not OTHER_PYTHON, reason="KVDEMO_TEST_PYTHON names no Python with another version of transformers")
@pytest.mark.parametrize("lost", [False, True])
def test_another_version_of_transformers_is_told_with_its_cache_its_speed_and_its_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: bool
) -> None:
    from transformers import __version__ as here

    from kvdemo.cli.watch import main
    from kvdemo.experiments.documents import loads
    from kvdemo.questions.documents import from_any_document

    tiny_model().save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    config = tmp_path / "tiny" / "tokenizer_config.json"  # as versions before this one can read it, too
    written = {**json.loads(config.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}
    config.write_text(json.dumps({**written, "model_input_names": ["input_ids", "attention_mask"]}))
    program, file = tmp_path / "program.py", tmp_path / "result.json"
    program.write_text(LOSES_IT)
    ways = ["--compare", f"python={OTHER_PYTHON}", "--compare", "as-is", "--rounds", "1", "--json", str(file)]
    assert main([*ways, str(program), str(tmp_path / "tiny"), here if lost else "none"]) == 0
    said = capsys.readouterr().err
    result = from_any_document(loads(file.read_bytes()))
    assert isinstance(result, ApplicationResult)
    other, mine = result.arms
    assert (mine.transformers, mine.cached, other.cached) == (here, not lost, True)
    assert other.transformers not in (None, here)
    held = {run.arm: run.peak_cache_bytes for run in result.runs if run.counts}
    assert held == {"python=1": 26 * 1024, "as-is": 0 if lost else 26 * 1024}
    assert all(one.same_output and one.ratio for one in result.comparisons)
    named = f"the other environment (transformers {other.transformers})", f"as it is (transformers {here})"
    if lost:
        assert f"in use with {named[0]}, and every position computed again with {named[1]}." in said
    else:
        assert f"The cache is in use in both, so none was lost: {named[0]} and {named[1]}." in said
    assert OTHER_PYTHON not in file.read_text(encoding="utf-8")
