"""Rounds, ratios, verdicts and failures of a comparison, on scripted runs and a scripted clock."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.compare import compare
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult, Noise
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.summary import arms, first_difference, summarise
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, TokenEmitted, Working
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, SamplingParams
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress
from kvdemo.questions.faster.words import headline
from tests.made_up_model import ENVIRONMENT, MODEL, ROWS
from tests.scripted import Clock, Script, ScriptedRun, bench_of, even_times, record

STEP_S = {"none": 0.4, "dynamic": 0.1, "static": 0.2, "static-compiled": 0.05, "fp8": 0.1}


def steady(request: GenerationRequest, earlier: int) -> RunRecord:
    step_s = STEP_S[request.strategy]
    return record(request.strategy, even_times(step_s, step_s, request.max_new_tokens))


def play(spec: CompareSpec, script: Script = steady, **options: Any) -> tuple[list[Any], ComparisonResult, ScriptedRun]:
    clock = Clock()
    run = ScriptedRun(script, clock, stop=options.get("stop", lambda: False))
    own = {name: options.pop(name) for name in ("prompt_tokens", "warm_up") if name in options}
    *steps, result = compare(spec, bench_of(run, clock=clock, **options), **own)
    assert isinstance(result, ComparisonResult)
    return steps, result, run


def at_once(figure: float | None) -> Generator[Working, None, float | None]:
    """A measurement that needs no time."""
    yield from ()
    return figure


def spec_of(*strategies: str, **changes: Any) -> CompareSpec:
    fields = {"prompt": "The red cat was", "strategies": strategies or ("none", "dynamic"), "max_new_tokens": 12}
    return CompareSpec(**{**fields, **changes})


def places(result: ComparisonResult, *, warmup: bool = False) -> list[tuple[int | None, int | None, str | None]]:
    return [(run.round, run.order, run.strategy) for run in result.runs if run.warmup is warmup]


def test_two_arms_alternate_who_goes_first() -> None:
    _, result, _ = play(spec_of(rounds=3))
    assert places(result) == [
        (1, 1, "none"), (1, 2, "dynamic"), (2, 1, "dynamic"), (2, 2, "none"), (3, 1, "none"), (3, 2, "dynamic"),
    ]  # fmt: skip


def test_three_arms_rotate_so_that_each_goes_first_once() -> None:
    _, result, _ = play(spec_of("none", "dynamic", "fp8", rounds=3))
    assert [strategy for _, _, strategy in places(result)] == [
        "none", "dynamic", "fp8", "dynamic", "fp8", "none", "fp8", "none", "dynamic",
    ]  # fmt: skip


def test_each_arm_has_a_short_warm_up_of_its_own_that_counts_in_nothing() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        made = steady(request, earlier)
        return made if earlier else record(request.strategy, [9.8 + t for t in made.token_times_s])

    _, result, run = play(spec_of(rounds=1), script)
    assert places(result, warmup=True) == [(0, 1, "none"), (0, 2, "dynamic")]
    assert [request.max_new_tokens for request in run.requests] == [8, 8, 12, 12]
    assert [arm.n for arm in arms(result)] == [1, 1]
    assert arms(result)[1].warmup_s == pytest.approx(9.8 + 0.8)
    assert result.comparisons[0].ratio == pytest.approx(4.0)


def test_runs_980_102_098_100_with_one_warm_up_have_the_median_100() -> None:
    totals = [9.80, 1.02, 0.98, 1.00]

    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, [totals[earlier] / 2, totals[earlier]])

    _, result, _ = play(spec_of(rounds=3), script)
    arm = arms(result)[1]
    assert arm.generation_s is not None
    assert (arm.generation_s.median, arm.generation_s.n, arm.warmup_s) == (1.00, 3, 9.80)


def test_the_ratio_is_taken_inside_each_round_and_the_median_of_the_ratios_is_the_result() -> None:
    # The machine gets slower from round to round, both arms alike: ratios stay 4 although absolute times triple.
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, [t * max(earlier, 1) for t in steady(request, earlier).token_times_s])

    _, result, _ = play(spec_of(rounds=6), script)
    comparison = result.comparison("dynamic")
    assert comparison is not None
    assert comparison.ratios == pytest.approx([4.0] * 6)
    assert (comparison.coverage, comparison.rounds, comparison.range_only) == (0.96875, 6, False)


def test_every_other_arm_is_compared_with_the_first_for_four_metrics() -> None:
    _, result, _ = play(spec_of("dynamic", "none", "fp8"))
    assert [(item.baseline, item.candidate, item.metric) for item in result.comparisons] == [
        ("dynamic", candidate, metric)
        for candidate in ("none", "fp8")
        for metric in ("generation_s", "ttft_s", "tpot_s", "request_s")
    ]
    assert result.comparisons[0].ratio == pytest.approx(0.25)


@pytest.mark.parametrize(("rounds", "low", "coverage", "ranged"), [(1, None, None, False), (3, 4.0, None, True)])
def test_below_six_rounds_there_is_a_range_at_most(
    rounds: int, low: float | None, coverage: float | None, ranged: bool
) -> None:
    _, result, _ = play(spec_of(rounds=rounds))
    comparison = result.comparisons[0]
    assert comparison.low == (None if low is None else pytest.approx(low))
    assert (comparison.coverage, comparison.range_only, comparison.rounds) == (coverage, ranged, rounds)


def test_arms_that_made_different_numbers_of_tokens_are_compared_by_speed_per_token() -> None:
    # 65 tokens with 3.2 s of decode against 42 with 8.2 s: 20.0 against 5.0 tok/s
    made = {"dynamic": even_times(0.05, 3.2 / 64, 65), "none": even_times(0.05, 8.2 / 41, 42)}
    _, result, _ = play(
        spec_of(fixed_length=False), lambda request, _: record(request.strategy, made[request.strategy])
    )
    whole = result.comparison("dynamic")
    assert whole is not None
    assert whole.per_token
    assert whole.ratio == pytest.approx(4.0)
    assert [arm.decode_tokens_per_s for arm in arms(result)] == pytest.approx([5.0, 20.0])
    assert [arm.tokens for arm in arms(result)] == [(42, 42), (65, 65)]
    assert whole.verdict.first_difference == 42


def test_until_clear_goes_on_for_six_rounds_at_least_and_ends_when_the_interval_is_narrow() -> None:
    _, result, _ = play(spec_of(time_budget_s=10_000, rounds=1))
    assert result.stopped_because == "clear"
    assert max(run.round or 0 for run in result.runs) == 6


def test_until_clear_ends_with_the_time_budget_and_says_so() -> None:
    def noisy(request: GenerationRequest, earlier: int) -> RunRecord:
        factor = 1.3 if request.strategy == "none" and earlier % 2 else 1.0
        return record(request.strategy, [t * factor for t in steady(request, earlier).token_times_s])

    steps, result, _ = play(spec_of(time_budget_s=60), noisy)
    assert result.stopped_because == "budget"
    first = next(step for step in steps if isinstance(step, Progress))
    assert (first.of, first.left_s) == (None, 60)


def test_a_failed_arm_stays_in_the_record_and_the_other_finishes() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        if request.strategy == "dynamic" and earlier:
            return record("dynamic", [0.1, 0.2], status="failed", finish_reason=None, error="out of memory")
        return steady(request, earlier)

    steps, result, _ = play(spec_of("none", "dynamic", "fp8", rounds=4), script)
    failed = [run for run in result.runs if run.status == "failed"]
    assert [(run.round, run.new_tokens, run.error) for run in failed] == [
        (1, 2, "out of memory"),
        (2, 2, "out of memory"),
    ]
    assert [step.message for step in steps if isinstance(step, ArmFailed)] == ["out of memory"] * 2
    assert len(result.counted("none")) == len(result.counted("fp8")) == 4
    assert result.comparison("dynamic").ratio is None  # type: ignore[union-attr]
    assert arms(result)[1].left_out == 2


def test_with_the_other_arm_gone_the_last_one_finishes_its_round_and_no_more() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        if request.strategy == "none":
            return record("none", status="failed", finish_reason=None, error="it broke")
        return steady(request, earlier)

    _, result, _ = play(spec_of(rounds=6), script)
    assert result.stopped_because == "failed"
    assert [(run.round, run.strategy, run.status) for run in result.runs] == [
        (0, "none", "failed"), (0, "dynamic", "ok"), (1, "dynamic", "ok"),
    ]  # fmt: skip
    assert result.comparisons[0].verdict.same_output is None


def test_a_run_past_its_time_limit_counts_in_nothing() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        changes: dict[str, Any] = {"status": "timed_out", "finish_reason": "timed_out"} if earlier == 2 else {}
        return record(request.strategy, even_times(0.1, 0.1, 3), **changes)

    _, result, _ = play(spec_of(rounds=3), script)
    assert result.comparisons[0].rounds == 2


def test_stop_keeps_what_was_done_and_the_half_run_marked() -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 60

    steps, result, run = play(spec_of(rounds=6), stop=stop)
    assert result.stopped_because == "stopped"
    assert [item.status for item in result.runs[:-1]] == ["ok"] * (len(result.runs) - 1)
    last = result.runs[-1]
    assert last.status == last.finish_reason == "cancelled"
    assert 0 < last.new_tokens < 12
    assert run.closed[-1] == last.strategy
    assert result.comparisons[0].rounds == 1
    assert isinstance(steps[-1], ArmEvent)


def test_closing_the_generator_ends_the_run_and_the_records_seen_can_be_summed_up() -> None:
    run = ScriptedRun(steady, Clock())
    steps = compare(spec_of(rounds=6), bench_of(run, clock=run.clock))
    seen = []
    for step in steps:
        if isinstance(step, ArmEvent) and isinstance(step.event, Finished):
            seen.append(step.event.record)
        if len(seen) == 6:
            break
    steps.close()
    assert len(run.closed) == len(run.requests)
    result = summarise(
        spec_of(rounds=6), seen, model=MODEL, environment=ENVIRONMENT, strategies=ROWS, stopped_because="stopped"
    )
    assert [item.rounds for item in result.comparisons] == [2] * 4


def test_a_run_cancelled_from_elsewhere_ends_the_comparison() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        changes: dict[str, Any] = {"status": "cancelled", "finish_reason": "cancelled"} if earlier == 2 else {}
        return record(request.strategy, even_times(0.1, 0.1, 3), **changes)

    _, result, run = play(spec_of(rounds=6), script)
    assert (result.stopped_because, len(run.requests)) == ("stopped", 5)


def test_no_run_begins_after_the_operators_limit() -> None:
    _, result, _ = play(spec_of(rounds=6), limit_s=10)
    assert result.stopped_because == "limit"


@pytest.mark.parametrize(
    ("strategies", "words"),
    [
        (("dynamic",), "choose between two"),
        (("dynamic", "dynamic"), "each may be chosen once"),
        (([], []), "must be text"),
        ((None, "none"), "must be text"),
    ],
)
def test_strategies_that_are_no_choice_are_refused_by_name(strategies: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"strategies: .*{words}"):
        CompareSpec("hi", strategies)


@pytest.mark.parametrize(
    ("key", "words"), [("warp", "'warp' is not one of none"), ("offloaded", "needs an accelerator")]
)
def test_a_strategy_that_cannot_run_is_named_before_anything_runs(key: str, words: str) -> None:
    run = ScriptedRun(steady)
    with pytest.raises(InvalidRequest, match=words):
        compare(spec_of("none", key), bench_of(run))
    assert run.requests == []


def test_a_cache_of_fixed_size_is_warmed_up_with_the_slots_of_the_timed_runs() -> None:
    _, _, run = play(spec_of("dynamic", "static"), prompt_tokens=4, cache_slots=lambda prompt, new: prompt + new)
    static = [request for request in run.requests if request.strategy == "static"]
    assert [(request.max_new_tokens, request.cache_slots) for request in static] == [(8, 16), (12, 16)]


def test_without_known_slots_a_cache_of_fixed_size_is_warmed_up_at_full_length() -> None:
    _, _, run = play(spec_of("dynamic", "static"))
    assert [request.max_new_tokens for request in run.requests if request.strategy == "static"] == [12, 12]


def test_compiling_is_announced_before_it_starts_and_its_time_stands_apart() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        late_s = 50.0 if request.strategy == "static-compiled" and not earlier else 0.0
        times = [t + late_s for t in steady(request, earlier).token_times_s]
        return record(request.strategy, times, compile_s=late_s or None)

    steps, result, run = play(spec_of("none", "static-compiled", rounds=2), script)
    phases = [step.phase for step in steps if isinstance(step, Progress)]
    assert "Static cache, compiled: compiling, about a minute the first time" in phases
    assert [request.max_new_tokens for request in run.requests if request.strategy == "static-compiled"] == [12] * 3
    arm = arms(result)[1]
    assert arm.compile_s == pytest.approx(50.0)
    assert arm.generation_s is not None
    assert arm.generation_s.high == pytest.approx(0.6)
    assert arms(result)[0].compile_s is None


def test_progress_counts_the_runs_and_knows_the_time_left_once_each_arm_has_run() -> None:
    steps, _, _ = play(spec_of(rounds=2))
    told = [step for step in steps if isinstance(step, Progress)]
    starts = [next(step for step in told if step.done == done) for done in range(6)]
    assert [(step.done, step.of) for step in starts] == [(done, 6) for done in range(6)]
    assert [step.left_s for step in starts] == [
        None, None, pytest.approx(12.0), pytest.approx(7.2), pytest.approx(6.0), pytest.approx(4.8),
    ]  # fmt: skip
    assert starts[2].phase == "No cache: round 1 of 2"


def verdict_of(
    one: Sequence[int], other: Sequence[int], *strategies: str, dtype: str = "float32", **changes: Any
) -> Any:
    import dataclasses

    ids = dict(zip(strategies, (one, other), strict=True))
    model = dataclasses.replace(MODEL, dtype=dtype)

    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        made = ids[request.strategy]
        return record(request.strategy, even_times(0.1, 0.1, len(made)), made)

    return (
        play(spec_of(*strategies, **changes), script, model=model, gap=lambda *_: at_once(0.25))[1]
        .comparisons[0]
        .verdict
    )


def test_equal_tokens_are_the_same_output() -> None:
    verdict = verdict_of([5, 6, 7], [5, 6, 7], "none", "dynamic")
    assert (verdict.same_output, verdict.first_difference, verdict.expected_equal) == (True, None, True)


def test_a_difference_in_greedy_float32_is_a_fault_and_shows_the_texts_around_it() -> None:
    verdict = verdict_of([5, 6, 7, 8], [5, 6, 9, 8], "none", "dynamic")
    assert (verdict.same_output, verdict.first_difference, verdict.expected_equal) == (False, 2, True)
    assert (verdict.baseline_text, verdict.candidate_text) == (" w5 w6 w7 w8", " w5 w6 w9 w8")
    assert verdict.largest_gap is None


@pytest.mark.parametrize(
    ("strategies", "dtype", "changes"),
    [
        (("none", "dynamic"), "bfloat16", {}),
        (("none", "fp8"), "float32", {}),
        (("none", "dynamic"), "float32", {"sampling": SamplingParams(temperature=0.7)}),
    ],
)
def test_lower_precision_lossy_caches_and_sampling_raise_no_alarm(
    strategies: tuple[str, str], dtype: str, changes: dict[str, Any]
) -> None:
    verdict = verdict_of([5, 6, 7], [5, 6, 9], *strategies, dtype=dtype, **changes)
    assert (verdict.same_output, verdict.expected_equal) == (False, False)


def test_a_lossy_arm_has_its_largest_logit_gap_up_to_the_difference() -> None:
    asked: list[tuple[Any, ...]] = []

    def gap(*arguments: Any) -> Generator[Working, None, float | None]:
        asked.append(arguments)
        return at_once(0.5)

    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, (0.1, 0.2), (1, 2) if request.strategy == "none" else (1, 3))

    _, result, _ = play(spec_of("none", "fp8"), script, gap=gap)
    assert asked == [("The red cat was", "none", "fp8", (1,))]
    assert result.comparisons[0].verdict.largest_gap == 0.5


def test_a_prefix_first_differs_where_it_ends() -> None:
    assert first_difference([1, 2], [1, 2, 3]) == 2
    assert first_difference([], []) is None


def test_the_texts_around_come_from_the_decoder_when_there_is_one() -> None:
    result = summarise(
        spec_of(),
        [record("none", (0.1, 0.2), (1, 2), round=1), record("dynamic", (0.1, 0.2), (1, 3), round=1)],
        model=MODEL,
        environment=ENVIRONMENT,
        strategies=ROWS,
        decode=lambda ids: "-".join(map(str, ids)),
    )
    verdict = result.comparisons[0].verdict
    assert (verdict.baseline_text, verdict.candidate_text) == ("1-2", "1-3")


def test_step_times_have_their_slope_through_the_medians_of_all_rounds() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        times = [0.1]
        for position in range(1, request.max_new_tokens):
            times.append(times[-1] + 0.03 + 0.001 * position + (5.0 if earlier == 2 and position == 3 else 0.0))
        return record(request.strategy, times)

    _, result, _ = play(spec_of(rounds=9), script)
    line = arms(result)[1].step_line
    assert line is not None
    assert (line.intercept, line.slope) == pytest.approx((0.03, 0.001))


def test_a_comparison_without_an_interval_states_no_slope() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        steps = [0.03 + 0.001 * position for position in range(request.max_new_tokens)]
        return record(request.strategy, [sum(steps[: at + 1]) for at in range(len(steps))])

    _, result, _ = play(spec_of(rounds=5, max_new_tokens=100), script)
    assert [arm.step_line for arm in arms(result)] == [None, None]


def test_a_result_is_summed_up_once() -> None:
    _, result, _ = play(spec_of(rounds=1))
    assert arms(result) is arms(result)
    assert arms(dataclasses.replace(result, runs=()))[0].n == 0


def test_a_run_of_one_token_has_a_first_token_time_and_no_speed() -> None:
    _, result, _ = play(spec_of(), lambda request, _: record(request.strategy, [0.2]))
    by_metric = {item.metric: item.ratio for item in result.comparisons}
    assert by_metric == {"generation_s": 1.0, "ttft_s": 1.0, "tpot_s": None, "request_s": 1.0}
    assert arms(result)[0].decode_tokens_per_s is None


def test_a_run_of_no_token_is_kept_and_makes_no_ratio() -> None:
    _, result, _ = play(spec_of(), lambda request, _: record(request.strategy, []))
    assert {item.ratio for item in result.comparisons if item.metric != "request_s"} == {None}
    assert len(result.runs) == 4


def test_noise_is_the_baseline_beside_itself_in_the_same_rounds() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, even_times(0.1, 0.1 * (1.03 if earlier % 2 else 1.0), request.max_new_tokens))

    _, result, run = play(spec_of("dynamic", rounds=6, noise=True), script)
    assert [one.arm for one in result.runs if one.round == 1] == [None, "dynamic-again"]
    assert {request.strategy for request in run.requests} == {"dynamic"}
    assert result.noise is not None
    assert result.noise.rounds == 6
    assert (result.noise.low, result.noise.high) == pytest.approx((1 / 1.0275, 1.0275))
    assert plain(headline(result)).startswith("Two identical runs here differ by up to 3 %")


def test_a_difference_within_the_noise_is_called_none() -> None:
    slower = {"dynamic": 0.1, "static": 0.102}

    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, even_times(0.1, slower[request.strategy], request.max_new_tokens))

    _, clear, _ = play(spec_of("dynamic", "static", rounds=6), script)
    assert "made this slower" in plain(headline(clear))
    _, unclear, _ = play(spec_of("dynamic", "static", rounds=6), script, noise=Noise(1.0, 0.97, 1.03, 6, 12))
    assert plain(headline(unclear)).startswith("No difference we can see")
    assert "Two identical runs differ by up to 3 % on this machine." in plain(headline(unclear))


@pytest.mark.parametrize("new_tokens", [None, 1, 1000])
def test_the_noise_of_runs_of_another_length_is_not_held_against_these(new_tokens: int | None) -> None:
    slower = {"dynamic": 0.1, "static": 0.102}

    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, even_times(0.1, slower[request.strategy], request.max_new_tokens))

    known = Noise(1.0, 0.97, 1.03, 6, new_tokens)
    _, clear, _ = play(spec_of("dynamic", "static", rounds=6), script, noise=known)
    assert "made this slower" in plain(headline(clear))
    assert clear.noise is None


def test_unknown_ids_leave_the_verdict_open() -> None:
    runs = [record(key, (0.1, 0.2), token_ids=None, num_new_tokens=2, round=1) for key in ("none", "dynamic")]
    result = summarise(spec_of(), runs, model=MODEL, environment=ENVIRONMENT, strategies=ROWS)
    assert result.comparisons[0].verdict.same_output is None
    assert [run.new_tokens for run in result.runs] == [2, 2]


# --- nobody who reads is left without a sign of life -------------------------------------------------------------------


def test_nothing_is_further_apart_than_half_a_second_while_slow_runs_go_on_and_logits_are_compared() -> None:
    """A page notices only at a step that its reader has left."""
    clock, told_s = Clock(), []

    def slow(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, even_times(7.0, 3.3, request.max_new_tokens))

    def gap(*_: Any) -> Generator[Working, None, float]:
        for _beat in range(20):
            clock.now_s += 0.5
            yield Working(clock.now_s)
        return 0.25

    bench = bench_of(ScriptedRun(slow, clock), clock=clock, gap=gap)
    steps = compare(spec_of("none", "fp8", max_new_tokens=3), bench)
    for step in steps:
        if isinstance(step, Progress | ComparisonResult):
            told_s.append(clock.now_s)
    assert max(after - before for before, after in itertools.pairwise(told_s)) <= 0.5 + 1e-9
    assert isinstance(step, ComparisonResult)
    assert step.comparisons[0].verdict.largest_gap == 0.25


def test_progress_comes_when_all_is_told_and_never_between_two_facts_of_one_wake_up() -> None:
    steps, _, _ = play(spec_of(max_new_tokens=20))
    inside = [
        (before, step)
        for before, step in itertools.pairwise(steps)
        if isinstance(step, Progress) and isinstance(before, ArmEvent) and not isinstance(before.event, Finished)
    ]
    assert inside
    assert all(isinstance(before.event, Working) for before, _ in inside)


def test_a_run_that_is_stopped_keeps_every_token_it_was_told_to_have_made() -> None:
    """Facts that wait for the reader when Stop is pressed belong to the record all the same."""
    stopped = False

    def run(request: GenerationRequest) -> Iterator[GenerationEvent]:
        nonlocal stopped
        yield PromptEncoded(4, 0.0, 0.0)
        stopped = True  # while the reader sleeps; three tokens wait for him
        for index in range(3):
            yield TokenEmitted(index, index, "x", 0.1 * (index + 1), index, 0, 0)
        ended: dict[str, Any] = {"status": "cancelled", "finish_reason": "cancelled", "positions_computed": (4, 1, 1)}
        yield Finished("cancelled", record(request.strategy, even_times(0.1, 0.1, 3), **ended))

    *_, result = compare(spec_of(), bench_of(run, stop=lambda: stopped))
    assert isinstance(result, ComparisonResult)
    (only,) = result.runs
    assert (only.status, only.token_ids, only.positions_computed) == ("cancelled", (0, 1, 2), (4, 1, 1))
