"""Memory's words and handlers, on the planner's own numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kvdemo.facts.model import Loading
from kvdemo.facts.plans import MeasuredLayer, MeasuredPoint, MemoryRequest
from kvdemo.planner import catalog
from kvdemo.planner.plan import make_plan
from kvdemo.ui.memory_plans import (
    LOADED,
    PASTED,
    MemoryForm,
    architecture,
    limit_mark,
    measure,
    measured_card,
    plan_view,
)
from kvdemo.ui.memory_words import arithmetic_card, figures_card, fits_card, headline, model_line
from tests.fake_backend import ARCHITECTURE, FakeBackend

LLAMA = "Llama-3.1-8B"
NBSP = "\N{NO-BREAK SPACE}"


def said(name: str = LLAMA, **request: Any) -> str:
    return headline(make_plan(catalog.architecture(name), MemoryRequest(**request))).replace(NBSP, " ")


def test_the_headline_says_size_share_and_whether_it_fits() -> None:
    assert said(seq_len=32_768, batch_size=8, budget_gib=80) == (
        "Llama-3.1-8B, 8 requests of 32,768 tokens: the cache takes **32.00 GiB, 2.1 times the weights**. With 14.96 GiB of "
        "weights that is **46.96 GiB of 80 GiB: it fits**. With 10 % kept free, 14 such requests fit."
    )


def test_what_does_not_fit_is_said_with_what_would() -> None:
    assert said(seq_len=131_072, batch_size=8, budget_gib=80) == (
        "Llama-3.1-8B, 8 requests of 131,072 tokens need **143 GiB with the weights; you have 80 GiB: it does not fit**. "
        "With 10 % kept free, 3 such requests fit."
    )


def test_weights_that_do_not_fit_are_never_said_to_fit() -> None:
    assert "the weights alone need 14.96 GiB; you have 8 GiB: it does not fit" in said(seq_len=1024, budget_gib=8)


def test_what_fits_only_with_nothing_kept_free_is_said_so() -> None:
    words = said(seq_len=32_768, batch_size=15, budget_gib=80)
    assert "it fits only if nothing is kept free" in words
    assert "14 such requests fit" in words


def test_without_a_budget_nothing_is_said_about_fitting() -> None:
    assert (
        said(seq_len=1024)
        == "Llama-3.1-8B, 1 request of 1,024 tokens: the cache takes **128 MiB, 0.84 % of the weights**."
    )


@pytest.mark.parametrize("name", catalog.names())
def test_every_known_model_can_be_told(name: str) -> None:
    geometry = catalog.architecture(name)
    plan = make_plan(geometry, MemoryRequest(seq_len=2048, batch_size=2, budget_gib=80))
    for fragment in (
        arithmetic_card(plan),
        figures_card(plan),
        fits_card(plan),
        model_line(geometry),
        limit_mark(geometry),
    ):
        assert fragment.startswith("<div")
        assert "\n" not in fragment
    assert f"{plan.held_bytes:,} bytes" in arithmetic_card(plan)


def test_the_arithmetic_has_the_numbers_in_it() -> None:
    card = arithmetic_card(make_plan(catalog.architecture(LLAMA), MemoryRequest(seq_len=32_768, batch_size=8)))
    assert "32 layers × 2 (K, V) × 8 heads × 128 × 2 bytes" in card
    assert "131,072 bytes per token" in card
    assert "34,359,738,368 bytes = 32.00 GiB" in card


def test_the_three_figures_are_named_where_they_differ() -> None:
    gemma = figures_card(make_plan(catalog.architecture("Gemma-3-27B"), MemoryRequest(seq_len=131_072)))
    assert all(f"<strong>{name}:" in gemma for name in ("held", "reserved", "uniform"))
    llama = figures_card(make_plan(catalog.architecture(LLAMA), MemoryRequest(seq_len=1024)))
    assert "every layer keeps every token" in llama


def test_lengths_at_the_models_limit_are_marked() -> None:
    card = fits_card(make_plan(catalog.architecture(LLAMA), MemoryRequest(seq_len=1024, batch_size=8, budget_gib=80)))
    assert "131,072*" in card
    assert "limit; memory would allow more" in card
    assert "58,411" in card


def test_a_plan_is_drawn_with_three_charts() -> None:
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), "length")
    assert [type(part).__name__ for part in (view.growth, view.layers, view.sharing)] == ["Figure"] * 3
    assert view.notice == ""


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("seq_len", 0, "sequence length"),
        ("seq_len", None, "sequence length"),
        ("seq_len", 10**400, "sequence length"),
        ("seq_len", float("nan"), "sequence length"),
        ("batch_size", -1, "requests at once"),
        ("cache_dtype", "float7", "cache dtype"),
        ("weights_dtype", 7, "weights_dtype"),
        ("budget_gib", "80", "budget_gib"),
        ("keep_free_percent", 100, "keep free"),
        ("tensor_parallel", 0, "devices"),
    ],
)
def test_bad_input_is_named_and_the_last_result_stays(field: str, value: Any, named: str) -> None:
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(**{"seq_len": 1024, field: value}), "length")
    assert named in view.notice
    assert "last result" in view.notice
    assert view.headline == {"__type__": "update"}


def test_the_loaded_model_is_planned_in_its_own_dtype() -> None:
    assert MemoryForm(128).request(ARCHITECTURE).cache_dtype == "float32"
    assert MemoryForm(128, cache_dtype="float8").request(ARCHITECTURE).cache_dtype == "float8"


def test_a_model_is_the_loaded_one_a_known_one_or_a_pasted_config() -> None:
    backend = FakeBackend()
    assert architecture(backend, LOADED, "").name == ARCHITECTURE.name
    assert architecture(backend, LLAMA, "").name == LLAMA
    with pytest.raises(Exception, match="line 1, column 2"):
        architecture(backend, PASTED, "{")


def test_measured_equals_predicted_in_words() -> None:
    *_, (card, points) = measure(FakeBackend(), "me")
    assert points is not None
    assert len(points) == 6
    assert "30 of 30 layers hold exactly what was predicted, in 6 measured caches: 0 bytes difference." in card


def test_a_difference_is_never_hidden() -> None:
    layers = (MeasuredLayer(0, "full", 10, 10, 10), MeasuredLayer(1, "sliding", 12, 20, 10, cause="a view"))
    card = measured_card((MeasuredPoint("dynamic", 8, layers),), 1)
    assert "1 of 2 measured layers hold exactly what was predicted; 2 bytes differ." in card
    assert "a view" in card


def test_nothing_is_measured_while_the_model_loads() -> None:
    ((card, points),) = measure(FakeBackend(model=Loading("m", "starting")), "me")
    assert points is None
    assert "still loading" in card
