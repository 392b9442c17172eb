"""Figures, tested by their data: what is drawn, what the labels say, and that no text from outside becomes markup."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from statistics import fmean

import plotly.graph_objects as go
import pytest

from kvdemo.charts.chat_charts import answer_steps_chart, first_token_chart
from kvdemo.charts.colours import dark_rules, faint
from kvdemo.charts.layer_charts import layer_chart, sharing_chart
from kvdemo.charts.look import thin
from kvdemo.charts.memory_growth_chart import growth_chart
from kvdemo.charts.plain_text import clean
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.summary import arms
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.palette import MEANINGS, PAPER, of_strategy
from kvdemo.questions.faster.charts import arrival_chart, cache_bytes_chart, step_cost_chart, time_split_chart
from kvdemo.questions.faster.tables import arms_table
from kvdemo.questions.faster.work_chart import COMPUTED, READ, work_cells, work_chart, work_words
from kvdemo.questions.grow.charts import GROWTH_FIGURES, growth_figure_chart, growth_ratio_chart
from kvdemo.questions.prefix.charts import prefix_chart
from kvdemo.questions.prompts.charts import prompt_ratios_chart, prompt_set_chart
from tests.drawn import named, texts
from tests.made_up import growth_of, plan_of, prefix_of, prompt_set_of, result_of, run_of, sliding_layers

ALL_ARMS = ("none", "dynamic", "static", "static-compiled", "fp8")
HOSTILE = "<img src=x onerror=alert(1)>%{x}"

Chart = Callable[[ComparisonResult], go.Figure]
COMPARE_CHARTS: list[Chart] = [arrival_chart, step_cost_chart, time_split_chart, work_chart, cache_bytes_chart]


def compare_figure(chart: Chart, arms: tuple[str, ...]) -> go.Figure:
    return chart(result_of(arms, rounds=2))


def memory_growth_figure(by: str) -> go.Figure:
    return growth_chart(plan_of(budget_gib=80, batch_size=8), by)


def growth_figure(name: str) -> go.Figure:
    return growth_figure_chart(growth_of(), name)


EVERY_FIGURE: dict[str, Callable[[], go.Figure]] = {
    **{f"{chart.__name__} {len(arms)}": partial(compare_figure, chart, arms)
       for chart in COMPARE_CHARTS for arms in (("none", "dynamic"), ("dynamic", "static"), ALL_ARMS)},
    **{f"growth {by}": partial(memory_growth_figure, by)
       for by in ("length", "users", "layers", "heads")},
    "growth of a windowed model": lambda: growth_chart(plan_of(sliding_layers(), num_parameters=10**9)),
    "layers": lambda: layer_chart(plan_of(sliding_layers())),
    "layers alike": lambda: layer_chart(plan_of()),
    "sharing": lambda: sharing_chart(plan_of()),
    "steps": lambda: answer_steps_chart(result_of(rounds=1).runs[1]),
    "first tokens": lambda: first_token_chart([run_of(), run_of()], [None, 0.5]),
    "ratio": lambda: growth_ratio_chart(growth_of()),
    **{f"growth {name}": partial(growth_figure, name) for name in GROWTH_FIGURES},
    "set": lambda: prompt_set_chart(prompt_set_of()),
    "set ratios": lambda: prompt_ratios_chart(prompt_set_of(), "dynamic"),
    "prefix": lambda: prefix_chart(prefix_of()),
}  # fmt: skip


def test_all_rounds_are_faint_and_their_median_is_strong() -> None:
    ends = (1.0, 1.2, 1.1)
    runs = tuple(run_of("dynamic", (0.5, end), round_number=number) for number, end in enumerate(ends, 1))
    figure = arrival_chart(replace(result_of(rounds=1), runs=runs))
    (rounds,) = named(figure, "rounds")
    assert rounds.x == (0.0, 0.5, 1.0, None, 0.0, 0.5, 1.2, None, 0.0, 0.5, 1.1, None)
    assert rounds.y == (0, 1, 2, None) * 3
    (median,) = named(figure, "dynamic cache")
    assert (median.x, median.y) == ((0.0, 0.5, 1.1), (0, 1, 2))
    assert rounds.opacity < 0.5
    assert rounds.line.width < median.line.width


def test_warm_ups_and_unfinished_runs_are_not_drawn() -> None:
    runs = (
        run_of("dynamic", (9.0, 9.9), warmup=True),
        run_of("dynamic", (5.0, 6.0), status="cancelled"),
        run_of("dynamic", (0.5, 1.0)),
    )
    figure = arrival_chart(replace(result_of(rounds=1), runs=runs))
    assert max(x for trace in figure.data for x in trace.x if x is not None) == 1.0


def test_labels_stand_on_the_lines_and_name_the_end() -> None:
    assert texts(arrival_chart(result_of()), "label") == ["● dynamic cache  4.5 s", "■ no cache 19.4 s"]
    assert arrival_chart(result_of()).layout.showlegend is False


def test_the_slope_is_written_on_the_line_for_cached_and_uncached() -> None:
    steps = [0.034 + 0.00002 * position for position in range(1, 101)]
    times = [0.1]
    for step in steps:
        times.append(times[-1] + step)
    figure = step_cost_chart(replace(result_of(rounds=1), runs=(run_of("dynamic", times),)))
    assert texts(figure, "label") == ["● dynamic cache  34 ms, + 0.02 ms per token of context"]
    (line,) = named(figure, "dynamic cache")
    assert line.x == (1, 100)
    assert line.y == pytest.approx((34.02, 36.0))


def answer_of(steps: Sequence[float]) -> RunRecord:
    return run_of("dynamic", (0.1, *(0.1 + sum(steps[: at + 1]) for at in range(len(steps)))))


def test_where_no_slope_is_seen_the_mean_is_drawn_level_and_the_label_says_so() -> None:
    noise = random.Random(4)
    result = replace(result_of(rounds=1), runs=(answer_of([0.131 + noise.gauss(0, 0.02) for _ in range(20)]),))
    for figure, name in (
        (step_cost_chart(result), "dynamic cache"),
        (answer_steps_chart(result.runs[0]), "steps"),
    ):
        (line,) = named(figure, name)
        assert line.y[0] == line.y[1] == pytest.approx(1000 * fmean(result.runs[0].step_s))
        (words,) = texts(figure, "label")
        assert words.endswith(" ms, no slope seen in 20 steps")
        assert "per token of context" not in words


@pytest.mark.parametrize(("rounds", "end"), [(3, "no slope seen in 3 rounds"), (6, "no slope seen")])
def test_too_few_rounds_to_see_a_slope_are_named(rounds: int, end: str) -> None:
    noise = random.Random(5)
    runs = [answer_of([0.131 + noise.gauss(0, 0.02) for _ in range(40)]) for _ in range(rounds)]
    (words,) = texts(step_cost_chart(replace(result_of(rounds=1), runs=tuple(runs))), "label")
    assert words.endswith(end)


def test_an_answer_of_chat_states_a_slope_that_is_there() -> None:
    figure = answer_steps_chart(answer_of([0.03 + 0.001 * at + 0.0001 * (at % 3) for at in range(1, 65)]))
    (words,) = texts(figure, "label")
    assert "31 ms, + 1 ms per token of context" in words


def test_growth_shows_the_median_step_of_every_point_slope_or_none() -> None:
    growth = growth_of(prompts=(16,), answers=(8, 16))
    (line,) = named(growth_figure_chart(growth, "step"), "dynamic cache")
    assert line.x == (8, 16)
    tpot = [arms(point.result)[1].tpot_s for point in growth.points]
    assert line.y == pytest.approx([1000 * spread.median for spread in tpot if spread])


@pytest.mark.parametrize("tokens", [20, 80])
def test_what_is_drawn_reads_the_steps_of_a_run_a_few_times_however_many_there_are(tokens: int) -> None:
    class Counted(RunRecord):
        reads = 0

        @property
        def step_s(self) -> tuple[float, ...]:
            Counted.reads += 1
            return super().step_s

    whole = result_of(("none", "dynamic"), rounds=3, new_tokens=tokens)
    runs = tuple(Counted(**{field.name: getattr(run, field.name) for field in fields(run)}) for run in whole.runs)
    result = replace(whole, runs=runs)
    Counted.reads = 0
    for chart in COMPARE_CHARTS:
        chart(result)
    arms_table(result)
    assert 0 < Counted.reads <= 6 * len(runs)


def test_a_slow_step_does_not_flatten_the_chart_and_is_counted_in_words() -> None:
    times = [0.1 + 0.05 * at for at in range(100)]
    times = [*times[:50], *(time + 30 for time in times[50:])]
    figure = step_cost_chart(replace(result_of(rounds=1), runs=(run_of("dynamic", times),)))
    assert figure.layout.yaxis.range[1] < 1000
    assert "(1 above" in texts(figure, "y title")[0]


def test_time_is_split_into_the_first_pass_and_the_rest() -> None:
    runs = (run_of("none", (0.2, 1.0, 2.2)), run_of("dynamic", (0.25, 0.3, 0.35)))
    figure = time_split_chart(replace(result_of(rounds=1), runs=runs))
    first, more = figure.data
    assert (first.name, first.x) == ("first pass", (0.2, 0.25))
    assert more.name == "more passes"
    assert more.x == pytest.approx((2.0, 0.1))
    assert set(first.marker.color) == {MEANINGS["prefill"].fill}
    assert more.marker.color == (of_strategy("none").fill, of_strategy("dynamic").fill)
    assert {"2.2 s", "350 ms", "2 more passes"} <= set(texts(figure))


def test_work_is_a_triangle_against_a_diagonal_with_the_two_sums() -> None:
    result = result_of(rounds=1)
    figure = work_chart(result)
    assert texts(figure, "label") == ["■ no cache  7,620 computed", "● dynamic cache  123 computed"]
    uncached, cached = (trace.z for trace in figure.data)
    assert {cell for row in uncached for cell in row} == {COMPUTED, None}
    assert {cell for row in cached for cell in row} == {COMPUTED, READ, None}
    assert all(len(trace.z) <= 40 and len(trace.z[0]) <= 40 for trace in figure.data)
    assert work_words(result) == "62 times less work; every step still reads all 513 MiB of weights."


def test_small_work_is_drawn_cell_by_cell() -> None:
    uncached, per_row, per_column = work_cells(run_of("none", (1, 2, 3), prompt_tokens=2))
    assert (per_row, per_column) == (1, 1)
    c, r = COMPUTED, READ
    assert uncached == [[c, c, None, None], [c, c, c, None], [c, c, c, c]]
    assert work_cells(run_of("dynamic", (1, 2, 3), prompt_tokens=2))[0] == [
        [c, c, None, None], [r, r, c, None], [r, r, r, c],
    ]  # fmt: skip


def test_arms_with_the_same_work_share_a_panel() -> None:
    figure = work_chart(result_of(ALL_ARMS, rounds=1))
    assert len(figure.data) == 2
    assert texts(figure, "label")[1] == "● dynamic cache  and 3 more 123 computed"
    alike = result_of(("dynamic", "static"), rounds=1)
    assert work_words(alike).startswith("The same work in each;")


def test_bytes_over_the_run_show_storage_where_it_is_more() -> None:
    grows = tuple((size * 2**20, 5 * 2**20) for size in (1, 2, 3))
    run = run_of("dynamic", (1, 2, 3), cache_bytes_by_token=grows)
    figure = cache_bytes_chart(replace(result_of(rounds=1), runs=(run,)))
    (held,) = named(figure, "dynamic cache")
    (storage,) = named(figure, "dynamic cache, storage")
    assert (held.y, storage.y) == ((1, 2, 3), (5, 5, 5))
    assert storage.line.dash == "dot"


@pytest.mark.parametrize("chart", COMPARE_CHARTS)
def test_a_comparison_in_which_nothing_finished_draws_an_empty_chart(chart: Chart) -> None:
    runs = (run_of("none", (), status="failed"), run_of("dynamic", (), status="failed"))
    assert chart(replace(result_of(rounds=1), runs=runs)).layout.title.text


@pytest.mark.parametrize("chart", COMPARE_CHARTS)
def test_one_token_is_enough_to_draw(chart: Chart) -> None:
    assert chart(result_of(rounds=1, new_tokens=1)).layout.title.text


def test_no_text_from_outside_becomes_markup_or_a_template() -> None:
    assert clean(HOSTILE) == "&lt;img src=x onerror=alert(1)&gt;%&#123;x}"
    assert clean("a\nb\x00 &amp;") == "a b &amp;amp;"
    assert len(clean("x" * 500, max_chars=20)) == 20
    strange = StrategyRow("dynamic", HOSTILE, "", exact=True, keeping="no")
    result = result_of(rounds=1)
    result = replace(result, strategies=(result.strategies[0], strange))
    prompts = prompt_set_of([HOSTILE])
    for figure in [
        *(chart(result) for chart in COMPARE_CHARTS),
        prompt_set_chart(prompts),
        prompt_ratios_chart(prompts, "dynamic"),
    ]:
        words = figure.to_json()
        assert "<img" not in words
        assert "onerror=alert(1)>%{x}" not in words


@pytest.mark.parametrize("name", EVERY_FIGURE)
def test_every_figure_keeps_the_rules_of_the_look(name: str) -> None:
    figure = EVERY_FIGURE[name]()
    layout = figure.layout
    assert layout.title.text.endswith("?</b>")
    assert layout.height >= 120
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0, 0, 0, 0)"
    assert layout.showlegend is False
    assert {trace.type for trace in figure.data} <= {"scatter", "bar", "heatmap"}
    assert all(note.font.size >= 14 for note in layout.annotations)
    assert all(axis.title.text for axis in figure.select_xaxes() if axis.visible is not False)
    known = {colour for meaning in MEANINGS.values() for colour in (meaning.fill, meaning.text)}
    known |= {colour for paper in PAPER.values() for colour in (paper.faint_text, paper.card)}
    allowed = {faint(colour, 1).rsplit(",", 1)[0] for colour in known} | {"rgba(0, 0, 0"}
    used = json.dumps(figure.to_plotly_json(), default=list)
    assert {colour.rsplit(",", 1)[0] for colour in re.findall(r"rgba\([^)]*\)", used)} <= allowed
    assert set(re.findall(r"#[0-9A-Fa-f]{6}", used)) <= known
    assert len(figure.to_json()) < 400_000


def test_arms_can_be_told_apart_without_colour() -> None:
    figure = arrival_chart(result_of(ALL_ARMS))
    dashes = [trace.line.dash for trace in figure.data if trace.mode == "lines" and trace.name != "rounds"]
    markers = [trace.marker.symbol for trace in figure.data if trace.name.endswith(" markers")]
    assert len(set(zip(dashes, markers, strict=True))) == len(ALL_ARMS)
    assert {text[0] for text in texts(figure, "label")} == {"■", "●", "▲", "◆", "✖"}


def test_long_runs_are_thinned_but_keep_their_ends() -> None:
    assert thin(10_000, 5) == [0, 2500, 5000, 7499, 9999]
    assert thin(3, 5) == [0, 1, 2]
    figure = arrival_chart(result_of(rounds=1, new_tokens=3000))
    assert sum(len(trace.x) for trace in figure.data) < 1500
    assert named(figure, "dynamic cache")[0].y[-1] == 3000


def test_charts_follow_the_page_into_the_dark_with_the_palettes_colours() -> None:
    rules = dark_rules()
    for meaning in MEANINGS.values():
        if meaning.fill.lower() != meaning.dark.lower():
            assert meaning.dark in rules
    assert '.dark .js-plotly-plot [style*="stroke: rgb(213, 94, 0)"] {stroke: #FF8A3D !important;}' in rules


def test_style_rules_and_calls_need_no_plotly_and_no_report_needs_torch() -> None:
    code = (
        "import sys, kvdemo.charts.colours; assert 'plotly' not in sys.modules\n"
        "import kvdemo.report.report, kvdemo.charts.memory_growth_chart, kvdemo.questions.grow.charts\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("computed", "read"), [((4, 1), (0,)), ((4, 1), ()), ((0,), (0,)), ((4, 1), (0, -9))])
def test_work_that_a_file_tells_in_part_is_left_out_of_the_drawing(
    computed: tuple[int, ...], read: tuple[int, ...]
) -> None:
    result = result_of(rounds=1)
    runs = tuple(replace(run, positions_computed=computed, positions_read=read) for run in result.runs)
    assert work_chart(replace(result, runs=runs)).data == ()
