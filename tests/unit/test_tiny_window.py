"""The model that kvdemo builds itself: its windows hold the newest positions alone, and everybody is told that it is random."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kvdemo.backend import Backend
from kvdemo.facts.decision import InspectSpec
from kvdemo.facts.events import Finished
from kvdemo.facts.plans import MeasuredPoint
from kvdemo.facts.requests import MeasureSpec, Message
from kvdemo.facts.steps import CacheLook, Stepped
from kvdemo.models.source import ModelSource, resolve
from kvdemo.models.tiny_window import tiny_window_model
from kvdemo.models.tokenizer import load_tokenizer
from kvdemo.planner import catalog
from kvdemo.report.reproduce import model_id, to_fill_in
from kvdemo.settings import TINY_WINDOW, TINY_WINDOW_NAME, Settings
from kvdemo.ui.memory.links import asked_by
from tests.made_up_model import MODEL
from tests.tiny import tiny_tokenizer
from tests.tiny_backend import ready_backend

ASKED = (Message("user", "Which of them do you still hold?"),)
WINDOW = 16
HELD_BY_A_WINDOW = {"dynamic": WINDOW - 1, "static": WINDOW}  # the newest token's own keys are the sixteenth
WINDOWS = (True, True, False, True, True, False)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    made = ready_backend(model=tiny_window_model)
    yield made
    made.close()


def held_by(strategy: str, tokens: int) -> tuple[int, ...]:
    return tuple(min(tokens, HELD_BY_A_WINDOW[strategy]) if window else tokens for window in WINDOWS)


@pytest.mark.parametrize("strategy", ["dynamic", "static"])
def test_its_windows_hold_the_newest_positions_and_its_other_layers_all(backend: Backend, strategy: str) -> None:
    made: tuple[int, ...] = ()
    for _ in range(3):
        *_, last = backend.step(ASKED, made, strategy=strategy, layer=1, owner=strategy)
        assert isinstance(last, Stepped)
        assert last.look is not None
        made, tokens = last.made, last.look.tokens
        assert last.look.held == held_by(strategy, tokens)
        assert last.look.first == tokens - HELD_BY_A_WINDOW[strategy]
        assert len(last.look.key_norms) == HELD_BY_A_WINDOW[strategy]


def test_after_a_chat_the_kept_cache_holds_the_same(backend: Backend) -> None:
    *_, end = backend.chat(ASKED, max_new_tokens=5, owner="chat", keep=True)
    assert isinstance(end, Finished)
    *_, looked = backend.look(layer=2, owner="chat")
    assert isinstance(looked, CacheLook)
    assert looked.tokens == end.record.cache_tokens
    assert looked.held == held_by("dynamic", looked.tokens)
    assert len(looked.key_norms) == looked.tokens


@pytest.mark.parametrize("tokens", [WINDOW - 2, WINDOW - 1, WINDOW, 5 * WINDOW])
def test_the_planner_predicts_what_every_layer_holds(backend: Backend, tokens: int) -> None:
    spec = MeasureSpec((tokens,), ("dynamic", "static"))
    points = [point for point in backend.measure_memory(spec, owner="plan") if isinstance(point, MeasuredPoint)]
    assert [point.strategy for point in points] == ["dynamic", "static"]
    for point in points:
        assert [layer.kind for layer in point.layers] == ["sliding" if window else "full" for window in WINDOWS]
        assert [layer.held_bytes for layer in point.layers] == [layer.predicted_bytes for layer in point.layers]


def test_it_is_the_same_model_every_time_and_the_random_numbers_of_others_stay_theirs() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, other = tiny_window_model(), tiny_window_model()
    assert torch.rand(1) == expected
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_its_name_is_a_key_of_its_own_and_says_that_it_is_random(tmp_path: Path) -> None:
    source = resolve(TINY_WINDOW, tmp_path, cache=tmp_path / "hub", allow_network=False)
    assert (source.kind, source.name) == ("built", TINY_WINDOW_NAME)
    assert "random weights: its text means nothing" in source.sentence
    assert "random weights" in source.name


def test_a_link_opens_it_in_memory() -> None:
    asked = asked_by({"tab": "memory", "model": TINY_WINDOW}, catalog.names(), hub=False)
    assert asked.choice.model == TINY_WINDOW
    assert asked.problems == ()


def test_a_command_names_it_by_its_key_and_a_script_is_told_that_nobody_else_has_it() -> None:
    facts = dataclasses.replace(MODEL, name=TINY_WINDOW_NAME, hub_id=None)
    assert model_id(facts) == TINY_WINDOW
    assert "built by kvdemo alone" in to_fill_in(facts)


def test_what_is_in_force_for_it_is_said_before_it_is_built() -> None:
    decision = Backend(Settings(model=TINY_WINDOW, device="cpu")).inspect(InspectSpec())
    assert (decision.value, decision.cache_class) == (True, "DynamicCache")


def test_its_tokenizer_alone_is_the_default_models_under_its_own_name(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    vocabulary = ModelSource("folder", "words", "Weights from the folder words.", tmp_path)
    found = load_tokenizer(ModelSource("built", TINY_WINDOW_NAME, "", None, vocabulary=vocabulary), tmp_path)
    assert (found.facts.name, found.facts.hub_id) == (TINY_WINDOW_NAME, None)
    assert found.tokenizer("hi")["input_ids"] == [104, 105]


@pytest.mark.real
def test_it_is_loaded_by_its_key_with_the_default_models_tokenizer() -> None:
    backend: Any = Backend(Settings(model=TINY_WINDOW, device="cpu"))
    try:
        backend.start()
        backend.wait_until_settled()
        facts = backend.describe()
        assert (facts.name, facts.has_chat_template, facts.hub_id) == (TINY_WINDOW_NAME, True, None)
        assert facts.num_parameters == catalog.architecture(TINY_WINDOW).num_parameters
        assert backend.architecture().layers == catalog.architecture(TINY_WINDOW).layers
    finally:
        backend.close()
