"""The charts of the further questions and of a conversation, tested by their data."""

from __future__ import annotations

import pytest

from kvdemo.charts.chat_charts import first_token_chart
from kvdemo.questions.grow.charts import growth_ratio_chart
from kvdemo.questions.prefix.charts import prefix_chart
from kvdemo.questions.prompts.charts import prompt_ratios_chart, prompt_set_chart
from tests.drawn import named, texts
from tests.made_up import growth_of, prefix_of, prompt_set_of, run_of


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
