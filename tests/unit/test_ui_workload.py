"""Your workload and "Ready to decide?" on the page: what is typed starts the forms and is kept, what comes back is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from kvdemo.charts.request_chart import request_chart
from kvdemo.charts.static_svg import figure_svg
from kvdemo.components.exports import Exports
from kvdemo.experiments.complete_request import CompleteRequest, RequestTimes
from kvdemo.experiments.documents import dumps
from kvdemo.experiments.evidence import Evidence
from kvdemo.facts.workload import Workload
from kvdemo.questions.documents import any_document
from kvdemo.questions.table import QUESTIONS
from kvdemo.questions.verdict import ready_to_decide
from kvdemo.settings import Settings
from kvdemo.ui.compare.ready import ready_card
from kvdemo.ui.compare.tab import build_compare_tab, open_result, turn_to
from kvdemo.ui.page import build_page
from tests.drawn import named, texts
from tests.fake_backend import FakeBackend
from tests.made_up import application_spending, result_of
from tests.through_blocks import Visit

NUMBERS = {
    "longest_prompt_tokens": "2,000",
    "longest_answer_tokens": "48",
    "at_once": "3",
    "memory_gib": "",
    "target_s": "2,5",
    "other_s": "0.5",
}


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return build_page(FakeBackend(), Settings())


def part(page: gr.Blocks, name: str) -> Any:
    return next(block for block in page.blocks.values() if getattr(block, "elem_id", None) == name)


def told(visit: Visit, fn: Any, values: list[Any]) -> dict[str, Any]:
    """What the event tells each part, by its name."""
    (said,) = visit.run(fn, values)
    return {block.elem_id or type(block).__name__: value for block, value in said.items()}


def say(visit: Visit, **changed: str) -> dict[str, Any]:
    return told(visit, visit.event("say"), [None, *{**NUMBERS, **changed}.values()])


def recalled(visit: Visit, kept: Any) -> dict[str, Any]:
    return told(visit, visit.event("recalled"), [kept])


def said(page: gr.Blocks, visit: Visit) -> Workload:
    found: Workload = visit.state[visit.event("say").inputs[0]._id]
    return found


def test_every_form_starts_from_what_was_said(page: gr.Blocks) -> None:
    now = say(Visit(page))
    assert now["workload-notice"] == ""
    assert {name: now[name] for name in now if name.startswith(("compare-", "memory-"))} == {
        "compare-faster-new-tokens": 48,
        "compare-prompts-new-tokens": 48,
        "compare-prompts-longest": 2048,
        "compare-grow-longest": 2048,
        "compare-load-requests": 3,
        "compare-load-new-tokens": 48,
        "compare-load-target-request": "2",
        "memory-length": 2048,
        "memory-slider": 11.0,
        "memory-batch": 3,
    }


def test_what_was_said_is_kept_in_the_browser_as_text(page: gr.Blocks) -> None:
    kept = say(Visit(page))["BrowserState"]
    assert Workload.kept(json.loads(kept)) == Workload(2000, 48, 3, None, 2.5, 0.5)


def test_only_what_changed_starts_anew_so_that_what_was_typed_in_a_form_stays(page: gr.Blocks) -> None:
    visit = Visit(page)
    say(visit)
    again = say(visit, at_once="4")
    assert {name for name in again if name.startswith(("compare-", "memory-"))} == {
        "compare-load-requests",
        "memory-batch",
    }
    assert {name for name in say(visit, at_once="") if name.startswith(("compare-", "memory-"))} == set()


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("longest_prompt_tokens", "many", "Longest prompt: &#x27;many&#x27; is not a whole number"),
        ("longest_answer_tokens", "99999999999", "Longest answer: must be between"),
        ("at_once", "0", "Requests at once: must be between"),
        ("memory_gib", "nan", "Memory: must be a finite number"),
        ("target_s", "-1", "Time target: must be between"),
        ("other_s", "<b>", "Other time: &#x27;&lt;b&gt;&#x27; is not a number"),
    ],
)
def test_a_mistake_is_told_by_its_field_and_nothing_is_lost(page: gr.Blocks, name: str, typed: str, words: str) -> None:
    visit = Visit(page)
    say(visit)
    before = said(page, visit)
    now = say(visit, **{name: typed})
    assert set(now) == {"workload-notice"}
    assert words in now["workload-notice"]
    assert said(page, visit) == before


def test_a_page_that_opens_starts_from_what_the_browser_kept(page: gr.Blocks) -> None:
    visit = Visit(page)
    kept = say(Visit(page, "before"))["BrowserState"]
    now = recalled(visit, kept)
    assert said(page, visit) == Workload(2000, 48, 3, None, 2.5, 0.5)
    assert (now["workload-longest_prompt_tokens"], now["workload-target_s"], now["workload-memory_gib"]) == (
        "2000",
        "2.5",
        "",
    )
    assert (now["compare-grow-longest"], now["memory-length"]) == (2048, 2048)


@pytest.mark.parametrize(
    "kept",
    [None, "", 7, {}, [], "{", "[" * 900, "[" * 100_000, "null", '"text"', '{"at_once": "many", "target_s": 1e999}'],
)
def test_a_broken_value_in_the_browser_is_dropped_without_a_word(page: gr.Blocks, kept: Any) -> None:
    visit = Visit(page)
    assert recalled(visit, kept) == {}
    assert said(page, visit) in (None, Workload())


def test_of_a_value_that_is_broken_in_part_the_rest_counts(page: gr.Blocks) -> None:
    visit = Visit(page)
    now = recalled(visit, json.dumps({"at_once": 4, "target_s": -1, "memory_gib": [], "more": 1}))
    assert said(page, visit) == Workload(at_once=4)
    assert now["memory-batch"] == 4


def test_a_link_to_memorys_numbers_has_the_last_word(page: gr.Blocks) -> None:
    visit = Visit(page, query="tab=memory&seq_len=100&batch=2")
    now = recalled(visit, json.dumps({"longest_prompt_tokens": 50, "longest_answer_tokens": 5, "at_once": 4}))
    assert {name for name in now if name.startswith("memory-")} == set()
    assert now["compare-grow-longest"] == 55


# --- Ready to decide? -------------------------------------------------------------------------------------------------


def decided(visit: Visit) -> str:
    """The card beside the first headline, judged anew."""
    judge = visit.event("judge")
    now = told(visit, judge, visit.values(judge))
    cards = {now[f"compare-{question.key}-ready"] for question in QUESTIONS}
    assert len(cards) == 1
    return str(cards.pop())


def run_comparison(visit: Visit) -> None:
    """Six rounds of eight tokens."""
    run = visit.event("run", "compare-faster-run")
    values = visit.values(run)
    values[3] = 8
    visit.run(run, values)


def test_before_anything_is_known_each_row_says_what_answers_it(page: gr.Blocks) -> None:
    card = str(part(page, "compare-faster-ready").value)
    assert "Not enough evidence yet: 0 of 10 answered." in card
    assert [f"kv-to-{key}" in card for key in ("faster", "prompts", "grow", "load")] == [True] * 4
    assert card.count("not yet") == 10
    assert "about 2 min" in card


def test_the_setting_in_force_is_the_first_answer(page: gr.Blocks) -> None:
    assert "1 of 10 answered" in decided(Visit(page, "fresh"))


def test_a_result_of_this_visitor_answers_its_rows_and_no_other_visitors(page: gr.Blocks) -> None:
    mine, other = Visit(page, "mine"), Visit(page, "other")
    run_comparison(mine)
    card = decided(mine)
    assert "Nothing to change: it is on and clearly faster." in card
    assert "6 paired rounds" in card
    assert "1 of 10 answered" in decided(other)


def test_what_was_said_is_judged_by(page: gr.Blocks) -> None:
    visit = Visit(page, "saying")
    run_comparison(visit)
    say(visit, target_s="0.6")
    judge = visit.event("judge")
    now = told(visit, judge, visit.values(judge))
    assert "Keep it on." in now["compare-faster-ready"]
    assert "Your target of 600 ms is missed with the cache" in now["workload-words"]
    assert now["workload-user"]["visible"] is True
    say(visit, target_s="0.6", other_s="")
    now = told(visit, judge, visit.values(judge))
    assert (now["workload-words"], now["workload-user"]["visible"]) == ("", False)


def test_a_recorded_example_is_nobodys_evidence() -> None:
    page = build_page(FakeBackend(recordings={"compare": result_of()}), Settings())
    visit = Visit(page, query="tab=compare")
    arrived = visit.event("arrived")
    shown = told(visit, arrived, visit.values(arrived))
    assert "Recorded example" in shown["compare-faster-headline"]
    assert "1 of 10 answered" in decided(visit)


def test_a_result_that_somebody_opens_is_evidence_and_the_example_after_it_is_not(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(dumps(any_document(result_of())), encoding="utf-8")
    with gr.Blocks():
        tab = build_compare_tab(FakeBackend(recordings={"compare": result_of()}), Settings(), Exports(), QUESTIONS)
    (area,) = (area for area in tab.areas if area.question.key == "faster")
    assert open_result(tab, str(file))[area.own] is True
    assert turn_to(tab, "faster", ())[area.own] is False


@pytest.mark.parametrize(
    ("generation_s", "verdict"),
    [
        (1.2, "Look elsewhere: generation is 12 % of the request."),
        (4.0, "Nothing to change: it is on and clearly faster."),
    ],
)
def test_an_application_that_was_watched_elsewhere_is_judged_once_its_result_is_opened(
    page: gr.Blocks, tmp_path: Path, generation_s: float, verdict: str
) -> None:
    file = tmp_path / "result.json"
    file.write_text(dumps(any_document(application_spending(generation_s))), encoding="utf-8")
    visit = Visit(page, f"watched {generation_s}")
    visit.run(visit.event("open_result"), [{"path": str(file), "meta": {"_type": "gradio.FileData"}}])
    judge = visit.event("judge")
    now = told(visit, judge, visit.values(judge))
    card = str(now["compare-application-ready"])
    assert verdict in card
    assert "on what your program asks: one call of 4 prompt tokens" in card
    assert now["workload-user"]["visible"] is True


def test_a_row_that_a_file_brings_cannot_break_the_card() -> None:
    found = ready_to_decide(Workload(), (), beside=[Evidence(2, "no", "<img src=x onerror=alert(1)>", "<b>")])
    card = ready_card(found)
    assert "<img" not in card
    assert "&lt;img" in card


def test_what_unfolds_is_at_the_same_place_in_every_card() -> None:
    little, more = ready_to_decide(Workload(), ()), ready_to_decide(Workload(other_s=1.0), [result_of()])
    assert [ready_card(found).count("<details>") for found in (little, more)] == [11, 11]


def test_the_chart_of_a_complete_request_stacks_what_is_elsewhere_prefill_and_decode() -> None:
    request = CompleteRequest(
        RequestTimes("No cache", 1.8, 0.1, 17.2, "none"), RequestTimes("Dynamic <b>", 1.8, 0.1, 4.0, "dynamic")
    )
    figure = request_chart(request, 10.0)
    assert [(trace.name, tuple(trace.x)) for trace in figure.data if trace.type == "bar"] == [
        ("elsewhere", (1.8, 1.8)),
        ("prefill", (0.1, 0.1)),
        ("decode", (17.2, 4.0)),
    ]
    assert tuple(named(figure, "target")[0].x) == (10.0, 10.0)
    assert figure.layout.xaxis.range[1] > 19.1
    assert texts(figure, "whole") == ["19.1 s", "5.9 s"]
    assert any("Dynamic &lt;b&gt;" in words for words in texts(figure, "label"))
    assert named(request_chart(request), "target") == []

    assert "<svg" in figure_svg(figure, 311)
    alone = request_chart(CompleteRequest(None, request.cached), 0.5)
    assert [tuple(trace.x) for trace in alone.data if trace.type == "bar"] == [(1.8,), (0.1,), (4.0,)]


def test_the_chart_of_a_request_whose_prefill_is_not_known_apart_says_generation() -> None:
    whole = CompleteRequest(None, RequestTimes("as it is", 6.0, None, 4.0, "dynamic"))
    figure = request_chart(whole)
    assert [(trace.name, tuple(trace.x)) for trace in figure.data if trace.type == "bar" and any(trace.x)] == [
        ("elsewhere", (6.0,)),
        ("generation", (4.0,)),
    ]
    assert not any("prefill" in words or "decode" in words for words in texts(figure))
