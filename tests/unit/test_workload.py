"""What somebody wants to use a model for: six numbers, checked; what a browser has kept is trusted no more than any input."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.workload import Workload

FULL: dict[str, Any] = {
    "longest_prompt_tokens": 2000,
    "longest_answer_tokens": 300,
    "at_once": 4,
    "memory_gib": 23.4,
    "target_s": 10.0,
    "other_s": 1.8,
}
BROKEN: tuple[Any, ...] = (0.5, -1, "7", [], {}, True, math.nan, math.inf, 10**400)


def test_nothing_said_is_known_as_nothing_said() -> None:
    assert {name: getattr(Workload(), name) for name in Workload.names()} == dict.fromkeys(FULL)
    assert Workload().longest_tokens is None
    assert Workload(longest_prompt_tokens=5).longest_tokens is None


def test_the_longest_request_is_prompt_and_answer_together() -> None:
    assert Workload(**FULL).longest_tokens == 2300


def test_no_time_elsewhere_is_a_time_and_not_an_unknown_one() -> None:
    assert Workload(other_s=0).other_s == 0.0


@pytest.mark.parametrize("name", ["longest_prompt_tokens", "longest_answer_tokens", "at_once"])
@pytest.mark.parametrize("value", BROKEN)
def test_a_number_of_tokens_or_requests_that_is_none_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Workload(**{name: value})
    assert refused.value.field == name


@pytest.mark.parametrize("name", ["memory_gib", "target_s", "other_s"])
@pytest.mark.parametrize("value", [value for value in BROKEN if value != 0.5])
def test_a_size_or_a_time_that_is_none_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Workload(**{name: value})
    assert refused.value.field == name


def test_what_a_browser_kept_comes_back() -> None:
    assert Workload.kept(FULL) == Workload(**FULL)
    assert Workload.kept({**FULL, "at_once": 4.0}).at_once == 4


@pytest.mark.parametrize("value", [None, 7, "text", [], [FULL], {}, {"more": 1}])
def test_a_kept_value_of_another_shape_is_dropped_without_an_error(value: Any) -> None:
    assert Workload.kept(value) == Workload()


@pytest.mark.parametrize("name", list(FULL))
@pytest.mark.parametrize("value", [*BROKEN[1:], "x" * 100_000, None])
def test_one_broken_number_in_a_browser_takes_no_other_with_it(name: str, value: Any) -> None:
    rest = {other: kept for other, kept in FULL.items() if other != name}
    assert Workload.kept({**FULL, name: value}) == Workload(**rest)
