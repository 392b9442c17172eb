"""Keep this, and Go back: followed to the letter on a folder of a tiny model, by the file and by the call."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvdemo.backend import Backend
from kvdemo.errors import InvalidRequest
from kvdemo.facts.decision import CacheAdvice, CacheDecision, FileChange, InspectSpec
from kvdemo.facts.model import StrategyRow
from kvdemo.in_force.advice import advise
from kvdemo.settings import Settings
from tests.known import known
from tests.tiny import EOS_ID, tiny_model, tiny_tokenizer

HERE = ("none", "dynamic", "static", "fp8")
CLASSES = {"none": None, "dynamic": "DynamicCache", "static": "StaticCache", "fp8": "QuantizedCache"}
FILES: dict[str, dict[str, Any] | None] = {
    "no file, config on": None,
    "no file, config off": None,
    "silent": {"eos_token_id": EOS_ID, "temperature": 0.7, "do_sample": True},
    "off": {"eos_token_id": EOS_ID, "use_cache": False},
    "static": {"eos_token_id": EOS_ID, "cache_implementation": "static", "max_cache_len": 64},
    "fp8": {"use_cache": True, "cache_implementation": "quantized", "cache_config": {"backend": "fp8"}},
}

Placed = tuple[Path, Backend]


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    """A folder of the tiny model, and a backend that has loaded it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    backend = Backend(Settings(model=str(folder), home=folder.parent / "home"))
    backend.start()
    backend.wait_until_settled()
    yield folder, backend
    backend.close()


def write(folder: Path, name: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["use_cache"] = name != "no file, config off"
    (folder / "config.json").write_text(json.dumps(config))
    put(folder, FILES[name])


def inspected(folder: Path) -> CacheDecision:
    """As somebody finds it who starts anew: a backend keeps its first answer."""
    backend = Backend(Settings(model=str(folder), home=folder.parent / "home"))
    try:
        return backend.inspect(InspectSpec())
    finally:
        backend.close()


def put(folder: Path, content: dict[str, Any] | None) -> None:
    path = folder / "generation_config.json"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(json.dumps(content))


def content_of(folder: Path) -> dict[str, Any] | None:
    path = folder / "generation_config.json"
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("strategy", HERE)
def test_the_file_is_changed_and_changed_back_and_inspect_says_the_same_again(
    placed: Placed, strategy: str, name: str
) -> None:
    folder, backend = placed
    write(folder, name)
    before = inspected(folder)
    advice = backend.advice(strategy)
    assert advice.before == before
    assert advice.keep_file is not None
    assert advice.back_file is not None
    put(folder, advice.keep_file.apply(content_of(folder)))
    kept = inspected(folder)
    assert (kept.value, kept.cache_class) == (strategy != "none", CLASSES[strategy])
    assert known(content_of(folder)).get("eos_token_id", EOS_ID) == EOS_ID
    put(folder, advice.back_file.apply(content_of(folder)))
    assert content_of(folder) == FILES[name]
    assert inspected(folder) == before


def test_a_new_file_repeats_the_end_tokens_that_came_from_the_config(placed: Placed) -> None:
    folder, backend = placed
    write(folder, "no file, config off")
    advice = backend.advice("dynamic")
    assert advice.keep_file is not None
    assert advice.keep_file.values["eos_token_id"] == EOS_ID
    assert advice.keep_file.values["use_cache"] is True
    assert advice.back_file == FileChange(delete_file=True)


def seen_by(model: Any, act: Callable[[], object]) -> list[tuple[int, str | None]]:
    """(positions given, class of the cache) of every forward while `act` runs."""
    seen = []

    def look(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("cache")
        used = cache if kwargs.get("use_cache") else None
        seen.append((kwargs["input_ids"].shape[1], type(used).__name__ if used is not None else None))

    hook = model.register_forward_pre_hook(look, with_kwargs=True)
    try:
        act()
    finally:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("strategy", HERE)
def test_the_python_code_gives_the_forwards_that_cache_and_the_call_before_what_inspect_said(
    placed: Placed, strategy: str, name: str
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder, backend = placed
    write(folder, name)
    call = '{"max_new_tokens": 5, "do_sample": false}'
    advice = backend.advice(strategy, num_tokens=9, spec=InspectSpec(generate_kwargs=call))
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([list(b"hi !")])
    names = {"model": model, "inputs": {"input_ids": ids, "attention_mask": torch.ones_like(ids)}}

    def lengths(cached: bool) -> list[int]:
        return [4, 1, 1, 1, 1] if cached else [4, 5, 6, 7, 8]

    kept = seen_by(model, lambda: exec(advice.keep_call, dict(names)))
    assert kept == [(length, CLASSES[strategy]) for length in lengths(strategy != "none")]
    back = seen_by(model, lambda: exec(advice.back_call, dict(names)))
    before = advice.before
    assert back == [(length, before.cache_class) for length in lengths(bool(before.value))]


def test_the_calls_differ_only_in_what_concerns_the_cache(placed: Placed) -> None:
    folder, backend = placed
    write(folder, "silent")
    call = {"max_new_tokens": 5, "stop_strings": ["it's"], "use_cache": False, "cache_implementation": "dynamic"}
    advice = backend.advice("static", num_tokens=9, spec=InspectSpec(generate_kwargs=json.dumps(call)))
    assert advice.back_call == (
        'output = model.generate(\n    **inputs,\n    max_new_tokens=5,\n    stop_strings=["it\'s"],\n'
        "    use_cache=False,\n    cache_implementation='dynamic',\n)"
    )
    assert advice.keep_call == (
        "from transformers import StaticCache\n\noutput = model.generate(\n    **inputs,\n    max_new_tokens=5,\n"
        '    stop_strings=["it\'s"],\n    use_cache=True,\n'
        "    cache=StaticCache(config=model.config, max_cache_len=9),\n    disable_compile=True,\n)"
    )
    changed = [line for line in advice.diff.splitlines()[2:] if line[0] in "+-"]
    assert changed == [
        "+from transformers import StaticCache",
        "+",
        "-    use_cache=False,",
        "-    cache_implementation='dynamic',",
        "+    use_cache=True,",
        "+    cache=StaticCache(config=model.config, max_cache_len=9),",
        "+    disable_compile=True,",
    ]
    assert "Through the file it works once use_cache, cache_implementation is gone from the call." in advice.notes


BEFORE = CacheDecision(True, "library default", None, "DynamicCache", "sdpa", False)


def advised(row: StrategyRow, **options: Any) -> CacheAdvice:
    return advise(row, BEFORE, call={}, from_config={}, slots=512, **{"generation_config": {}, **options})


def test_compiling_on_a_cpu_is_asked_for_in_the_call_since_a_file_cannot() -> None:
    code = "StaticCache(config=model.config, max_cache_len={slots})"
    row = StrategyRow("static-compiled", "", "", True, "crop", True, True, code=code, settings="null")
    advice = advised(row)
    assert (advice.keep_file, advice.back_file) == (None, None)
    assert advice.keep_file_text == "A file cannot ask for this: change the call."
    assert advice.keep_call.splitlines()[:4] == [
        "from transformers import CompileConfig, StaticCache",
        "",
        "compile_config = CompileConfig()",
        "compile_config._compile_all_devices = True  # a CPU is left out otherwise",
    ]
    assert "    compile_config=compile_config," in advice.keep_call
    assert "generation_config.json cannot ask for compiling on a CPU: change the call." in advice.notes


def test_nothing_in_a_call_can_leave_its_quotes() -> None:
    row = StrategyRow("none", "", "", True, "no", settings='{"use_cache": false}')
    bad = "'''\"\"\"\nimport os\n\u202e"
    advice = advise(row, BEFORE, call={"stop_strings": bad, bad: 1}, generation_config=None, from_config={}, slots=1)
    for code in (advice.keep_call, advice.back_call):
        compile(code, "call.py", "exec")
        assert "\nimport os" not in code
        assert code.isascii()


def test_a_strategy_that_cannot_run_here_has_no_advice(placed: Placed) -> None:
    with pytest.raises(InvalidRequest, match="runs on cpu"):
        placed[1].advice("offloaded")
    with pytest.raises(InvalidRequest, match="is not one of"):
        placed[1].advice("magic")
    with pytest.raises(InvalidRequest, match="num_tokens"):
        placed[1].advice("static", num_tokens=0)


def test_a_change_of_the_file_reads_as_words_and_json() -> None:
    change = FileChange({"use_cache": True}, ("cache_config",))
    assert change.text() == '{\n  "use_cache": true\n}\nRemove cache_config from generation_config.json.'
    assert FileChange(delete_file=True).text() == "Delete generation_config.json: there was none before."
    assert FileChange().text() == "Leave generation_config.json as it is."
    assert change.apply({"use_cache": False, "cache_config": {}, "eos_token_id": 1}) == {
        "use_cache": True,
        "eos_token_id": 1,
    }
