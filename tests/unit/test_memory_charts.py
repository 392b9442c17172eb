"""The charts of Memory, tested by their data: growth with its crossings, where the cache sits, shared heads."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from kvdemo.charts.layer_charts import arithmetic, layer_chart, sharing_chart, terms
from kvdemo.charts.look import TEXT_PX
from kvdemo.charts.memory_growth_chart import growth_chart
from kvdemo.facts.plans import FixedState, LayerFootprint, MeasuredLayer, MeasuredPoint, MemoryRequest
from kvdemo.planner import catalog
from kvdemo.planner.plan import make_plan
from tests.drawn import named, texts
from tests.made_up import full_layers, plan_of, sliding_layers


def test_growth_marks_and_names_where_the_cache_passes_the_weights() -> None:
    figure = growth_chart(plan_of(batch_size=8, budget_gib=80))
    assert texts(figure, "crossing") == [
        "○ passes the weights at  15,317 tokens per request",
        "◇ fills the budget at  66,604 tokens per request",
    ]
    weights, _ = named(figure, "crossing")
    assert (weights.x, weights.y) == ((15_317,), (16_060_522_496,))
    assert {note.text for note in figure.layout.annotations if note.name.startswith("level")} == {
        "── weights 14.96 GiB",
        "─ ─ 80 GiB less weights",
    }
    held = named(figure, "dynamic, static")[0]
    assert held.y[held.x.index(131_072)] == 8 * 131_072 * 131_072


def test_growth_without_a_crossing_names_none() -> None:
    states = [LayerFootprint(index, "state", fixed=(FixedState(1000),)) for index in range(4)]
    figure = growth_chart(plan_of(states, num_parameters=10**9))
    assert texts(figure, "crossing") == []


def test_growth_by_users_and_layers_marks_the_first_that_reaches() -> None:
    plan = plan_of(batch_size=8, budget_gib=80)
    assert texts(growth_chart(plan, "users"), "crossing")[0] == "○ passes the weights at  4 requests at once"
    assert texts(growth_chart(plan, "layers"), "crossing") == ["○ passes the weights at  15 layers"]


def test_measured_points_are_drawn_on_top_for_one_askedonly() -> None:
    layers = tuple(MeasuredLayer(index, "full", 1000, 1000, 1000) for index in range(32))
    points = [MeasuredPoint("dynamic", 1024, layers)]
    (measured,) = named(growth_chart(plan_of(), measured=points), "measured")
    assert (measured.x, measured.y) == ((1024,), (32_000,))
    assert named(growth_chart(plan_of(batch_size=2), measured=points), "measured") == []


def test_several_models_are_told_apart_by_name_and_marker() -> None:
    others = [plan_of(full_layers(16, 8, 64), name="a<img src=x>"), plan_of(sliding_layers(), name="windowed")]
    figure = growth_chart(plan_of(), others=others)
    markers = [trace.marker.symbol for trace in figure.data if trace.name.endswith(" markers")]
    assert len(set(markers)) == 3
    assert "windowed: 139 MiB as asked" in " ".join(texts(figure, "label"))
    assert "<img" not in figure.to_json()


def test_layers_that_are_alike_fold_to_one_row_cut_into_heads() -> None:
    figure = layer_chart(plan_of(seq_len=1024))
    (bars,) = figure.data
    assert len(bars.x) == 8
    assert len(set(bars.y)) == 1
    assert texts(figure, "kind") == ["full, 8 heads: 32 layers of 4.0 MiB"]


def test_kinds_of_layers_are_named_and_every_layer_has_its_bytes() -> None:
    plan = plan_of(sliding_layers(), seq_len=2048)
    figure = layer_chart(plan)
    assert texts(figure, "kind") == ["▨ sliding 512 : 22 of 26 layers", "■ full : 4 of 26 layers"]
    drawn = sorted((y, round(x * 2**20)) for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True))
    assert drawn == [(layer.footprint.index, layer.held_bytes) for layer in plan.layers]
    assert "2 (K, V) × 1 head × 256 × 511 tokens × 2 bytes" in figure.data[0].customdata[0]


def test_layers_that_share_another_layers_cache_hold_nothing_and_say_whose_it_is() -> None:
    shared = LayerFootprint(2, "shared", shares=1)
    figure = layer_chart(plan_of([*full_layers(2, 2, 64), shared]))
    assert texts(figure, "kind")[1] == "shared: 1 layer of 0 B"
    assert "shared with layer 1" in figure.data[1].customdata[0]


def test_sharing_heads_is_shown_against_none_and_one() -> None:
    figure = sharing_chart(plan_of(seq_len=8192))
    assert figure.data[0].x == (4.0, 1.0, 0.125)
    assert texts(figure)[::2] == ["every head its own keys (32)", "as built (8)", "one shared head (1)"]
    latent = plan_of([LayerFootprint(0, "latent", 1, 512, 1, 64)])
    assert "nothing to share" in texts(sharing_chart(latent))[0]


@pytest.mark.parametrize(
    "asked", [{}, {"batch_size": 3, "cache_dtype": "float8"}, {"tensor_parallel": 4, "seq_len": 3000}]
)
@pytest.mark.parametrize("name", catalog.names())
def test_the_arithmetic_of_every_layer_adds_up_to_what_it_holds(name: str, asked: dict[str, Any]) -> None:
    plan = make_plan(catalog.architecture(name), MemoryRequest(**{"seq_len": 100_000, **asked}))
    for layer in plan.layers:
        assert plan.request.batch_size * sum(size for _, size in terms(plan, layer.footprint)) == layer.held_bytes
        assert f"{layer.held_bytes:,} bytes" in arithmetic(plan, layer)


def test_a_latent_cache_is_multiplied_as_a_sum_of_its_parts() -> None:
    plan = make_plan(catalog.architecture("DeepSeek-V3"), MemoryRequest(1000, 4))
    assert arithmetic(plan, plan.layers[0]).startswith("(1 × 512 + 1 × 64) × 1,000 tokens × 2 bytes × 4 requests:")


def test_a_budget_far_above_everything_is_told_and_does_not_press_the_lines_flat() -> None:
    figure = growth_chart(plan_of(num_parameters=10_000, layers=full_layers(2, 1, 8), budget_gib=80))
    assert texts(figure, "far") == ["80 GiB less weights: far above"]
    assert figure.layout.yaxis.range[1] < 10


@pytest.mark.parametrize("by", ["length", "users", "layers", "heads"])
@pytest.mark.parametrize("name", catalog.names())
def test_no_label_of_a_growth_chart_lies_over_another(name: str, by: str) -> None:
    for budget in (None, 24, 80, 1500):
        plan = make_plan(catalog.architecture(name), MemoryRequest(8192, 4, budget_gib=budget))
        figure = growth_chart(plan, by)
        rows = [
            note for note in figure.layout.annotations if note.name != "y title" and (note.yref, note.y) == ("paper", 1)
        ]
        assert rows
        edges = [(note.yshift, note.yshift - TEXT_PX * (1 + note.text.count("<br>")), note.text) for note in rows]
        for (_, bottom, text), (top, _, below) in pairwise(sorted(edges, reverse=True)):
            assert top <= bottom, (text, below)
        if len(rows) > 1:  # one alone says that this model has no such chart
            assert edges[-1][1] >= 0, "the last one reaches into the plot"
        assert max(top for top, _, _ in edges) + 22 <= figure.layout.margin.t
        widest = max(len(line) for _, _, text in edges for line in re.sub("</?b>", "", text).split("<br>"))
        assert widest <= 40, "wider than a phone"
