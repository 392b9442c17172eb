"""The check values of the figures' definitions, on records made by hand."""

from __future__ import annotations

import pytest

from kvdemo.facts.units import format_bytes
from tests.scripted import even_times, record


def test_first_token_after_800_ms_then_nine_steps_of_50_ms() -> None:
    run = record(times_s=even_times(0.8, 0.05, 10))
    assert (run.ttft_s, run.prefill_s) == (0.8, 0.8)
    assert run.tpot_s == pytest.approx(0.05)
    assert run.decode_tokens_per_s == pytest.approx(20.0)
    assert run.generation_s == pytest.approx(1.25)
    assert run.step_s == pytest.approx([0.05] * 9)


def test_speed_uses_the_tokens_made_and_not_the_tokens_asked_for() -> None:
    run = record(times_s=even_times(0.2, 1.8 / 36, 37), finish_reason="stop")
    assert run.decode_tokens_per_s == pytest.approx(20.0)


def test_prefill_decode_and_generation_add_up() -> None:
    run = record(times_s=(0.5, 1.5, 2.5), queue_s=20.3, prepare_s=0.1, request_s=23.2)
    assert run.prefill_s is not None
    assert run.decode_s is not None
    assert run.prefill_s + run.decode_s == run.generation_s == 2.5
    # The queue stands beside the first-token time, never inside it.
    assert run.ttft_s == 0.5


@pytest.mark.parametrize(("times_s", "ttft_s"), [((), None), ((0.2,), 0.2)])
def test_no_token_or_one_token_makes_no_speed(times_s: tuple[float, ...], ttft_s: float | None) -> None:
    run = record(times_s=times_s)
    assert (run.ttft_s, run.tpot_s, run.decode_tokens_per_s, run.step_s) == (ttft_s, None, None, ())


def test_prefill_speed_counts_the_tokens_processed() -> None:
    uncached = record("none", even_times(0.5, 0.02, 101), prompt_tokens=1000)
    cached = record("dynamic", even_times(0.05, 0.02, 101), prompt_tokens=1000, reused_tokens=900)
    assert uncached.prefill_tokens_per_s == pytest.approx(2000)
    assert cached.prefill_tokens_per_s == pytest.approx(2000)
    assert uncached.decode_tokens_per_s == pytest.approx(50.0)
    assert (uncached.ttft_s or 0) - (cached.ttft_s or 0) == pytest.approx(0.45)


def test_a_gib_is_two_to_the_thirty() -> None:
    assert format_bytes(10_737_418_240) == "10.00 GiB"


@pytest.mark.parametrize("status", ["failed", "cancelled", "timed_out"])
def test_warm_ups_and_unfinished_runs_count_in_nothing(status: str) -> None:
    assert record(times_s=(0.1,)).counts
    assert not record(times_s=(0.1,), status=status).counts
    assert not record(times_s=(0.1,), warmup=True).counts


def test_work_is_the_sum_over_the_forwards() -> None:
    prompt, new = 4, 120
    cached = record("dynamic", positions_computed=(prompt,) + (1,) * (new - 1))
    uncached = record("none", positions_computed=tuple(prompt + step for step in range(new)))
    assert (cached.total_computed, uncached.total_computed) == (123, 7620)
