"""Tables and CSV: every run once, units in the names, numbers that read back, no formula for a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pandas as pd
import pytest

from kvdemo.experiments.tables import runs_table
from kvdemo.facts.plans import MeasuredLayer, MeasuredPoint
from kvdemo.facts.records import Reported, RunRecord
from kvdemo.questions.faster.question import FASTER
from kvdemo.questions.faster.tables import arms_table
from kvdemo.report.spreadsheet import guarded, run_numbers, runs_csv
from kvdemo.ui.memory.measured_tables import differences_table, measured_table
from tests.made_up import result_of, run_of


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_table_has_one_row_per_arm_with_median_spread_and_count() -> None:
    times = {"none": (2.0, 2.2, 2.4), "dynamic": (0.5, 0.6, 0.7)}
    result = result_of(rounds=1)
    runs = [
        run_of(key, (0.1, end), round_number=number, warmup=number == 0)
        for key, ends in times.items()
        for number, end in enumerate((9.0, *ends))
    ]
    frame = arms_table(replace(result, runs=tuple(runs)))
    assert list(frame["Strategy"]) == ["No cache", "Dynamic cache"]
    assert list(frame["Total, median"]) == ["2.2 s", "600 ms"]
    assert list(frame["Range"]) == ["2.0 s to 2.4 s", "500 ms to 700 ms"]
    assert list(frame["Runs"]) == ["3", "3"]
    assert list(frame["Cache held"]) == ["nothing kept", "225 KiB"]


def test_an_arm_without_a_finished_run_keeps_its_row_and_says_so() -> None:
    result = result_of(rounds=1)
    runs = [run_of("none", (0.1, 0.2)), run_of("dynamic", (), status="failed", error="out of memory")]
    frame = arms_table(replace(result, runs=tuple(runs)))
    assert list(frame["Total, median"]) == ["200 ms", "n/a"]
    assert list(frame["Runs"]) == ["1", "0, 1 left out"]


def test_runs_without_tokens_or_with_one_have_no_speed() -> None:
    result = replace(result_of(rounds=1), runs=(run_of("none", (), status="cancelled"), run_of("dynamic", (0.3,))))
    frame = runs_table(FASTER.runs(result), result.labels)
    assert list(frame["First token"]) == ["n/a", "300 ms"]
    assert list(frame["Per token"]) == ["n/a", "n/a"]
    assert list(frame["Speed"]) == ["n/a", "n/a"]
    assert list(frame["Status"]) == ["cancelled", "ok"]


def test_what_is_not_known_stays_unknown() -> None:
    assert run_numbers(run_of("none", ()))["ttft_s"] is None


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", " @x", "-2", "@SUM(A1)", "\tx", "\rx", "\n=1", "＝1+1", "  =cmd|' /C calc'!A0"]
)
def test_text_that_looks_like_a_formula_is_guarded(text: str) -> None:
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["plain", "a = b", "3 - 2", "", "'quoted", "é"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert guarded(text) == text


def test_answers_with_commas_quotes_line_ends_and_emoji_make_one_row_per_run() -> None:
    texts = ["=1+1", "+cmd", " @x", 'a, "b"\r\nc \U0001f600', "\n\n", "last"]
    runs = tuple(run_of("dynamic", (0.1, 0.2), text=text) for text in texts)
    rows = rows_of(runs_csv(replace(result_of(rounds=1), runs=runs)))
    assert [row["text"] for row in rows] == ["'=1+1", "'+cmd", "' @x", 'a, "b"\r\nc \U0001f600', "'\n\n", "last"]


def test_a_prompt_or_an_error_cannot_become_a_formula_either() -> None:
    result = result_of(rounds=1, prompt="=HYPERLINK(1)")
    runs = (run_of("none", (), status="failed", error="-boom"),)
    (row,) = rows_of(runs_csv(replace(result, runs=runs)))
    assert (row["prompt"], row["error"]) == ("'=HYPERLINK(1)", "'-boom")


def test_numbers_read_back_to_the_same_float_and_are_never_guarded() -> None:
    run = run_of("dynamic", (0.1, 0.1 + 1.785e-08), queue_s=-5.2, prepare_s=-0.0)
    text = runs_csv(replace(result_of(rounds=1), runs=(run,)))
    (row,) = rows_of(text)
    assert float(row["tpot_s"]) == run.tpot_s
    assert float(row["queue_s"]) == -5.2
    assert math.copysign(1, float(row["prepare_s"])) == -1
    frame = pd.read_csv(io.StringIO(text))
    assert frame["queue_s"].tolist() == [-5.2]


def test_what_is_not_finite_is_an_empty_cell() -> None:
    run = run_of("dynamic", (0.1, 0.2), queue_s=math.nan, request_s=math.inf)
    (row,) = rows_of(runs_csv(replace(result_of(rounds=1), runs=(run,))))
    assert (row["queue_s"], row["request_s"]) == ("", "")


def test_no_run_is_left_out_of_a_long_export() -> None:
    runs = tuple(run_of("dynamic", (0.1, 0.2), round_number=number) for number in range(1001))
    rows = rows_of(runs_csv(replace(result_of(rounds=1), runs=runs)))
    assert len(rows) == 1001
    assert [int(row["round"]) for row in rows] == list(range(1001))


def test_every_row_says_what_it_was_measured_with_and_the_header_names_units() -> None:
    rows = rows_of(runs_csv(result_of(rounds=1)))
    for name, value in {
        "torch": "2.13.0+cpu",
        "transformers": "5.24.0",
        "device": "cpu",
        "dtype": "float32",
        "seed": "0",
        "model": "SmolLM2-135M-Instruct",
    }.items():
        assert {row[name] for row in rows} == {value}
    assert "tpot_s = decode_s / (new tokens - 1)" in rows[0]["formulas"]
    assert {"ttft_s", "generation_s", "decode_tokens_per_s", "cache_bytes", "peak_bytes"} <= set(rows[0])


def test_a_result_without_runs_still_has_a_header() -> None:
    assert rows_of(runs_csv(replace(result_of(rounds=1), runs=()))) == []


def test_differences_are_told_by_layer_and_only_where_there_are_some() -> None:
    same = MeasuredLayer(0, "full", 100, 100, 100)
    view = MeasuredLayer(1, "sliding", 50, 200, 50, "a view keeps the prompt's storage")
    point = MeasuredPoint("dynamic", 10, (same, view))
    frame = measured_table([point], {"dynamic": "Dynamic cache"})
    assert list(frame["Layers"]) == ["1 full", "1 sliding"]
    assert list(frame["Difference, bytes"]) == ["0", "0"]
    assert set(frame["Strategy"]) == {"Dynamic cache"}
    frame = differences_table([point], {})
    assert list(frame["Layers"]) == ["1 sliding"]
    assert list(frame["Cause"]) == ["a view keeps the prompt's storage"]
    assert len(differences_table([MeasuredPoint("dynamic", 10, (same,))], {})) == 0


def test_every_fact_of_a_record_reaches_the_table_or_is_a_list() -> None:
    run = run_of()
    missing = {name for name in RunRecord.__slots__ if name not in run_numbers(run)}
    assert missing == {
        "cache_bytes_by_token",
        "cache_layers",
        "positions_computed",
        "positions_read",
        "reported",  # in columns of its own
        "text_ends",
        "token_ids",
        "token_times_s",
    }
    assert {f"reported_{name}" for name in Reported.__slots__} <= set(run_numbers(run))
    told = run_numbers(replace(run, reported=Reported(prompt_tokens=9)))
    assert (told["reported_prompt_tokens"], told["reported_cached_tokens"]) == (9, None)
