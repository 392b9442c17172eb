"""Configs that other calculators got wrong, with the right bytes (tests/data/configs.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvdemo.cli.main import main
from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import CACHE_DTYPES, Architecture, MemoryRequest
from kvdemo.planner import architecture, plan

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "configs.json").read_text("utf-8"))


def traced(case: dict[str, Any]) -> Architecture:
    if "refused" in case:
        with pytest.raises(InvalidRequest, match=case["refused"]):
            architecture.from_config(case["config"])
        return architecture.by_hand(**case["by_hand"])
    return architecture.from_config(case["config"])


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_config_that_others_got_wrong_has_the_right_bytes(case: dict[str, Any]) -> None:
    found = traced(case)

    def cache_of(**changes: Any) -> dict[str, Any]:
        request = {key: case[key] for key in ("seq_len", "batch_size", "cache_dtype")}
        document = plan.as_document(plan.make_plan(found, MemoryRequest(**{**request, **changes})))
        cache: dict[str, Any] = document["cache"]
        assert cache["held_bytes"] == sum(layer["held_bytes"] for layer in document["layers"])
        assert cache["reserved_bytes"] == sum(layer["reserved_bytes"] for layer in document["layers"])
        return cache

    asked = cache_of()
    assert {key: asked[key] for key in case["expected"]} == case["expected"]
    assert {key: cache_of(batch_size=5)[key] for key in case["expected"]} == {
        key: 5 * value for key, value in case["expected"].items()
    }
    bytes_each = CACHE_DTYPES[case["cache_dtype"]]
    for dtype, other in CACHE_DTYPES.items():
        scaled = cache_of(cache_dtype=dtype)["reserved_attention_bytes"]
        assert scaled * bytes_each == case["expected"]["reserved_attention_bytes"] * other


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_command_line_prints_the_same_bytes_or_refuses_in_one_line(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(case["config"]))
    sizes = ["--seq-len", str(case["seq_len"]), "--batch-size", str(case["batch_size"])]
    status = main(["memory", "--config", str(config), *sizes, "--cache-dtype", case["cache_dtype"], "--json", "-"])
    out, err = capsys.readouterr()
    if "refused" in case:
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        return
    assert status == 0
    told = json.loads(out)
    assert {key: told["cache"][key] for key in case["expected"]} == case["expected"]
    assert told["method"] == "traced"


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["id"] in ("gptoss-20b-alternating", "gemma3-27b-nested")]
)
def test_a_window_holds_all_below_it_and_one_token_less_than_it_above(case: dict[str, Any]) -> None:
    found = traced(case)
    window = next(layer.window for layer in found.layers if layer.window)
    for length in (window - 1, window, window + 1, 4 * window):
        made = plan.make_plan(found, MemoryRequest(length))
        for layer in made.layers:
            per_token = 2 * layer.footprint.elements_per_token
            sliding = layer.footprint.kind == "sliding"
            assert layer.held_bytes == per_token * (min(length, window - 1) if sliding else length)
            assert layer.reserved_bytes == per_token * (min(length, window) if sliding else length)
        assert made.uniform_bytes == 2 * length * sum(layer.elements_per_token for layer in found.layers)
