"""Watch it again: counts are exact, every word comes from the record, the file holds one script of ours and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kvdemo.cli.main import main
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.documents import document, dumps
from kvdemo.experiments.pieces import plain
from kvdemo.facts.events import Finished
from kvdemo.facts.records import LayerBytes, RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.steps import CacheNorms
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.questions.recorded import recorded_names, recorded_result
from kvdemo.questions.table import question_of
from kvdemo.report.replay import Side, replay_fragment, replay_holder, replay_html, replay_of
from kvdemo.report.report import report_html
from kvdemo.report.work_grid import MOST_ROWS, work_grid
from tests.known import known
from tests.made_up import result_of, run_of
from tests.tiny import tiny_loaded

HOSTILE = '</pre></script><script>alert(1)</script><img src="https://example.org/x">&amp;'
LAYER = LayerBytes(0, "DynamicLayer", 1, 1, 0, 0, 2, "cpu", (1, 3, 9, 64))
MAX_FILE_BYTES = 300_000


def with_layers(result: ComparisonResult) -> ComparisonResult:
    """Its cached runs say how their layers were shaped, as real ones do."""
    runs = tuple(run if run.strategy == "none" else replace(run, cache_layers=(LAYER,) * 30) for run in result.runs)
    return replace(result, runs=runs)


def in_pieces(result: ComparisonResult) -> ComparisonResult:
    """Several tokens came at a time, so that none has a time of its own."""
    runs = tuple(
        replace(run, token_ids=None, num_new_tokens=run.new_tokens, token_times_s=run.token_times_s[::4])
        for run in result.runs
    )
    return replace(result, runs=runs)


def shown(result: ComparisonResult, arm: str | None = None) -> str:
    return replay_html(result, headline="The cache was faster", scope="made up", arm=arm)


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<pre class="kv-replay-data" hidden>(.*?)</pre>', page)
    assert found is not None
    data: dict[str, object] = json.loads(found[1])
    return data


def test_a_step_is_told_with_its_counts_shapes_and_bytes() -> None:
    replay = replay_of(with_layers(result_of()))
    assert replay is not None
    assert replay.step(7) == (
        "Step 7. Without a cache: computed 10 of 10 positions again. With it: computed 1, read 9, appended 1. "
        "Layer 0 keys [1, 3, 9, 64] to [1, 3, 10, 64]; 45.0 KiB more over 30 layers."
    )
    assert replay.step(1) == (
        "Step 1. Without a cache: computed 4 of 4 positions. With it: computed 4 of 4 positions. "
        "Layer 0 keys [1, 3, 4, 64]; 180 KiB more over 30 layers."
    )


def test_where_the_cache_was_slower_the_sums_say_so_in_plain_words() -> None:
    result = result_of()
    late = tuple(
        replace(run, token_times_s=tuple(100 * at for at in run.token_times_s)) if run.strategy == "dynamic" else run
        for run in result.runs
    )
    said = known(replay_of(replace(result, runs=late))).sums()
    assert " times as long. Computing is a small part of a step here: every step" in said
    assert "faster" not in said


def test_the_sums_are_those_of_the_counts_and_say_why_time_fell_less() -> None:
    replay = replay_of(result_of(new_tokens=120))
    assert replay is not None
    assert replay.times_less_work == 7620 / 123
    assert "7,620 positions computed by no cache, 123 by dynamic cache" in replay.sums()
    assert "because every step, with a cache or without, reads all" in replay.sums()


def test_the_round_nearest_the_median_is_replayed() -> None:
    result = result_of(rounds=5)
    replay, comparison = replay_of(result), result.comparison("dynamic")
    assert replay is not None
    assert comparison is not None
    number = replay.sides[0].run.round
    assert number is not None
    assert comparison.ratios[number - 1] == comparison.ratio
    assert replay.caption == f"Round {number} of 5, recorded one after the other, replayed together."


def test_unknown_counts_and_times_are_left_out_instead_of_made_up() -> None:
    assert replay_of(in_pieces(result_of())) is None
    bare = tuple(replace(run, positions_computed=None, positions_read=None) for run in result_of().runs)
    replay = replay_of(replace(result_of(), runs=bare))
    assert replay is not None
    assert replay.step(3) == "Step 3."
    assert replay.sums() == ""
    assert "<svg" not in replay_fragment(replay)


def test_no_shapes_are_told_of_a_layer_that_does_not_simply_grow() -> None:
    window = replace(LAYER, layer_class="DynamicSlidingWindowLayer")
    runs = tuple(replace(run, cache_layers=(window,)) for run in result_of().runs)
    replay = replay_of(replace(result_of(), runs=runs))
    assert replay is not None
    assert "Layer 0" not in replay.step(7)


def test_an_arm_that_was_not_compared_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="arm"):
        replay_of(result_of(), "fp8")


def test_the_chosen_arm_stands_beside_the_baseline() -> None:
    replay = replay_of(result_of(("none", "dynamic", "fp8")), "fp8")
    assert replay is not None
    assert [side.run.strategy for side in replay.sides] == ["none", "fp8"]


def test_the_first_token_that_differs_can_be_jumped_to() -> None:
    result = result_of(("none", "fp8"), new_tokens=20)
    runs = tuple(
        replace(run, token_ids=(*(run.token_ids or ())[:12], *range(900, 908))) if run.strategy == "fp8" else run
        for run in result.runs
    )
    replay = replay_of(replace(result, runs=runs))
    assert replay is not None
    assert replay.differs_at == 13
    data = replay.data()
    assert data["steps"][data["differs"]] == 13


def test_the_last_frame_of_each_side_is_its_recorded_end() -> None:
    for new_tokens in (2, 120, 900):
        replay = replay_of(result_of(rounds=1, new_tokens=new_tokens))
        assert replay is not None
        data = replay.data()
        assert data["steps"][0] == 1
        assert data["steps"][-1] == new_tokens
        for side, told in zip(replay.sides, data["sides"], strict=True):
            assert told["times"][-1] == pytest.approx(side.run.generation_s, abs=1e-4)
            assert told["made"][-1] == told["tokens"] == new_tokens


def test_an_answer_that_ended_earlier_stays_at_its_end() -> None:
    result = result_of(("none", "dynamic"), rounds=1, new_tokens=10)
    short = tuple(
        replace(run, token_ids=(run.token_ids or ())[:4], token_times_s=run.token_times_s[:4])
        if run.strategy == "dynamic"
        else run
        for run in result.runs
    )
    replay = replay_of(replace(result, runs=short))
    assert replay is not None
    assert replay.data()["sides"][1]["made"] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert "With it: it had ended." in replay.step(6)


@pytest.mark.parametrize("new_tokens", [3, 60, 61, 300])
def test_the_grid_is_a_triangle_and_a_diagonal_in_sixty_rows_at_the_most(new_tokens: int) -> None:
    replay = replay_of(result_of(rounds=1, new_tokens=new_tokens))
    assert replay is not None
    without, cached = (str(work_grid(side.run)) for side in replay.sides)
    assert 'class="kv-read"' not in without
    assert 2 <= without.count('class="kv-computed"') <= MOST_ROWS
    assert without.count('class="kv-computed"') == cached.count('class="kv-computed"')
    assert f"{replay.sides[1].run.total_computed:,} positions computed" in cached


def test_the_newest_position_of_a_long_text_is_seen_whole_to_its_last_step() -> None:
    replay = replay_of(result_of(rounds=1, new_tokens=48, prompt_tokens=1700))
    assert replay is not None
    bars = re.findall(
        r'class="kv-computed" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', str(work_grid(replay.sides[1].run))
    )
    assert len(bars) == 48
    assert all(float(width) >= 1 and float(x) + float(width) <= 300.05 for x, width in bars)


def test_text_comes_with_its_tokens_as_recorded_else_evenly() -> None:
    known = run_of(times_s=(0.1, 0.2, 0.3), text="ab cd", text_ends=(0, 2, 4))
    assert Side("a", "a", "", known).text_ends == (0, 2, 5)
    assert Side("a", "a", "", replace(known, text_ends=())).text_ends == (1, 3, 5)


def test_a_hostile_answer_stays_text_in_the_file_the_report_and_on_the_page() -> None:
    result = result_of(rounds=1)
    result = replace(result, runs=tuple(replace(run, text=HOSTILE) for run in result.runs))
    replay = replay_of(result)
    assert replay is not None
    for page in (shown(result), report_html(result), replay_holder(replay)):
        assert "<script>alert" not in page
        assert "<img" not in page
    assert "\n" not in replay_holder(replay)


def test_the_one_script_is_admitted_by_its_hash_and_nothing_is_loaded() -> None:
    for page in (shown(result_of(rounds=1)), report_html(result_of(rounds=1))):
        scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        assert len(scripts) == 1
        digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
        assert policy is not None
        assert policy[1] == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        assert not re.search(r"(?:src|href)=", page.replace("default-src", ""))


def test_a_report_without_two_runs_to_replay_has_no_script() -> None:
    page = report_html(in_pieces(result_of()))
    assert "<script" not in page
    assert "script-src" not in page


def test_the_file_stays_small_however_long_the_answers() -> None:
    result = with_layers(result_of(rounds=1, new_tokens=4000))
    long = replace(result, runs=tuple(replace(run, text="word <b> " * 20_000) for run in result.runs))
    assert len(shown(long).encode()) < MAX_FILE_BYTES


def test_every_recorded_comparison_fits_into_a_small_file_whichever_arm_is_watched() -> None:
    seen = []
    for name in recorded_names():
        result = recorded_result(name)
        question = question_of(result)
        one = question.comparison(result)
        if one is None or one is not result:
            continue
        for arm in one.spec.arms[1:]:
            page = replay_html(
                one, headline=plain(question.words.headline(result)), scope=question.words.scope(result), arm=arm
            )
            assert len(page.encode()) < MAX_FILE_BYTES, name
            assert one.row(arm).label in page
            seen.append(name)
    assert {"compare", "strategies"} <= set(seen)


def test_a_long_prompt_with_norms_of_every_position_fits_into_a_small_file() -> None:
    arms = ("none", "dynamic", "static", "static-compiled", "fp8")
    long = with_layers(result_of(arms, rounds=6, new_tokens=48, prompt_tokens=1700, prompt="word " * 1700))
    lengths = tuple(10 + at / 7 for at in range(1747))
    long = replace(long, norms=CacheNorms(3, 1, 0, lengths, lengths))
    for arm in arms[1:]:
        assert len(shown(long, arm).encode()) < MAX_FILE_BYTES


def test_a_real_run_tells_its_shapes_and_where_its_text_ends() -> None:
    loaded = tiny_loaded()
    request = GenerationRequest("The quick brown fox", 12, fixed_length=True)
    last = list(stream(loaded, request, turnstile=Turnstile(10)))[-1]
    assert isinstance(last, Finished)
    record: RunRecord = last.record
    config = loaded.model.config
    heads, dim = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    assert {layer.keys_shape for layer in record.cache_layers} == {(1, heads, known(record.prompt_tokens) + 11, dim)}
    assert len(record.text_ends) == 12
    assert list(record.text_ends) == sorted(record.text_ends)
    assert record.text_ends[-1] <= len(record.text)
    side = Side("a", "With it", "", record)
    assert f"Layer 0 keys [1, {heads}, {record.prompt_tokens}, {dim}] to" in side.step(2)


def test_the_command_writes_the_page_and_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, out = tmp_path / "result.json", tmp_path / "again.html"
    saved.write_text(dumps(document(result_of(rounds=2))), encoding="utf-8")
    assert main(["replay", str(saved), "--out", str(out), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "replay"
    assert told["words"] == data_of(out.read_text(encoding="utf-8"))["words"]


def test_the_command_refuses_what_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none.json"
    assert main(["replay", str(missing), "--out", str(tmp_path / "again.html")]) == 2
    saved = tmp_path / "result.json"
    saved.write_text(dumps(document(result_of())), encoding="utf-8")
    assert main(["replay", str(saved), "--out", str(tmp_path / "again.txt")]) == 2
    assert main(["replay", str(saved), "--out", str(saved)]) == 2
    assert main(["replay", str(saved), "--arm", "fp8", "--out", str(tmp_path / "again.html")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 4
    assert all(line.startswith("kvdemo: ") for line in errors)
