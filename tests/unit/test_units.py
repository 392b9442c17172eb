"""Numbers as people read them: units, digits, edges of rounding."""

from __future__ import annotations

import math

import pytest

from kvdemo.facts.units import (
    format_bytes,
    format_count,
    format_parameters,
    format_ratio,
    format_seconds,
    format_speed,
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "n/a"), (math.nan, "n/a"), (0, "0 ms"), (1.785e-08, "1.8e-05 ms"), (0.0005, "0.50 ms"),
        (0.0338, "33.8 ms"), (0.0999, "99.9 ms"), (0.144, "144 ms"), (0.9996, "1.0 s"), (4.1, "4.1 s"),
        (17.31, "17.3 s"), (99.97, "100 s"), (125, "2 min 5 s"), (120, "2 min"), (3720, "1 h 2 min"), (-0.2, "-200 ms"),
    ],
)  # fmt: skip
def test_seconds(seconds: float | None, words: str) -> None:
    assert format_seconds(seconds) == words


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (None, "n/a"), (0, "0 B"), (512, "512 B"), (46_080, "45.0 KiB"), (5_662_310, "5.4 MiB"),
        (10_737_418_240, "10.00 GiB"), (538_060_032, "513 MiB"), (2**30 - 1, "1.00 GiB"), (2**40 * 3, "3.00 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)  # fmt: skip
def test_bytes_are_powers_of_two_and_say_so(num_bytes: int | None, words: str) -> None:
    assert format_bytes(num_bytes) == words


def test_counts_ratios_speeds_and_parameters() -> None:
    assert format_count(7620) == "7,620"
    assert [format_ratio(value) for value in (1.013, 4.21, 61.95, None)] == ["1.01", "4.2", "62", "n/a"]
    assert [format_speed(value) for value in (29.62, 1234.4, math.inf)] == ["29.6 tok/s", "1,234 tok/s", "n/a"]
    assert [format_parameters(value) for value in (12, 12_345, 134_515_008, 8_030_261_248)] == [
        "12", "12.3 k", "134.5 M", "8.0 B",
    ]  # fmt: skip
