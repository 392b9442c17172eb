"""Which model Memory is about: what is asked for, read, typed or uploaded, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest, KvdemoError, ModelUnavailable
from kvdemo.ui.memory.models import BY_HAND, CONFIG, HUB, LOADED, ModelChoice, choices, heads_of, uploaded
from tests.fake_backend import ARCHITECTURE, FakeBackend

LIMIT = 5 * 2**20


def test_a_model_is_the_loaded_one_a_known_one_or_a_config() -> None:
    backend = FakeBackend()
    assert ModelChoice(LOADED).architecture(backend).name == ARCHITECTURE.name
    assert ModelChoice("Llama-3.1-8B").architecture(backend).name == "Llama-3.1-8B"
    with pytest.raises(InvalidRequest, match="line 1, column 2"):
        ModelChoice(CONFIG).architecture(backend, "{")


def test_a_model_typed_by_hand_has_its_numbers_and_no_weights_unless_given() -> None:
    typed = ModelChoice(BY_HAND, layers=32, kv_heads="8", head_dim=128)
    found = typed.architecture(FakeBackend())
    assert (len(found.layers), found.layers[0].kv_heads, found.num_parameters, found.method) == (32, 8, None, "by hand")
    with_weights = ModelChoice(BY_HAND, layers=2, kv_heads="8, 4", head_dim=128, parameters=8.03)
    found = with_weights.architecture(FakeBackend())
    assert [layer.kv_heads for layer in found.layers] == [8, 4]
    assert found.num_parameters == 8_030_000_000


@pytest.mark.parametrize(
    ("choice", "config", "field"),
    [
        (ModelChoice(CONFIG), "", "config"),
        (ModelChoice(CONFIG), None, "config"),
        (ModelChoice(CONFIG), "nul \x00", "config"),
        (ModelChoice(CONFIG), "x" * (LIMIT + 1), "config"),
        (ModelChoice("no such model"), "", "model"),
        (ModelChoice(7), "", "model"),
        (ModelChoice([]), "", "model"),
        (ModelChoice(HUB, hub_id=7), "", "model"),
        (ModelChoice(HUB, hub_id=""), "", "model"),
        (ModelChoice(BY_HAND, layers=0, kv_heads="8", head_dim=128), "", "layers"),
        (ModelChoice(BY_HAND, layers=4, kv_heads="0", head_dim=128), "", "kv_heads"),
        (ModelChoice(BY_HAND, layers=4, kv_heads="8, 8", head_dim=128), "", "kv_heads"),
        (ModelChoice(BY_HAND, layers=4, kv_heads="eight", head_dim=128), "", "kv_heads"),
        (ModelChoice(BY_HAND, layers=4, kv_heads=8, head_dim=128), "", "kv_heads"),
        (ModelChoice(BY_HAND, layers=4, kv_heads="8", head_dim=10**9), "", "head_dim"),
        (ModelChoice(BY_HAND, layers=4, kv_heads="8", head_dim=128, parameters=0), "", "parameters"),
        (ModelChoice(BY_HAND, layers=4, kv_heads="8", head_dim=128, parameters=float("nan")), "", "parameters"),
    ],
)
def test_what_is_no_model_is_refused_by_name(choice: ModelChoice, config: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        choice.architecture(FakeBackend(), config)
    assert refused.value.field == field


def test_the_hub_is_asked_only_where_it_can_be_reached_and_says_so_otherwise() -> None:
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        ModelChoice(HUB, hub_id="owner/name").architecture(FakeBackend())
    assert HUB in [value for _, value in choices(FakeBackend(), "local")]
    for mode in ("share", "space"):
        assert HUB not in [value for _, value in choices(FakeBackend(), mode)]


@pytest.mark.parametrize(
    ("typed", "heads"),
    [("8", 8), (" 8 ", 8), ("8, 8,4", [8, 8, 4]), ("8 8\n4", [8, 8, 4]), ("8;4", [8, 4]), ("", None), ("  ", None)],
)
def test_kv_heads_are_one_number_or_a_list(typed: str, heads: Any) -> None:
    assert heads_of(typed) == heads


@pytest.mark.parametrize("typed", ["8,", "-8", "8.5", "8 x 4", "٨", "1234567", "8" * 8001, None, "\x00"])
def test_other_kv_heads_are_refused(typed: Any) -> None:
    with pytest.raises(InvalidRequest, match="kv_heads"):
        heads_of(typed)


def test_an_uploaded_config_is_read_as_text_and_deleted(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes('\ufeff{"model_type": "llama"}'.encode())
    assert uploaded(str(file), LIMIT) == '{"model_type": "llama"}'
    assert not file.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x" * 1001])
def test_a_file_that_cannot_be_a_config_is_refused_and_deleted(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InvalidRequest, match="config"):
        uploaded(str(file), 1000)
    assert not file.exists()


@pytest.mark.parametrize("path", [None, 7, "/nowhere/at/all.json"])
def test_no_file_is_refused(path: Any) -> None:
    with pytest.raises(KvdemoError, match="config"):
        uploaded(path, LIMIT)
