"""Medians, ratios, intervals and lines: exact on small inputs, the interval's coverage by simulation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.experiments.statistics import (
    Interval,
    fit_line,
    is_clear,
    median,
    order_statistic_interval,
    paired_ratios,
    spread,
)
from kvdemo.facts.results import Line, Spread


def test_median_is_the_middle_and_skips_what_is_missing() -> None:
    assert median([9.8, 1.02, None, 0.98, 1.0]) == pytest.approx(1.01)
    assert median([1.02, 0.98, 1.0]) == 1.0
    assert median([None, float("nan")]) is None


def test_spread_names_the_range_and_the_count() -> None:
    assert spread([3.0, None, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0, n=3)
    assert spread([]) is None


def test_a_pair_without_a_value_or_with_a_zero_makes_no_ratio() -> None:
    assert paired_ratios([(4.0, 2.0), (None, 1.0), (1.0, None), (1.0, 0.0), (9.0, 3.0)]) == (2.0, 3.0)


def test_six_values_give_min_to_max_and_nine_the_second_to_the_eighth() -> None:
    six = order_statistic_interval([6.0, 1.0, 5.0, 2.0, 4.0, 3.0])
    assert six == Interval(1.0, 6.0, 0.96875)
    nine = order_statistic_interval([float(value) for value in range(1, 10)])
    assert nine == Interval(2.0, 8.0, pytest.approx(0.9609375))


@pytest.mark.parametrize("count", range(6))
def test_below_six_values_there_is_no_interval(count: int) -> None:
    assert order_statistic_interval([1.0] * count) is None


@pytest.mark.parametrize("count", [6, 7, 9, 15, 30])
def test_the_interval_covers_the_median_as_often_as_it_says(count: int) -> None:
    drawn = random.Random(count)
    hits, trials = 0, 4000
    for _ in range(trials):
        values = [drawn.lognormvariate(0, 1) for _ in range(count)]
        interval = order_statistic_interval(values)
        assert interval is not None
        assert interval.coverage >= 0.95
        hits += interval.low <= 1 <= interval.high
    # 4,000 trials: four standard errors are 0.014
    assert hits / trials == pytest.approx(interval.coverage, abs=0.014)


@given(st.lists(st.floats(0.1, 10), min_size=6, max_size=60))
def test_the_interval_always_encloses_the_median(values: list[float]) -> None:
    interval, middle = order_statistic_interval(values), median(values)
    assert interval is not None
    assert middle is not None
    assert interval.low <= middle <= interval.high


def test_clear_means_an_interval_within_five_percent_on_both_sides() -> None:
    assert is_clear([4.0, 4.1, 4.0, 4.1, 4.0, 4.1])
    assert not is_clear([4.0, 4.5, 4.0, 4.1, 4.0, 4.1])
    assert not is_clear([4.0] * 5)


def test_a_straight_line_is_found_again() -> None:
    line = fit_line([1, 2, 3, 4], [35.5, 36.0, 36.5, 37.0])
    assert line == Line(intercept=pytest.approx(35.0), slope=pytest.approx(0.5))


def test_one_place_makes_no_line() -> None:
    assert fit_line([1], [1.0]) is None
    assert fit_line([2, 2], [1.0, 3.0]) is None
