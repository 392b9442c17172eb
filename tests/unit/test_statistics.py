"""Medians, ratios, intervals and lines: exact on small inputs, the interval's coverage by simulation."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.experiments.statistics import (
    Interval,
    fit_line,
    is_clear,
    line_of_one,
    line_of_runs,
    median,
    order_statistic_interval,
    paired_ratios,
    spread,
)
from kvdemo.facts.results import Spread
from tests.known import known


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
    assert nine is not None
    assert (nine.low, nine.high) == (2.0, 8.0)
    assert nine.coverage == pytest.approx(0.9609375)


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
    assert hits / trials == pytest.approx(known(interval).coverage, abs=0.014)


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
    assert (known(line).intercept, known(line).slope) == pytest.approx((35.0, 0.5))


def test_one_place_makes_no_line() -> None:
    assert fit_line([1], [1.0]) is None
    assert fit_line([2, 2], [1.0, 3.0]) is None


def noisy(seed: int, steps: int, slope: float = 0.0) -> list[float]:
    drawn = random.Random(seed)
    return [0.1 + slope * at + drawn.gauss(0, 0.01) for at in range(1, steps + 1)]


def test_one_answer_states_a_slope_that_is_there_with_its_two_standard_errors() -> None:
    line = line_of_one(noisy(0, 100, slope=0.001))
    assert line is not None
    assert line.low is not None
    assert line.high is not None
    assert line.slope == pytest.approx(0.001, rel=0.2)
    # noise of 0.01 around 100 places: a standard error of 0.01 / sqrt(100 * 9999 / 12) = 0.0000346
    assert line.high - line.low == pytest.approx(4 * 0.0000346, rel=0.3)
    assert line.low < line.slope < line.high


def test_one_answer_of_noise_states_a_slope_about_as_rarely_as_two_standard_errors_promise() -> None:
    told = sum(line_of_one(noisy(seed, 64)) is not None for seed in range(1000))
    # 5 % of 1,000 with four standard errors: 50 + 28
    assert told < 78


def test_below_32_steps_one_answer_states_no_slope_however_clear_it_looks() -> None:
    straight = [0.1 + 0.01 * at for at in range(32)]
    assert line_of_one(straight[:31]) is None
    assert line_of_one(straight) is not None


def test_equal_steps_have_no_slope_although_sums_of_floats_are_rounded() -> None:
    times = [sum([0.1] * at) for at in range(1, 101)]
    steps = [after - before for before, after in pairwise(times)]
    assert line_of_one(steps) is None
    assert line_of_runs([steps] * 6, steps) is None


def test_rounds_state_the_median_of_their_own_slopes_with_its_exact_interval() -> None:
    slopes = (0.001, 0.002, 0.003, 0.004, 0.005, 0.006)
    runs = [[0.1 + slope * at for at in range(1, 11)] for slope in slopes]
    middle = [0.1 + 0.0035 * at for at in range(1, 11)]
    line = line_of_runs(runs, middle)
    assert line is not None
    assert (line.low, line.slope, line.high) == pytest.approx((0.001, 0.0035, 0.006))
    assert line.intercept == pytest.approx(0.1)


def test_rounds_whose_slopes_point_both_ways_state_none() -> None:
    runs = [[0.1 + slope * at for at in range(1, 101)] for slope in (-0.001, 0.002, 0.003, 0.004, 0.005, 0.006)]
    assert line_of_runs(runs, runs[3]) is None


@pytest.mark.parametrize("rounds", [0, 2, 3, 5])
def test_too_few_rounds_for_an_interval_state_no_slope(rounds: int) -> None:
    steps = [0.1 + 0.001 * at for at in range(1, 101)]
    assert line_of_runs([steps] * rounds, steps) is None


def test_a_single_round_is_one_answer() -> None:
    steps = noisy(1, 100, slope=0.001)
    assert line_of_runs([steps], steps) == line_of_one(steps)
