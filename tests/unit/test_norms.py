"""Norms recorded with a comparison: of the stored vectors, after the timed runs, in the document and in every replay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from kvdemo.backend import Backend
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.compare import compare
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.documents import document, dumps, from_document
from kvdemo.facts.results import ArmEvent, Progress
from kvdemo.facts.steps import CacheNorms
from kvdemo.generation.prompt import encode_prompt
from kvdemo.models.tiny_window import tiny_window_model
from kvdemo.questions.faster.command import layer_and_head
from kvdemo.questions.faster.page import CompareForm
from kvdemo.questions.faster.words import command, request
from kvdemo.report.norms_picture import MOST_BARS, NormsPicture
from kvdemo.report.replay import replay_fragment, replay_holder, replay_html, replay_of
from kvdemo.report.report import report_html
from tests.fake_backend import FakeBackend
from tests.known import known
from tests.made_up import result_of
from tests.scripted import ScriptedRun, bench_of, record
from tests.tiny_backend import ready_backend

PROMPT = "Which of these words do you still hold?"
NORMS = CacheNorms(3, 1, 0, (10.5, 2.25, 3.0), (1.0, 2.0, 4.0))
TITLE = "Length (L2 norm) of each key and value vector, layer 3, head 1, by position"


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    made = ready_backend(model=tiny_window_model)
    yield made
    made.close()


def asked(backend: Backend, norms: tuple[int, int] | None, **changes: Any) -> tuple[list[Any], ComparisonResult]:
    spec = CompareSpec(PROMPT, max_new_tokens=5, rounds=1, norms=norms, **changes)
    *steps, last = backend.ask(spec, owner="me")
    assert isinstance(last, ComparisonResult)
    return steps, last


def recorded() -> ComparisonResult:
    return replace(result_of(rounds=1, new_tokens=6), norms=NORMS)


def shown(result: ComparisonResult) -> str:
    return replay_html(result, headline="Faster", scope="made up")


def test_they_are_the_lengths_of_what_a_cache_of_that_text_stores(backend: Backend) -> None:
    _, result = asked(backend, (2, 1))
    norms = known(result.norms)
    loaded = backend._engine.ready()
    made = next(run.token_ids for run in result.runs if run.counts and run.token_ids)
    ids = (*encode_prompt(loaded, PROMPT).token_ids, *made[:-1])
    cache = DynamicCache(config=loaded.model.config)
    with torch.inference_mode():
        loaded.model(torch.tensor([ids]), cache=cache, use_cache=True)
    for found, part in ((norms.keys, cache.layers[2].keys), (norms.values, cache.layers[2].values)):
        assert found == pytest.approx(torch.linalg.vector_norm(part[0, 1], dim=-1).tolist(), rel=1e-3)
    assert (norms.layer, norms.head, norms.first) == (2, 1, 0)
    assert len(norms.keys) == len(norms.values) == len(ids)
    assert all(len(re.sub(r"\D", "", f"{value:g}").lstrip("0")) <= 4 for value in norms.keys), "four digits"


def test_of_a_window_only_what_it_still_holds_is_recorded(backend: Backend) -> None:
    _, result = asked(backend, (0, 0))
    norms = known(result.norms)
    tokens = known(next(run.prompt_tokens for run in result.runs)) + 4
    assert (norms.first, len(norms.keys)) == (tokens - 15, 15)


def test_they_are_taken_after_the_last_timed_run_and_in_none(backend: Backend) -> None:
    steps, _ = asked(backend, (2, 1))
    at = [index for index, step in enumerate(steps) if isinstance(step, Progress) and "not timed" in step.phase]
    timed = [index for index, step in enumerate(steps) if isinstance(step, ArmEvent) and not step.warmup]
    told = [index for index in at if "lengths" in steps[index].phase]
    assert any(index > max(timed) for index in told)
    assert not any(min(timed) < index < max(timed) for index in told)


def test_nothing_is_recorded_unless_it_was_asked_for(backend: Backend) -> None:
    steps, result = asked(backend, None)
    assert result.norms is None
    assert not any("lengths" in step.phase for step in steps if isinstance(step, Progress))
    assert document(result)["norms"] is None


@pytest.mark.parametrize(("norms", "field"), [((6, 0), "layer"), ((0, 2), "head")])
def test_a_layer_or_head_that_is_not_there_is_refused_by_name_before_anything_runs(
    backend: Backend, norms: tuple[int, int], field: str
) -> None:
    seen: list[Any] = []
    steps = backend.ask(CompareSpec(PROMPT, max_new_tokens=5, norms=norms), owner="me")
    with pytest.raises(InvalidRequest) as refused:
        seen.extend(steps)
    assert refused.value.field == field
    assert not any(isinstance(step, ArmEvent) for step in seen)


def test_where_the_cache_cannot_be_seen_the_request_is_refused_at_once() -> None:
    script = ScriptedRun(lambda request, _: record(request.strategy))
    with pytest.raises(InvalidRequest, match="a server shows nothing of its cache"):
        compare(CompareSpec("a", norms=(0, 0)), bench_of(script))
    assert script.requests == []


@pytest.mark.parametrize("norms", [(-1, 0), (0, 10**9), ("a", 0), (0, 1.5)])
def test_what_cannot_be_a_layer_or_head_is_refused(norms: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"layer|head"):
        CompareSpec("a", norms=norms)


def test_they_come_back_from_the_document_and_an_earlier_one_has_none() -> None:
    saved = json.loads(dumps(document(recorded())))
    assert from_document(saved).norms == NORMS
    del saved["norms"], saved["request"]["norms"]
    earlier = from_document(saved)
    assert (earlier.norms, earlier.spec.norms) == (None, None)


@pytest.mark.parametrize(
    "changed",
    [{"values": [1.0]}, {"keys": [], "values": []}, {"keys": [1.0, -1.0, 1.0]}, {"first": -1}, {"keys": "all"}],
)
def test_a_document_whose_norms_cannot_be_is_refused_by_name(changed: dict[str, Any]) -> None:
    saved = json.loads(dumps(document(recorded())))
    saved["norms"] |= changed
    with pytest.raises(InvalidRequest) as refused:
        from_document(saved)
    assert refused.value.field.startswith("norms")


def test_page_report_and_file_show_them_labelled_as_what_they_are() -> None:
    result = recorded()
    replay = replay_of(result)
    assert replay is not None
    for page in (shown(result), report_html(result), str(replay_fragment(replay))):
        assert page.count(TITLE) == 1
        assert "Keys: 2.25 to 10.5" in page
        assert "Values: 1 to 4" in page
        assert "not what they mean" in page
    assert TITLE in replay_holder(replay)
    without = replace(result, norms=None)
    assert "L2 norm" not in shown(without)
    assert "L2 norm" not in report_html(without)


def test_the_bars_are_as_high_as_the_lengths_and_one_stands_for_each_position() -> None:
    keys, values = NormsPicture(NORMS).rows
    heights = [[float(height) for height in re.findall(r"v-([\d.]+)h", str(row.bars))] for row in (keys, values)]
    assert heights[0] == pytest.approx([60 * length / 10.5 for length in NORMS.keys], abs=0.1)
    assert heights[1] == [15.0, 30.0, 60.0]
    assert NormsPicture(NORMS).ends == ("position 1", "position 3")


def test_very_many_positions_share_bars_and_the_picture_stays_small() -> None:
    many = CacheNorms(0, 0, 20, tuple(float(at + 1) for at in range(1747)), (1.0,) * 1747)
    picture = NormsPicture(many)
    assert all(str(row.bars).count("M") <= MOST_BARS for row in picture.rows)
    assert "Each bar is the mean of 12 positions." in picture.caption
    assert "no longer held" in picture.caption
    assert picture.ends == ("position 21", "position 1,767")
    assert sum(len(str(row.bars)) for row in picture.rows) < 12_000


def test_the_form_records_them_where_the_box_is_ticked_and_never_for_noise() -> None:
    form = CompareForm("a b", norms=True, layer=3, head=1.0)
    assert form.spec(FakeBackend()).norms == (3, 1)
    assert replace(form, norms=False).spec(FakeBackend()).norms is None
    assert replace(form, noise=True).spec(FakeBackend()).norms is None
    with pytest.raises(InvalidRequest, match="layer"):
        replace(form, layer="three").spec(FakeBackend())


def test_the_switch_is_read_and_written_again() -> None:
    assert layer_and_head(" 3, 1") == (3, 1)
    for bad in ("3", "3,1,2", "a,b", "-1,0", ""):
        with pytest.raises(InvalidRequest, match="norms"):
            layer_and_head(bad)
    result = recorded()
    result = replace(result, spec=replace(result.spec, norms=(3, 1)))
    assert command(result)[-2:] == ["--norms", "3,1"]
    assert ("norms recorded", "layer 3, KV head 1, after the timed runs") in request(result)


def test_a_saved_comparison_with_norms_is_replayed_by_the_command(tmp_path: Path) -> None:
    from kvdemo.cli.main import main

    saved, out = tmp_path / "result.json", tmp_path / "again.html"
    saved.write_text(dumps(document(recorded())), encoding="utf-8")
    assert main(["replay", str(saved), "--out", str(out)]) == 0
    assert TITLE in out.read_text(encoding="utf-8")
