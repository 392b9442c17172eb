"""With many at once: modes in rounds, quantiles over requests, goodput, the largest load that meets a target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from kvdemo.charts.static_svg import figure_svg
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.facts.events import Working
from kvdemo.facts.load import ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.results import ArmFailed, Progress
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.load.charts import draw, timeline_chart
from kvdemo.questions.load.code import engine_commands
from kvdemo.questions.load.command import load as load_command
from kvdemo.questions.load.document import read
from kvdemo.questions.load.page import LoadForm, engine_card
from kvdemo.questions.load.question import LOAD
from kvdemo.questions.load.run import load
from kvdemo.questions.load.spec import LoadResult, LoadRound, LoadSpec
from kvdemo.questions.load.summary import largest_that_meets, summarise_mode
from kvdemo.questions.load.words import command, headline, remarks
from kvdemo.questions.recorded import recorded_result
from kvdemo.settings import Limits
from kvdemo.ui.compare import runs
from tests.fake_backend import FakeBackend
from tests.known import known, sure
from tests.made_up import load_of
from tests.many import FIRST_S, STEP_S, many_record
from tests.scripted import bench_of
from tests.tiny_backend import ready_backend

PROMPTS = (PromptRow("The red cat was", "one"), PromptRow("Why?", "two", max_new_tokens=3))


class Bench:
    """Records what is served; times are those of the records."""

    def __init__(self, **changes: Any) -> None:
        self.asked: list[ManyRequest] = []
        self.now_s, self.changes, self.closed = 0.0, changes, 0

    def run_many(self, request: ManyRequest) -> Iterator[Working | ManyFinished]:
        self.asked.append(request)
        try:
            yield Working(0.0)
            record = many_record(request, **self.changes.get(request.serving, {}))
            self.now_s += record.wall_s or 0.0
            yield ManyFinished(record)
        finally:
            self.closed += 1

    def play(self, spec: LoadSpec, **more: Any) -> tuple[list[Any], LoadResult]:
        bench = dataclasses.replace(
            bench_of(lambda _: iter(())), run_many=self.run_many, clock=lambda: self.now_s, **more
        )
        *steps, result = load(spec, bench)
        assert isinstance(result, LoadResult)
        return steps, result


def spec_of(**changes: Any) -> LoadSpec:
    return LoadSpec(**{"prompts": PROMPTS[:1], "requests": 4, "max_new_tokens": 6, "rounds": 2, **changes})


def test_modes_take_turns_after_a_short_warm_up_of_each() -> None:
    bench = Bench()
    steps, result = bench.play(spec_of(max_new_tokens=10))
    order = ["one-by-one", "padded", "continuous"]
    assert [one.serving for one in bench.asked] == [*order, *order, "padded", "continuous", "one-by-one"]
    assert {arrival.max_new_tokens for one in bench.asked[:3] for arrival in one.arrivals} == {8}
    assert [step.number for step in steps if isinstance(step, LoadRound)] == [1, 2]
    assert any(isinstance(step, Progress) for step in steps)
    assert result.stopped_because == "rounds"
    assert bench.closed == len(bench.asked)


def test_all_modes_get_the_same_requests_in_the_same_order() -> None:
    bench = Bench()
    bench.play(spec_of(prompts=PROMPTS, rate_per_s=2.0, arrival_seed=3))
    timed = bench.asked[3:]
    assert len({one.arrivals for one in timed}) == 1
    assert [arrival.max_new_tokens for arrival in timed[0].arrivals] == [6, 3, 6, 3]


def test_poisson_gaps_are_seeded_begin_at_zero_and_average_to_the_rate() -> None:
    times = [one.at_s for one in spec_of(rate_per_s=4.0, requests=256).arrivals(256)]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert 255 / times[-1] == pytest.approx(4.0, rel=0.2)
    assert times == [one.at_s for one in spec_of(rate_per_s=4.0, requests=256).arrivals(256)]
    assert times != [one.at_s for one in spec_of(rate_per_s=4.0, arrival_seed=1).arrivals(256)]
    assert {one.at_s for one in spec_of().arrivals(8)} == {0.0}


def test_throughput_is_compared_inside_each_round_above_one_where_more_is_served() -> None:
    _, result = Bench().play(spec_of())
    alone_s, together_s = 4 * (FIRST_S + 5 * STEP_S), FIRST_S + 5 * (STEP_S + 3 * 0.002)
    item = result.comparisons[0].comparison
    assert (item.baseline, item.candidate, item.metric) == ("one-by-one", "padded", "throughput_tokens_per_s")
    assert item.ratio == pytest.approx(alone_s / together_s)
    assert item.verdict.same_output is True
    assert summarise_mode(result.spec, result.main, "one-by-one").throughput_tokens_per_s == pytest.approx(24 / alone_s)


def test_quantiles_are_over_requests_and_a_queue_stands_beside_the_first_token() -> None:
    found = summarise_mode(load_of().spec, load_of().main, "one-by-one")
    each_s = FIRST_S + 5 * STEP_S
    assert found.ttft_s is not None
    assert found.queue_s is not None
    assert found.first_token_s is not None
    assert (found.ttft_s.p50, found.ttft_s.max) == pytest.approx((FIRST_S, FIRST_S))
    assert [found.queue_s.p50, found.queue_s.p95, found.queue_s.max] == pytest.approx([each_s, 3 * each_s, 3 * each_s])
    assert found.first_token_s.max == pytest.approx(3 * each_s + FIRST_S)


def preempted(mode: str, at: int, record: ManyRecord) -> ManyRecord:
    if mode != "continuous":
        return record
    first = dataclasses.replace(
        record.runs[0], token_times_s=(), request_s=None, notices=("preempted, times incomplete",), queue_s=99.0
    )
    return dataclasses.replace(record, runs=(first, *record.runs[1:]))


def test_a_preempted_request_is_marked_counted_and_never_averaged() -> None:
    result = load_of(change=preempted, rounds=1, target_ttft_s=10.0)
    found = summarise_mode(result.spec, result.main, "continuous")
    assert found.preempted == 1
    assert found.output_tokens == 24
    assert found.queue_s is not None
    assert found.queue_s.max == 0.0
    assert found.goodput_requests_per_s == pytest.approx(3 / (result.main.of("continuous")[0].record.wall_s or 0))
    notes = [note.text for note in timeline_chart(result).layout.annotations if note.name == "preempted"]
    assert notes == ["preempted, times incomplete"]


def test_goodput_counts_from_arrival_and_without_a_target_there_is_none() -> None:
    result = load_of(target_ttft_s=0.5)  # one by one: 0.1, 0.4, 0.7 and 1.0 s
    found = summarise_mode(result.spec, result.main, "one-by-one")
    assert found.wall_s is not None
    assert found.goodput_requests_per_s == pytest.approx(2 / found.wall_s)
    assert summarise_mode(load_of().spec, load_of().main, "one-by-one").goodput_requests_per_s is None


def test_failed_requests_count_as_missed() -> None:
    def failing(mode: str, at: int, record: ManyRecord) -> ManyRecord:
        failed = dataclasses.replace(record.runs[0], status="failed", finish_reason=None, error="no")
        return dataclasses.replace(record, status="failed", runs=(failed, *record.runs[1:]), error="no")

    result = load_of(target_request_s=60.0, change=failing)
    found = summarise_mode(result.spec, result.main, "padded")
    assert (found.goodput_requests_per_s, found.failed, found.throughput_tokens_per_s) == (0.0, 2, None)
    assert largest_that_meets(result.spec, result.points, "padded") == (None, 4)
    assert "nothing to compare" in plain(headline(result))


def test_the_largest_load_that_meets_the_target_is_told_with_the_next_that_misses_it() -> None:
    result = load_of(2, sweep=(1, 4, 8), target_request_s=0.61)  # one by one: 0.3 s each
    assert largest_that_meets(result.spec, result.points, "one-by-one") == (2, 4)
    assert largest_that_meets(result.spec, result.points, "continuous") == (8, None)
    said = plain(headline(result))
    assert "One by one: 2 at once meet the target, 4 miss it." in said
    assert "Continuous batching: 8 at once meet the target." in said


def test_the_sweep_measures_every_number_and_the_asked_one_first() -> None:
    bench = Bench()
    _, result = bench.play(spec_of(sweep=(8, 2, 4), rounds=1))
    assert [point.requests for point in result.points] == [4, 2, 8]
    assert all(figure is not None for figure in draw(result, {}))


@pytest.mark.parametrize(("target_s", "most"), [(0.61, 2), (0.95, 3), (1.25, 4), (2.05, 6)])
def test_a_sweep_goes_on_until_the_number_that_misses_follows_the_one_that_meets(target_s: float, most: int) -> None:
    bench = Bench()
    spec = spec_of(sweep=(1, 4, 8), rounds=1, modes=("one-by-one",), target_request_s=target_s)
    _, result = bench.play(spec)
    assert largest_that_meets(spec, result.points, "one-by-one") == (most, most + 1)
    assert f"{most} at once meet the target, {most + 1} miss it." in plain(headline(result))
    assert len(result.points) <= 3 + 3
    assert [point.requests for point in result.points[1:]] == sorted(point.requests for point in result.points[1:])


def test_a_number_that_fails_outright_misses_the_target_and_the_sweep_ends() -> None:
    class Failing(Bench):
        def run_many(self, request: ManyRequest) -> Iterator[Working | ManyFinished]:
            if len(request.arrivals) >= 5:
                raise KvdemoError("no room for so many")
            yield from super().run_many(request)

    spec = spec_of(sweep=(1, 4, 8), rounds=1, modes=("continuous",), target_request_s=60.0)
    _, result = Failing().play(spec)
    assert largest_that_meets(spec, result.points, "continuous") == (4, 5)
    assert len(result.points) <= 6


def test_a_sweep_without_a_target_measures_what_was_listed_only() -> None:
    _, result = Bench().play(spec_of(sweep=(1, 8), rounds=1))
    assert [point.requests for point in result.points] == [4, 1, 8]


def test_a_difference_is_told_with_the_request_the_token_and_the_gap_there() -> None:
    other = (100, 101, 102, 7, 8, 9)
    asked: list[Any] = []

    def margin(prompt: Any, made: tuple[int, ...], one: int, another: int) -> Any:
        asked.append((prompt, made, one, another))
        yield Working(0.0)
        return 0.00031

    changed = tuple(
        dataclasses.replace(run, token_ids=other) for run in many_record(spec_of().request("continuous", 4)).runs
    )
    runs = (many_record(spec_of().request("continuous", 4)).runs[0], *changed[1:])
    _, result = Bench(continuous={"runs": runs}).play(spec_of(), margin=margin)
    found = result.comparison("continuous")
    assert found is not None
    assert (found.request, found.gap_there, found.comparison.verdict.first_difference) == (1, 0.00031, 3)
    assert found.comparison.verdict.expected_equal is False
    assert asked == [("The red cat was", (100, 101, 102), 103, 7)]
    assert "Continuous batching: the tokens differ first in request 2, at token 4" in plain(headline(result))
    assert "0.00031 apart" in plain(headline(result))
    again = from_any_document(loads(dumps(any_document(result))))
    assert isinstance(again, LoadResult)
    assert again.comparison("continuous") == found


def test_other_tokens_of_a_padded_batch_are_a_fault_in_float32() -> None:
    runs = tuple(
        dataclasses.replace(run, token_ids=(1, 2, 3, 4, 5, 6))
        for run in many_record(spec_of().request("padded", 4)).runs
    )
    _, result = Bench(padded={"runs": runs}).play(spec_of())
    assert "In greedy float32 this is a fault." in plain(headline(result))


def test_work_explains_the_gain() -> None:
    said = remarks(load_of())
    assert said[0] == "One by one: 24 forwards computed 36 positions, and read 120."
    assert said[1] == "Padded batch: 6 forwards computed 36 positions, and read 120."


def test_a_mode_that_fails_is_told_and_the_others_go_on() -> None:
    steps, result = Bench(padded={"status": "failed", "error": "the engine's thread ended: no", "runs": ()}).play(
        spec_of()
    )
    assert [step.arm for step in steps if isinstance(step, ArmFailed)] == ["padded"]
    assert result.comparison("continuous") is not None
    assert "Failed: Padded batch." in plain(headline(result))


def test_stop_keeps_what_was_done() -> None:
    stopped = iter([False] * 5 + [True] * 20)
    _, result = Bench().play(spec_of(), stop=lambda: next(stopped))
    assert result.stopped_because == "stopped"
    assert sum(run.round > 0 for run in result.main.runs) == 2


def test_a_single_mode_is_measured_for_all_rounds() -> None:
    bench = Bench()
    _, result = bench.play(spec_of(modes=("continuous",), rounds=3))
    assert len(result.main.of("continuous")) == 3
    assert result.stopped_because == "rounds"
    assert plain(headline(result)).startswith("Continuous batching: 4 requests at ")


def test_a_document_reads_back_to_the_same_result_and_has_the_keys_that_are_promised() -> None:
    result = load_of(sweep=(2,), target_ttft_s=1.0)
    data = any_document(result)
    assert data["kind"] == "load"
    promised = (
        "mode cache requests failed preempted output_tokens wall_s throughput_tokens_per_s goodput_requests_per_s ttft_s tpot_s "
        "request_s queue_s positions_computed positions_read padding_positions reserved_cache_bytes peak_cache_bytes "
        "reused_tokens same_output"
    )
    assert set(promised.split()) <= set(data["modes"][0])
    assert [(one["mode"], one["cache"]) for one in data["modes"]] == [
        ("one-by-one", "dynamic"),
        ("padded", "dynamic"),
        ("continuous", "paged, shared"),
    ]
    assert set(data["modes"][0]["ttft_s"]) == {"p50", "p95", "max"}
    assert data["comparisons"][0]["metric"] == "throughput_tokens_per_s"
    assert data["sweep"][0]["requests"] == 2
    assert from_any_document(loads(dumps(data))) == result


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("modes", 0, "runs"), None, "modes[0].runs"),
        (("modes", 0, "runs", 1, "mode"), "other", "modes[0].runs[1].mode"),
        (("sweep", 0, "requests"), "two", "sweep[0].requests"),
        (("request", "requests"), 0, "request.requests"),
    ],
)
def test_a_broken_document_is_refused_with_its_place(place: tuple[Any, ...], value: Any, said: str) -> None:
    data = any_document(load_of(sweep=(2,)))
    *path, last = place
    inner: Any = data
    for step in path:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(InvalidRequest) as refused:
        read(data)
    assert refused.value.field.startswith(said)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"requests": 0}, "requests"),
        ({"requests": 257}, "requests"),
        ({"rate_per_s": 0}, "rate_per_s"),
        ({"rate_per_s": -1.0}, "rate_per_s"),
        ({"modes": ()}, "modes"),
        ({"modes": ("padded", "none")}, "modes"),
        ({"sweep": (0,)}, "sweep"),
        ({"page_size": 1}, "page_size"),
        ({"num_pages": 0}, "num_pages"),
        ({"target_ttft_s": 0}, "target_ttft_s"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"prompts": ()}, "prompts"),
    ],
)
def test_bad_input_is_named_by_its_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        spec_of(**changes)
    assert refused.value.field == field


def test_the_command_that_a_report_prints_asks_the_same_again() -> None:
    result = load_of(rate_per_s=2.5, target_ttft_s=1.0, sweep=(2, 8), num_pages=9)
    assert command(result)[:4] == ["--prompt", "The red cat was", "--requests", "4"]
    assert {"--rate", "2.5", "--target-ttft", "1.0", "--sweep", "2,8", "--pages", "9"} <= set(command(result))
    assert load_command(requests=4, mode=["padded", "one-by-one"]).modes == ("one-by-one", "padded")


def test_every_chart_is_drawn_without_a_browser() -> None:
    for figure in draw(load_of(20, sweep=(2,), target_request_s=2.0), {}):
        assert figure is not None
        assert "NaN" not in figure_svg(figure, 311)


def test_modes_on_a_tiny_model_give_the_same_tokens_and_a_chat_works_afterwards() -> None:
    backend = ready_backend()
    try:
        spec = LoadSpec(PROMPTS, requests=3, max_new_tokens=5, page_size=16, modes=tuple(ALL_MODES))
        *steps, result = backend.ask(spec, owner="somebody")
        assert isinstance(result, LoadResult)
        assert {item.comparison.verdict.same_output for item in result.comparisons} == {True}
        assert {run.status for run in result.main.runs} == {"ok"}
        assert any(isinstance(step, LoadRound) for step in steps)
        found = summarise_mode(result.spec, result.main, "continuous")
        assert found.num_pages is not None
        assert found.reserved_cache_bytes is not None
    finally:
        backend.close()


ALL_MODES = ("one-by-one", "padded", "continuous", "continuous-unshared", "one-by-one-no-cache", "padded-no-cache")


def test_what_the_operator_or_the_model_does_not_allow_is_refused_before_anything_runs() -> None:
    backend = ready_backend(Limits(new_tokens=10))
    try:
        for changes, field in (
            ({"max_new_tokens": 11}, "max_new_tokens"),
            ({"prompts": (PromptRow("x" * 1020, "long"),)}, "max_new_tokens"),
            ({"num_pages": 1, "page_size": 4, "modes": ("continuous",)}, "num_pages"),
        ):
            with pytest.raises(InvalidRequest) as refused:
                next(iter(backend.ask(spec_of(**changes), owner="somebody")))
            assert refused.value.field == field
    finally:
        backend.close()


def test_the_form_takes_an_empty_box_for_nothing_and_names_the_field_of_what_is_no_number() -> None:
    filled = LoadForm(rate="2,5", target_ttft=" 0.5 ", target_request="", pages="9").spec(FakeBackend())
    assert (filled.rate_per_s, filled.target_ttft_s, filled.target_request_s, filled.num_pages) == (2.5, 0.5, None, 9)
    for typed, field in (
        ({"rate": "0"}, "rate_per_s"),
        ({"rate": "fast"}, "rate_per_s"),
        ({"target_request": "-1"}, "target_request_s"),
        ({"pages": "2.5"}, "num_pages"),
        ({"requests": 0}, "requests"),
        ({"sweep": "1, x"}, "sweep"),
        ({"modes": "padded"}, "modes"),
        ({"source": "From a file"}, "prompts"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            LoadForm(**typed).spec(FakeBackend())
        assert refused.value.field == field


def test_a_run_on_the_page_ends_with_its_headline_charts_and_table() -> None:
    *_, last = runs.run(FakeBackend(), LOAD, tuple(dataclasses.astuple(LoadForm())), "somebody/compare/load")
    assert isinstance(last, runs.Shown)
    assert "times the throughput" in last.headline
    assert "Padded batch" in last.tables
    assert last.figures[0] is not None


def test_an_engine_is_recommended_with_the_command_for_the_model_in_use_and_what_was_measured() -> None:
    result = sure(LoadResult, recorded_result("load"))
    commands = engine_commands(result)
    vllm, _, serve, again = commands.splitlines()
    longest = max(known(run.prompt_tokens) for one in result.main.runs for run in one.record.runs) + 64
    assert vllm == (
        "vllm serve HuggingFaceTB/SmolLM2-135M-Instruct --host 127.0.0.1 --dtype float32 "
        f"--max-model-len {longest} --max-num-seqs 8"
    )
    assert f"--continuous-batching --cb-block-size 16 --cb-num-blocks {8 * -(-longest // 16)} " in serve
    assert again.endswith("--url http://127.0.0.1:8000")
    assert "vllm serve HuggingFaceTB" in engine_card(result)
    evil = dataclasses.replace(
        result, model=dataclasses.replace(result.model, hub_id="owner/name; rm -rf ~", dtype="$(rm -rf ~)")
    )
    assert "rm -rf" not in engine_commands(evil)
    assert "vllm serve MODEL --host 127.0.0.1" in engine_commands(evil)
