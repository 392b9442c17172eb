"""What "keeps only recent tokens" does, drawn: the strip, the map of layers and heads, and what is said of a step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvdemo.backend import Backend
from kvdemo.components.run_view import RunView
from kvdemo.experiments.step_words import recent_words, step_words
from kvdemo.facts.events import Finished
from kvdemo.facts.records import LayerBytes
from kvdemo.facts.requests import Message
from kvdemo.facts.steps import CacheLook, Stepped
from kvdemo.models.tiny_window import tiny_window_model
from kvdemo.ui.chat.look_card import look_card
from kvdemo.ui.chat.panel import panel
from kvdemo.ui.chat.stepping import words_of
from tests.tiny_backend import ready_backend

ASKED = (Message("user", "Which of them do you still hold?"),)
HELD = 15
WINDOW_LAYER = LayerBytes(0, "DynamicSlidingWindowLayer", 1, 1, 0, 0, 2, "cpu", (1, 2, HELD, 16))
FULL_LAYER = LayerBytes(1, "DynamicLayer", 1, 1, 0, 0, 2, "cpu", (1, 2, 40, 16))
QUANTISED = LayerBytes(0, "Fp8QuantizedLayer", 1, 1, 0, 0, 2, "cpu", None)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    made = ready_backend(model=tiny_window_model)
    yield made
    made.close()


def stepped(backend: Backend, layer: int) -> tuple[Stepped, CacheLook]:
    *_, first = backend.step(ASKED, layer=layer, owner="me")
    assert isinstance(first, Stepped)
    *_, last = backend.step(ASKED, first.made, layer=layer, owner="me")
    assert isinstance(last, Stepped)
    assert last.look is not None
    return last, last.look


def test_the_strip_of_a_window_shows_what_it_has_forgotten_and_a_full_layers_shows_all(backend: Backend) -> None:
    _, look = stepped(backend, layer=1)
    gone = look.tokens - HELD
    strip = str(look_card(look))
    assert f"Layer 1: {gone} forgotten, {HELD} held; the newest token is not in the cache yet." in strip
    assert re.findall(r'kv-part kv-part-(\w+)" style="flex:(\d+)', strip) == [
        ("forgotten", str(gone)),
        ("reused", str(HELD)),
        ("newest", "1"),
    ]
    _, look = stepped(backend, layer=2)
    assert f"Layer 2: {look.tokens} held; " in str(look_card(look))


def test_the_map_fills_each_layer_as_far_as_it_holds_the_text(backend: Backend) -> None:
    _, look = stepped(backend, layer=1)
    card = str(look_card(look))
    share = f"{100 * HELD / look.tokens:.1f}"
    widths = re.findall(r'kv-cell[^"]*"><span style="width:([\d.]+)%', card)
    assert widths == [share, share, share, share, "100.0", "100.0"] * 2
    assert f"4 of 6 layers keep only the newest {HELD} of {look.tokens} positions." in card
    assert card.count("kv-cell-chosen") == 1


def test_a_window_has_norms_for_what_it_holds_alone(backend: Backend) -> None:
    _, look = stepped(backend, layer=1)
    assert f"positions {look.tokens - HELD + 1} to {look.tokens}" in str(look_card(look))


def test_a_step_says_which_layers_keep_only_recent_positions(backend: Backend) -> None:
    last, look = stepped(backend, layer=0)
    read = look.tokens - 1
    words = words_of(last, 0, "")
    assert f"computed 1, read {read}, appended 1. Layer 2 keys [1, 2, {read}, 16] to [1, 2, {look.tokens}, 16]" in words
    assert f"4 of 6 layers keep only the newest {HELD} of {look.tokens} positions." in words


def test_after_a_chat_the_panel_shows_what_the_windows_still_hold(backend: Backend) -> None:
    view = RunView(kept=True)
    for event in backend.chat(ASKED, max_new_tokens=4, owner="chat", keep=True):
        view = view.after(event)
        if not isinstance(event, Finished):
            assert "kv-bar-window" not in panel(view, None, None)
    shown = panel(view, None, None)
    assert f"4 of 6 layers keep only the newest {HELD} of {view.cache_tokens} positions." in shown
    assert f'kv-part-forgotten" style="flex:{view.cache_tokens - HELD} 1 0"' in shown
    assert "each on average" in shown


def test_a_model_without_windows_shows_no_second_strip() -> None:
    plain = ready_backend()
    try:
        view = RunView(kept=True)
        for event in plain.chat(ASKED, max_new_tokens=4, owner="chat", keep=True):
            view = view.after(event)
        assert "kv-bar-window" not in panel(view, None, None)
        assert "on average" not in panel(view, None, None)
    finally:
        plain.close()


def test_what_is_not_known_is_hatched_and_said_instead_of_drawn_as_held() -> None:
    card = str(look_card(CacheLook(9, (QUANTISED, FULL_LAYER), (None, 9))))
    assert card.count("kv-cell-unknown") == 1
    assert "Hatched: not known how much." in card
    assert "Layer 0: how many positions it holds cannot be read off its data." in card


@pytest.mark.parametrize(
    ("layers", "positions", "words"),
    [
        ((WINDOW_LAYER, FULL_LAYER), HELD, ""),
        ((WINDOW_LAYER, FULL_LAYER), HELD + 1, "1 of 2 layers keeps only the newest 15 of 16 positions."),
        ((WINDOW_LAYER,) * 3, 40, "3 of 3 layers keep only the newest 15 of 40 positions."),
        (
            (WINDOW_LAYER, replace(WINDOW_LAYER, keys_shape=(1, 2, 31, 16)), FULL_LAYER),
            40,
            "2 of 3 layers keep only the newest 15 to 31 of 40 positions.",
        ),
        ((QUANTISED, FULL_LAYER), 40, ""),
        ((), 40, ""),
    ],
)
def test_a_window_is_told_from_the_position_on_that_it_forgets(
    layers: tuple[LayerBytes, ...], positions: int, words: str
) -> None:
    assert recent_words(layers, positions) == words
    said = step_words("With it", 1, positions - 1, more_bytes=8, layers=layers)
    assert said.endswith(words or ".")
    assert said.count("only the newest") == bool(words)
