"""Memory's words and what its tab shows, on the planner's own numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kvdemo.errors import ModelNotReady
from kvdemo.facts.plans import MemoryRequest
from kvdemo.planner import catalog
from kvdemo.planner.plan import make_plan
from kvdemo.ui.memory.cards import arithmetic_card, figures_card, fits_card
from kvdemo.ui.memory.form import MemoryForm
from kvdemo.ui.memory.plans import Beside, MemoryView, hint, plan_view, problem
from kvdemo.ui.memory.words import headline, headline_card, limit_mark, model_line, short_bytes
from tests.fake_backend import ARCHITECTURE, FakeBackend

LLAMA = "Llama-3.1-8B"
NBSP = "\N{NO-BREAK SPACE}"


def said(name: str = LLAMA, keeping: str = "dynamic", **request: Any) -> str:
    words: str = headline(make_plan(catalog.architecture(name), MemoryRequest(**request)), keeping)
    return words.replace(NBSP, " ")


def shown_parts(view: MemoryView) -> set[str]:
    return set(view)


def test_the_headline_says_size_share_and_whether_it_fits() -> None:
    assert said(seq_len=32_768, batch_size=8, budget_gib=80) == (
        "Llama-3.1-8B, 8 requests of 32,768 tokens: the cache takes **32 GiB, 2.1 times the weights**. With 15 GiB of "
        "weights that is **47 of 80 GiB: it fits**. With 10 % kept free, 14 such requests fit."
    )


def test_what_does_not_fit_is_said_with_what_would() -> None:
    assert said(seq_len=131_072, batch_size=8, budget_gib=80) == (
        "Llama-3.1-8B, 8 requests of 131,072 tokens need **143 GiB; you have 80: it does not fit**. "
        "3 such requests fit with 10 % kept free."
    )


def test_weights_that_do_not_fit_are_never_said_to_fit() -> None:
    assert "the weights alone need 15 GiB; you have 8: it does not fit" in said(seq_len=1024, budget_gib=8)


def test_what_fits_only_with_nothing_kept_free_is_said_so() -> None:
    words = said(seq_len=32_768, batch_size=15, budget_gib=80)
    assert "it fits only if nothing is kept free" in words
    assert "14 such requests fit" in words


def test_without_a_budget_nothing_is_said_about_fitting() -> None:
    assert (
        said(seq_len=1024)
        == "Llama-3.1-8B, 1 request of 1,024 tokens: the cache takes **128 MiB, 0.84 % of the weights**."
    )


@pytest.mark.parametrize("keep_free", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("budget", [14.9, 14.95, 14.96, 15.0, 46.9, 46.95, 46.958, 46.96, 47.0, 52.1, 52.2, 94.0])
def test_the_headline_never_says_fits_where_it_does_not_and_its_numbers_agree(budget: float, keep_free: float) -> None:
    plan = make_plan(catalog.architecture(LLAMA), MemoryRequest(32_768, 8, budget_gib=budget, keep_free=keep_free))
    words = headline(plan).replace(NBSP, " ")
    total = plan.reserved_bytes + (plan.weight_bytes or 0)
    assert ("it does not fit" in words) == (total > budget * 2**30)
    assert ("only if nothing is kept free" in words) == (budget * 2**30 * (1 - keep_free) < total <= budget * 2**30)
    if "of weights that is" in words:
        assert float(words.split("that is **")[1].split(" of ")[0]) <= budget
    else:
        assert float(words.split("need **")[-1].split("need ")[-1].split(" GiB; you have")[0]) > budget


def test_the_budget_of_the_loaded_model_is_this_machines_and_named_so() -> None:
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096, budget_gib=23.4), Beside())
    assert f"of 23.4{NBSP}GiB (this machine): it fits" in view["headline"]
    assert "What fits in 23.4 GiB (this machine)" in view["fits"]
    assert "weights as loaded: float32, 513 MiB" in view["headline"]
    big = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(8192, 1000, budget_gib=23.4), Beside())
    assert "this machine has 23.4: it does not fit" in big["headline"]


def test_a_budget_that_somebody_gave_and_the_usual_one_are_nobodys() -> None:
    for geometry, gib in ((ARCHITECTURE, 40), (catalog.architecture(LLAMA), 80), (catalog.architecture(LLAMA), 23.4)):
        view = plan_view(FakeBackend(), geometry, MemoryForm(4096, budget_gib=gib), Beside())
        assert "this machine" not in view["headline"] + view["fits"]


def test_weights_are_said_as_they_are_published_or_chosen() -> None:
    words = headline_card(make_plan(catalog.architecture("gpt-oss-120b"), MemoryRequest(4096, budget_gib=80)))
    assert "weights as published: mxfp4, 60.77 GiB" in words
    assert ": it fits" in words
    chosen = headline_card(make_plan(catalog.architecture("gpt-oss-120b"), MemoryRequest(4096, weights_dtype="int4")))
    assert "weights in int4, 54.40 GiB" in chosen
    assert "it fits" not in said("gpt-oss-120b", seq_len=4096, weights_dtype="bfloat16", budget_gib=80)


def test_a_reserved_cache_and_one_page_size_say_so() -> None:
    assert "a static cache reserves **10 GiB" in said("Gemma-3-27B", "static", seq_len=131_072)
    view = plan_view(
        FakeBackend(),
        catalog.architecture("Gemma-3-27B"),
        MemoryForm(131_072, keeping="uniform", budget_gib=None),
        Beside(),
    )
    assert "one page size for all layers takes <strong>62" in view["headline"]
    assert ">held</abbr></strong> 10.41 GiB" in view["figures"]


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (900, "900 B"), (5_662_310, "5.4 MiB"), (2**30, "1 GiB"), (34_359_738_368, "32 GiB")],
)
def test_a_headline_rounds_sizes_to_what_is_remembered(size: int, words: str) -> None:
    assert short_bytes(size) == words


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
    assert all(f">{name}</abbr></strong>" in gemma for name in ("held", "reserved", "uniform"))
    llama = figures_card(make_plan(catalog.architecture(LLAMA), MemoryRequest(seq_len=1024)))
    assert "Every attention layer keeps every token" in llama


def test_lengths_at_the_models_limit_are_marked() -> None:
    card = fits_card(make_plan(catalog.architecture(LLAMA), MemoryRequest(seq_len=1024, batch_size=8, budget_gib=80)))
    assert "131,072*" in card
    assert "limit; memory would allow more" in card
    assert "58,411" in card


def test_a_plan_is_drawn_with_three_charts() -> None:
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), Beside())
    assert [type(part).__name__ for part in (view["growth"], view["layers"], view["sharing"])] == ["Figure"] * 3
    assert view["notice"] == ""


def test_only_what_changed_is_sent_again() -> None:
    backend, first = FakeBackend(), plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), Beside())
    same = plan_view(backend, ARCHITECTURE, MemoryForm(4096), Beside(), first["shown"])
    assert shown_parts(same) == {"shown", "notice"}
    freer = plan_view(backend, ARCHITECTURE, MemoryForm(4096, keep_free_percent=20), Beside(), first["shown"])
    assert shown_parts(freer) == {"shown", "notice", "headline", "fits"}
    by_users = plan_view(backend, ARCHITECTURE, MemoryForm(4096), Beside("users"), first["shown"])
    assert shown_parts(by_users) == {"shown", "notice", "growth"}


def test_up_to_four_models_are_drawn_in_one_chart() -> None:
    names = ["Llama-3.1-8B", "Qwen3-4B", "Gemma-3-27B"]
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), Beside(models=names))
    drawn = {trace.name for trace in view["growth"].data}
    assert {*names, ARCHITECTURE.name} <= drawn
    refused = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), Beside(models=[*names, "Phi-4"]))
    assert "choose at most 3" in refused["notice"]


def test_a_model_is_not_drawn_beside_itself() -> None:
    view = plan_view(FakeBackend(), catalog.architecture(LLAMA), MemoryForm(4096), Beside(models=[LLAMA, LLAMA]))
    assert view["notice"] == ""
    assert LLAMA not in {trace.name for trace in view["growth"].data}


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("seq_len", 0, "sequence length"),
        ("seq_len", None, "sequence length"),
        ("seq_len", 10**400, "sequence length"),
        ("seq_len", float("nan"), "sequence length"),
        ("batch_size", 0, "requests at once"),
        ("batch_size", -1, "requests at once"),
        ("keeping", "paged", "cache"),
        ("keeping", [], "cache"),
        ("cache_dtype", "float7", "cache dtype"),
        ("weights_dtype", 7, "weights dtype"),
        ("budget_gib", "80", "budget"),
        ("budget_gib", 0, "budget"),
        ("budget_gib", -5, "budget"),
        ("budget_gib", float("inf"), "budget"),
        ("keep_free_percent", 100, "keep free"),
        ("tensor_parallel", 0, "devices"),
        ("page_tokens", 0, "page size"),
        ("page_tokens", 65_537, "page size"),
        ("page_tokens", "16", "page size"),
        ("encoder_len", 0, "encoder length"),
        ("encoder_len", "7", "encoder length"),
    ],
)
def test_bad_input_is_named_and_the_last_result_stays_and_is_marked(field: str, value: Any, named: str) -> None:
    shown = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096, 8), Beside())["shown"]
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(**{"seq_len": 1024, field: value}), Beside(), shown)
    assert view["notice"].startswith('<div class="kv-notice kv-stale"')
    assert f">{named}: " in view["notice"]
    assert f"Below: the last good result, {ARCHITECTURE.name}, 8 requests of 4,096 tokens." in view["notice"]
    assert shown_parts(view) == {"notice"}


@pytest.mark.parametrize(("by", "models"), [(7, ()), ("nothing", ()), ([], ())])
def test_an_unknown_axis_is_the_usual_one(by: Any, models: Any) -> None:
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), Beside(by, models))
    assert "grow with length" in view["growth"].layout.title.text


@pytest.mark.parametrize("models", [7, "Phi-4", [7], ["nobody"], [None]])
def test_models_beside_it_are_checked(models: Any) -> None:
    view = plan_view(FakeBackend(), ARCHITECTURE, MemoryForm(4096), Beside(models=models))
    assert shown_parts(view) == {"notice"}


def test_without_a_result_a_refusal_points_at_none() -> None:
    assert "Below" not in problem(ModelNotReady("still loading"))
    assert "Known models, a config.json and numbers typed by hand work already." in problem(
        ModelNotReady("still loading")
    )
    assert "Below" in hint("Paste it.", {"said": "Phi-4, 1 request of 8 tokens"})


def test_the_loaded_model_is_planned_in_its_own_dtype() -> None:
    assert MemoryForm(128).request(ARCHITECTURE).cache_dtype == "float32"
    assert MemoryForm(128, cache_dtype="float8").request(ARCHITECTURE).cache_dtype == "float8"


def test_what_is_counted_and_what_is_not_is_said_under_the_headline() -> None:
    card = headline_card(make_plan(catalog.architecture(LLAMA), MemoryRequest(seq_len=1024)))
    assert "Counted: weights and cache. Not counted: activations, runtime." in card
    assert "The cache passes the weights at 122,533 tokens per request." in card


def test_kinds_of_layer_and_kv_heads_are_explained_where_they_are_named() -> None:
    gemma = catalog.architecture("Gemma-3-27B")
    card = arithmetic_card(make_plan(gemma, MemoryRequest(131_072)))
    assert ">sliding</abbr> 1,024</strong>: 2 (K, V) × 16 heads × 128 × 1,023 tokens × 2 bytes" in card
    assert ">KV heads</abbr> of 128" in model_line(gemma)
    mamba = arithmetic_card(make_plan(catalog.architecture("Mamba-2.8B"), MemoryRequest(8)))
    assert ">linear state</abbr></strong>" in mamba


def test_weights_that_nobody_knows_are_never_said_to_fit() -> None:
    typed = FakeBackend().architecture_by_hand(32, 8, 128)
    words = headline(make_plan(typed, MemoryRequest(4096, budget_gib=80))).replace(NBSP, " ")
    assert words == (
        "A model typed by hand, 1 request of 4,096 tokens: the cache takes **512 MiB**. That is **512 MiB of 80 GiB without "
        "the weights**, which are not known: whether it fits cannot be said."
    )
    assert "it does not fit" in headline(make_plan(typed, MemoryRequest(10_000_000, budget_gib=80)))
    assert "Without the weights" in fits_card(make_plan(typed, MemoryRequest(4096, budget_gib=80)))
