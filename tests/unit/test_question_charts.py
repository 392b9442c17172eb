"""The charts of the further questions and of a conversation, tested by their data."""

from __future__ import annotations

import re

import pytest

from kvdemo.charts.chat_charts import first_token_chart
from kvdemo.charts.static_svg import figure_svg
from kvdemo.questions.application.charts import forwards_chart, telling_call
from kvdemo.questions.grow.charts import growth_ratio_chart
from kvdemo.questions.prefix.charts import prefix_chart
from kvdemo.questions.prompts.charts import prompt_ratios_chart, prompt_set_chart
from tests.drawn import named, texts
from tests.known import known
from tests.made_up import application_of, growth_of, prefix_of, prompt_set_of, run_of


def test_first_tokens_without_reuse_are_drawn_only_where_they_were_measured() -> None:
    turns = [run_of("dynamic", (0.1 * at, 1.0)) for at in (1, 2, 3)]
    figure = first_token_chart(turns, [None, None, 0.9])
    assert (named(figure, "read again")[0].x, named(figure, "cache kept")[0].x) == ((3,), (1, 2, 3))
    assert named(first_token_chart(turns), "read again") == []


def test_growth_of_the_gain_has_a_line_per_prompt_length_with_intervals() -> None:
    growth = growth_of(prompts=(16, 128), answers=(16, 32))
    figure = growth_ratio_chart(growth)
    assert [trace.x for trace in figure.data if trace.name in ("16", "128")] == [(16, 32), (16, 32)]
    comparison = growth.points[0].result.comparison("dynamic")
    assert comparison is not None
    assert named(figure, "16")[0].y[0] == comparison.ratio
    assert named(figure, "interval")[0].y[:2] == (comparison.low, comparison.high)


def test_a_set_shows_each_prompt_and_the_longest_allowed() -> None:
    figure = prompt_set_chart(prompt_set_of())
    (prompts,) = named(figure, "prompts")
    assert (prompts.x, prompts.y) == ((20, 170, 320), (30, 40, 50))
    assert texts(figure, "limit")[0].startswith("longest allowed: 600 tokens")


def test_the_prompt_that_gains_least_is_named_first() -> None:
    figure = prompt_ratios_chart(prompt_set_of(), "dynamic")
    (ratios,) = named(figure, "ratio")
    assert list(ratios.x) == sorted(ratios.x)
    assert texts(figure, "worst")[0].startswith("least: question-1")


def test_a_prefix_shows_both_times_of_every_question_and_when_it_pays() -> None:
    figure = prefix_chart(prefix_of(3))
    assert named(figure, "processed every time")[0].y == pytest.approx((1.6, 1.61, 1.62))
    assert named(figure, "kept and copied")[0].y == pytest.approx((0.11, 0.112, 0.114))
    assert "pays from question" in texts(figure, "price")[0]


def test_the_forwards_of_a_call_lie_where_their_axis_says_also_in_a_report() -> None:
    figure = forwards_chart(known(telling_call(application_of())))
    computed, read = figure.data
    assert (tuple(computed.x), tuple(read.x)) == ((4, 1, 1, 1), (0, 4, 5, 6))
    assert tuple(figure.layout.xaxis.range) == pytest.approx((0, 1.04 * 7))
    zero_px, whole_px = 72, 640 - 14 - 72
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', figure_svg(figure, 640))
    assert {float(x) for x, _ in bars[:4]} == {zero_px}
    assert float(bars[0][1]) == pytest.approx(4 / (1.04 * 7) * whole_px, rel=0.02)
    assert float(bars[1][1]) == pytest.approx(float(bars[0][1]) / 4, rel=0.02)


def test_what_is_drawn_on_an_axis_without_a_range_is_refused() -> None:
    figure = growth_ratio_chart(growth_of(prompts=(16, 128), answers=(16, 32)))
    figure.layout.xaxis.range = None
    with pytest.raises(ValueError, match="has no range"):
        figure_svg(figure, 640)
