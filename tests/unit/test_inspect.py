"""Which cache a call uses, and who decided: each row proved by counting what the forwards of a real generate see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kvdemo.backend import Backend
from kvdemo.errors import InvalidRequest
from kvdemo.facts.decision import CacheDecision, InspectSpec
from kvdemo.settings import Settings
from tests.tiny import tiny_model

CACHED, UNCACHED = [4, 1, 1, 1, 1, 1], [4, 5, 6, 7, 8, 9]


def folder_with(path: Path, config: bool | None, generation_config: str | bool | None) -> Path:
    """A model saved with use_cache as given in each file; generation_config "absent": there is no such file."""
    tiny_model().save_pretrained(path)
    written = json.loads((path / "config.json").read_text())
    written.pop("use_cache", None)
    if config is not None:
        written["use_cache"] = config
    (path / "config.json").write_text(json.dumps(written))
    other = path / "generation_config.json"
    if generation_config == "absent":
        other.unlink()
    else:
        content = {"eos_token_id": 256} | ({} if generation_config is None else {"use_cache": generation_config})
        other.write_text(json.dumps(content))
    return path


def inspect(path: Path, **call: Any) -> CacheDecision:
    read = {name: (path / f"{name}.json") for name in ("config", "generation_config")}
    backend = Backend(Settings())
    try:
        return backend.inspect(
            InspectSpec(
                generate_kwargs=json.dumps(call),
                config=read["config"].read_text(),
                generation_config=read["generation_config"].read_text() if read["generation_config"].exists() else None,
            )
        )
    finally:
        backend.close()


def seen_by_the_forwards(path: Path, **call: Any) -> list[int]:
    from transformers import AutoModelForCausalLM

    model, seen = AutoModelForCausalLM.from_pretrained(path, local_files_only=True).eval(), []
    model.register_forward_pre_hook(lambda _m, _a, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True)
    with torch.inference_mode():
        model.generate(torch.tensor([[1, 2, 3, 4]]), max_new_tokens=6, do_sample=False, eos_token_id=None, **call)
    return seen


@pytest.mark.parametrize(
    ("config", "generation_config", "call", "source", "cached"),
    [
        (True, "absent", {}, "config.json", True),
        (False, "absent", {}, "config.json", False),
        (None, "absent", {}, "library default", True),
        (False, None, {}, "library default", True),
        (True, False, {}, "generation_config.json", False),
        (False, True, {}, "generation_config.json", True),
        (False, "absent", {"use_cache": True}, "call", True),
        (True, True, {"use_cache": False}, "call", False),
        (True, True, {"use_cache": None}, "call", False),
    ],
)
def test_what_is_said_is_what_the_forwards_see(
    tmp_path: Path, config: bool, generation_config: Any, call: dict[str, Any], source: str, cached: bool
) -> None:
    folder = folder_with(tmp_path, config, generation_config)
    decision = inspect(folder, **call)
    assert (decision.value, decision.source) == (cached, source)
    assert seen_by_the_forwards(folder, **call) == (CACHED if cached else UNCACHED)
    assert decision.cache_class == ("DynamicCache" if cached else None)


def test_a_cache_that_training_switched_off_is_told_with_the_file_that_is_missing(tmp_path: Path) -> None:
    decision = inspect(folder_with(tmp_path, False, "absent"))
    assert decision.sentence() == "cache off: config.json says use_cache: false and there is no generation_config.json."


def test_a_call_that_says_none_is_named_as_the_one_that_switched_the_cache_off(tmp_path: Path) -> None:
    decision = inspect(folder_with(tmp_path, True, True), use_cache=None)
    assert decision.sentence() == "cache off: the call says use_cache=None."


def test_the_usual_case_is_told_in_one_line(tmp_path: Path) -> None:
    decision = inspect(folder_with(tmp_path, None, None))
    assert decision.sentence() == "cache on (library default), DynamicCache, sdpa, not compiled."


def test_a_setting_that_is_not_read_is_told(tmp_path: Path) -> None:
    decision = inspect(folder_with(tmp_path, False, None))
    assert decision.conflicts == (
        "config.json says use_cache: false, but generation_config.json exists, so that is not read.",
    )


@pytest.mark.parametrize(
    ("call", "cache_class", "words"),
    [
        ({"cache_implementation": "static"}, "StaticCache", ""),
        ({"cache_implementation": "offloaded"}, None, "needs an accelerator"),
        ({"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}, "QuantizedCache", ""),
        ({"use_cache": False, "cache_implementation": "static"}, None, "has no effect: the cache is off"),
        ({"use_cache": False, "prefill_chunk_size": 4}, None, "prefill_chunk_size needs a cache"),
        ({"cache": [1], "cache_implementation": "static"}, None, "give one"),
        ({"no_such_argument": 1}, None, "no_such_argument"),
        ({"max_new_tokens": 0}, None, "max_new_tokens"),
    ],
)
def test_conflicts_and_refusals_are_told_in_words(
    tmp_path: Path, call: dict[str, Any], cache_class: str | None, words: str
) -> None:
    decision = inspect(folder_with(tmp_path, None, None), **call)
    assert decision.cache_class == cache_class
    assert any(words in conflict for conflict in decision.conflicts) if words else decision.conflicts == ()


def test_a_static_cache_compiles_by_itself_only_where_generate_would(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, None, None)
    assert inspect(folder, cache_implementation="static").compiles is torch.cuda.is_available()


def test_a_model_whose_own_code_keeps_no_cache_is_told_as_such() -> None:
    backend = Backend(Settings())
    config = {"model_type": "openai-gpt", "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32}
    decision = backend.inspect(InspectSpec(config=json.dumps(config)))
    backend.close()
    assert (decision.value, decision.source) == (False, "model")


def test_the_document_has_the_keys_that_others_rely_on(tmp_path: Path) -> None:
    document = inspect(folder_with(tmp_path, None, None)).document()
    assert document == {
        "use_cache": {"value": True, "source": "library default"},
        "cache_implementation": None,
        "cache_class": "DynamicCache",
        "attention": "sdpa",
        "compiles": False,
        "conflicts": [],
    }


@pytest.mark.parametrize("text", ["[1]", "{", "nonsense"])
def test_arguments_that_are_no_json_object_are_refused_by_name(text: str) -> None:
    backend = Backend(Settings())
    with pytest.raises(InvalidRequest, match="generate_kwargs"):
        backend.inspect(InspectSpec(generate_kwargs=text))
    backend.close()
