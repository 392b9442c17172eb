"""Measured beside predicted on the tab Memory: what is measured, how it is told, and that no difference is hidden."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from kvdemo.errors import ModelUnavailable
from kvdemo.facts.model import Loading, StrategyRow
from kvdemo.facts.plans import LayerFootprint, MeasuredLayer, MeasuredPoint
from kvdemo.facts.reader import AT_ONCE, Reader
from kvdemo.facts.requests import MeasureSpec
from kvdemo.ui.memory.measured import lengths_of, measure, measured_card
from tests.fake_backend import ARCHITECTURE, STRATEGIES, FakeBackend

ROWS = {row.key: row for row in STRATEGIES}


def test_measured_equals_predicted_in_words() -> None:
    *going, last = measure(FakeBackend(), "me")
    assert last.done
    assert last.points is not None
    assert {(point.strategy, point.seq_len) for point in last.points} == {
        (strategy, length) for strategy in ("dynamic", "static") for length in (32, 256, 1024)
    }
    words = "30 of 30 layers hold exactly what was predicted, in 6 measured caches: 0 bytes difference."
    assert words in last.line
    assert last.card is not None
    assert words in last.card
    assert "3 of 6 done" in going[3].line


def test_every_strategy_with_a_cache_of_its_own_is_measured_and_the_rest_is_accounted_for() -> None:
    compiled = StrategyRow(
        "static-compiled", "Static cache, compiled", "", True, "crop", fixed_size=True, compiles=True
    )
    fp8 = StrategyRow("fp8", "8-bit float cache", "", False, "append")

    class More(FakeBackend):
        def strategies(self) -> tuple[StrategyRow, ...]:
            return (*STRATEGIES, compiled, fp8)

    *_, last = measure(More(), "me")
    assert last.points is not None
    assert {point.strategy for point in last.points} == {"dynamic", "static", "fp8"}
    assert last.card is not None
    assert "Not filled again: Static cache, compiled" in last.card
    assert "Not available here: Offloaded cache." in last.card
    assert "8-bit float cache" in last.card


def test_a_difference_is_never_hidden_and_has_its_cause_beside_it() -> None:
    layers = (
        MeasuredLayer(0, "full", 10, 10, 10),
        MeasuredLayer(1, "sliding", 12, 20, 10, cause="a view"),
        MeasuredLayer(2, "sliding", 12, 20, 10, cause="a view"),
    )
    card = measured_card((MeasuredPoint("dynamic", 8, layers, process_bytes=2**20),), 1, ROWS)
    assert "1 of 3 layers in 1 measured cache hold exactly what was predicted; the others differ by 4 bytes." in card
    differing, _, every = card.partition("<details>")
    assert "<td>2 sliding</td><td>10</td><td>12</td><td>2</td><td>20</td><td>a view</td>" in differing
    assert "<td>1 full</td>" in every
    assert "1.0 MiB, resident" in every
    assert "is no measure of the cache" in card


def test_storage_behind_a_view_is_told_even_where_nothing_else_differs() -> None:
    layers = (MeasuredLayer(0, "sliding", 10, 40, 10, cause="a view"),)
    card = measured_card((MeasuredPoint("dynamic", 8, layers),), 1, ROWS)
    assert "1 of 1 layers hold exactly what was predicted" in card
    assert "a view" in card


def test_what_was_measured_before_a_failure_or_a_stop_is_kept() -> None:
    class Stopped(FakeBackend):
        def measure_memory(
            self, spec: MeasureSpec, *, owner: str, reader: Reader = AT_ONCE
        ) -> Generator[MeasuredPoint, None, None]:
            yield MeasuredPoint("dynamic", 32, (MeasuredLayer(0, "full", 1, 1, 1),))

    class Failed(Stopped):
        def measure_memory(
            self, spec: MeasureSpec, *, owner: str, reader: Reader = AT_ONCE
        ) -> Generator[MeasuredPoint, None, None]:
            yield from super().measure_memory(spec, owner=owner)
            raise ModelUnavailable("The run failed.")

    *_, stopped = measure(Stopped(), "me")
    assert stopped.points is not None
    assert stopped.card is not None
    assert "Stopped after 1 of 6 caches." in stopped.card
    *_, failed = measure(Failed(), "me")
    assert failed.done
    assert "The run failed." in failed.line
    assert failed.points is not None


def test_nothing_is_measured_while_the_model_loads() -> None:
    (only,) = measure(FakeBackend(model=Loading("m", "starting")), "me")
    assert only.done
    assert only.points is None
    assert "still loading" in only.line


def test_lengths_lie_below_at_and_above_a_window_and_within_the_models_limit() -> None:
    window = replace(ARCHITECTURE, layers=(LayerFootprint(0, "sliding", 1, 64, 1, 64, window=512, held_window=511),))
    assert lengths_of(window, 8192) == (32, 256, 511, 512, 1024)
    assert lengths_of(ARCHITECTURE, 512) == (32, 256)
    assert lengths_of(ARCHITECTURE, 8) == (2,)
    assert lengths_of(ARCHITECTURE, None, 777) == (32, 256, 777, 1024)
    assert lengths_of(ARCHITECTURE, 8192, 100_000) == (32, 256, 1024)
    for odd in (None, 0, 1, True, "77", float("nan"), [5]):
        assert lengths_of(ARCHITECTURE, 8192, odd) == (32, 256, 1024)
