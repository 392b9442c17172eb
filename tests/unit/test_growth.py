"""How does it grow: which points, in which order, and what a time budget leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.summary import arms
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import Progress
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.grow.run import chosen_points, grow
from kvdemo.questions.grow.spec import GrowthPoint, GrowthResult, GrowthSpec
from kvdemo.questions.grow.words import headline as growth_headline
from tests.known import sure
from tests.scripted import Clock, ScriptedRun, bench_of, record


def script(request: GenerationRequest, earlier: int) -> RunRecord:
    """A cached step takes 0.1 s; an uncached one 0.01 s per position of context."""
    prompt = len(request.prompt)
    times, now_s = [], 0.0
    for index in range(request.max_new_tokens):
        now_s += 0.1 if request.strategy == "dynamic" else 0.01 * (prompt + index)
        times.append(now_s)
    held = (prompt + request.max_new_tokens - 1) * 100 if request.strategy == "dynamic" else 0
    return record(request.strategy, times, prompt_tokens=prompt, cache_bytes=held, peak_bytes=2 * held)


def play(spec: GrowthSpec, **options: Any) -> tuple[list[Any], GrowthResult, ScriptedRun]:
    clock = Clock()
    run = ScriptedRun(script, clock)
    *steps, result = grow(spec, bench_of(run, clock=clock, **options))
    assert isinstance(result, GrowthResult)
    return steps, result, run


def test_where_no_point_was_completed_the_headline_says_why() -> None:
    def failing(request: GenerationRequest, _earlier: int) -> RunRecord:
        return record(request.strategy, status="failed", error="The run failed: its logits are not numbers")

    run = ScriptedRun(failing)
    *_, result = grow(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(5,)), bench_of(run))
    assert plain(growth_headline(sure(GrowthResult, result))) == (
        "No point was completed, so there is nothing to compare. The run failed: its logits are not numbers."
    )


def test_a_given_grid_is_every_prompt_with_every_answer_that_fits_cheapest_first() -> None:
    spec = GrowthSpec("text", prompt_tokens=(100, 10), new_tokens=(20, 5), longest_tokens=110)
    assert chosen_points(spec) == ((10, 5), (10, 20), (100, 5))


def test_a_chosen_grid_doubles_up_to_the_longest_request_allowed() -> None:
    points = chosen_points(GrowthSpec("text", longest_tokens=256))
    assert {prompt for prompt, _ in points} == {16, 32, 64, 128, 240}
    assert {new for _, new in points} == {16, 32, 64, 128, 240}
    assert all(prompt + new <= 256 for prompt, new in points)


def test_a_grid_in_which_nothing_fits_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no point of the grid fits into 10 tokens"):
        chosen_points(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(10,), longest_tokens=10))


def test_a_request_beyond_the_models_context_is_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match=r"longest_tokens: 9,000 is beyond the model's 8,192"):
        play(GrowthSpec("text", longest_tokens=9000))


def test_every_point_has_ratio_slope_bytes_and_peak() -> None:
    _, result, _ = play(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(10, 40), time_budget_s=None))
    small, large = result.points
    ratios = [point.result.comparison("dynamic").ratio for point in (small, large)]  # type: ignore[union-attr]
    assert ratios == pytest.approx([(10 * 10 + 45) * 0.01 / 1.0, (40 * 10 + 780) * 0.01 / 4.0])
    none, dynamic = arms(large.result)
    assert none.step_line is not None
    assert none.step_line.slope == pytest.approx(0.01)
    assert dynamic.step_line is None
    assert [arm.step_line for arm in arms(small.result)] == [None, None]
    assert (dynamic.cache_bytes, dynamic.peak_bytes and dynamic.peak_bytes.median) == (4900, 9800)
    assert result.stopped_because == "points"


def test_points_are_told_as_they_are_measured() -> None:
    steps, result, _ = play(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(5, 10), time_budget_s=None))
    assert tuple(step for step in steps if isinstance(step, GrowthPoint)) == result.points
    told = [step for step in steps if isinstance(step, Progress)]
    assert {step.of for step in told} == {2}
    assert told[0].phase == "10 prompt and 5 new tokens: No cache: warming up, not timed"


def test_when_the_time_is_up_it_says_what_was_left_out() -> None:
    _, result, _ = play(
        GrowthSpec("text", prompt_tokens=(10, 100, 1000), new_tokens=(10,), longest_tokens=2000, time_budget_s=24)
    )
    assert [point.prompt_tokens for point in result.points] == [10, 100]
    assert (result.stopped_because, result.left_out) == ("budget", ((1000, 10),))
    assert "The time budget ended after 2 points; 1 were left out." in plain(growth_headline(result))


def test_a_point_is_labelled_with_the_length_that_its_prompt_really_has() -> None:
    spec = GrowthSpec("text", prompt_tokens=(10, 100), new_tokens=(5,), time_budget_s=None)
    steps, result, run = play(spec, text_of=lambda _, length: ("x" * (length - 1), length - 1))
    assert [(point.prompt_tokens, point.new_tokens) for point in result.points] == [(9, 5), (99, 5)]
    assert {step.phase.split(":")[0] for step in steps if isinstance(step, Progress)} == {
        "9 prompt and 5 new tokens",
        "99 prompt and 5 new tokens",
    }
    assert {len(request.prompt) for request in run.requests} == {9, 99}
    assert result.left_out == ()


def test_a_text_from_which_a_point_cannot_be_cut_is_refused_before_anything_is_measured() -> None:
    def cut(text: str, length: int) -> tuple[str, int]:
        if length > 10:
            raise InvalidRequest("prompt", "no prompt of that length can be cut from this text")
        return "x" * length, length

    run = ScriptedRun(script, Clock())
    spec = GrowthSpec("text", prompt_tokens=(10, 100), new_tokens=(5,), time_budget_s=None)
    with pytest.raises(InvalidRequest, match="can be cut"):
        list(grow(spec, bench_of(run, text_of=cut, clock=run.clock)))
    assert run.requests == []


def test_stop_keeps_the_points_that_were_measured() -> None:
    runs_before_stop = 5
    run = ScriptedRun(script, Clock())

    def stop() -> bool:
        return len(run.closed) >= runs_before_stop

    spec = GrowthSpec("text", prompt_tokens=(10,), new_tokens=(5, 10), time_budget_s=None)
    *_, result = grow(spec, bench_of(run, clock=run.clock, stop=stop))
    assert isinstance(result, GrowthResult)
    assert (len(result.points), result.stopped_because, result.left_out) == (1, "stopped", ((10, 10),))


def test_the_headline_goes_from_the_smallest_to_the_largest() -> None:
    _, result, _ = play(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(10, 40), time_budget_s=None))
    assert plain(growth_headline(result)) == (
        "Dynamic cache: 1.45 times faster at 10 prompt and 10 new tokens, 2.9 times faster at 10 prompt and 40 new tokens."
        " A first look: one round at each point."
    )


def test_a_growth_result_can_be_opened_again() -> None:
    _, result, _ = play(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(5, 10)))
    assert from_any_document(loads(dumps(any_document(result)))) == result


def test_a_mistake_inside_a_point_is_named_by_its_place() -> None:
    _, result, _ = play(GrowthSpec("text", prompt_tokens=(10,), new_tokens=(5, 10)))
    made = any_document(result)
    made["points"][1]["runs"][0]["status"] = "fine"
    with pytest.raises(InvalidRequest, match=r"points\[1\]\.runs\[0\]\.status"):
        from_any_document(made)


def test_a_point_that_is_refused_in_the_middle_costs_none_that_was_measured() -> None:
    def scripted(request: GenerationRequest, earlier: int) -> RunRecord:
        if len(request.prompt) > 10:
            raise InvalidRequest("max_new_tokens", "the cache would take 2.0 GiB and 1.0 GiB are free.")
        return script(request, earlier)

    clock = Clock()
    spec = GrowthSpec("text", prompt_tokens=(10, 20), new_tokens=(5,))
    *_, last = grow(spec, bench_of(ScriptedRun(scripted, clock), clock=clock))
    result = sure(GrowthResult, last)
    assert [point.prompt_tokens for point in result.points] == [10, 20]
    assert result.points[0].result.comparisons[0].ratio is not None
    assert {run.status for run in result.points[1].result.runs} == {"failed"}
