"""Compare's handlers, called as functions on scripted runs of the real experiment."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from kvdemo.components.exports import Exports
from kvdemo.components.progress_card import progress_card
from kvdemo.errors import RunFailed
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, TokenEmitted
from kvdemo.facts.model import Loading
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress
from kvdemo.questions.faster.live import ArmView, CompareRun
from kvdemo.questions.faster.page import AS_CHAT, AS_TEXT, CompareForm, count_tokens
from kvdemo.questions.faster.question import FASTER
from kvdemo.ui.compare.runs import Refused, Running, Shown, View, failed, run
from tests.fake_backend import STRATEGIES, FakeBackend

ROW = STRATEGIES[1]


def form_of(**values: Any) -> list[Any]:
    """The values of the first question's form, in its order."""
    form = CompareForm(**({"prompt": "The red cat was", "max_new_tokens": 6, "rounds": 1} | values))
    return [getattr(form, field.name) for field in fields(form)]


def views(backend: FakeBackend, **form: Any) -> list[View]:
    return list(run(backend, FASTER, form_of(**form), "me"))


def test_a_comparison_ends_with_headline_table_charts_and_the_result() -> None:
    *_, last = views(FakeBackend())
    assert isinstance(last, Shown)
    assert isinstance(last.result, ComparisonResult)
    assert "times faster" in last.headline
    assert "Other models, machines and lengths give other numbers." in last.headline
    assert "Dynamic cache" in last.tables
    assert [type(chart).__name__ for chart in last.figures] == ["Figure"] * 4 + ["NoneType"]
    assert "Dynamic cache: the same 6 tokens" in last.aside


def test_every_arm_has_its_column_from_the_beginning() -> None:
    first, *_ = views(FakeBackend(), strategies=["none", "dynamic", "static"])
    assert isinstance(first, Running)
    assert first.begun
    assert first.live.count("waits for its turn") == 3


def test_the_form_reaches_the_experiment_checked() -> None:
    backend = FakeBackend()
    views(backend, mode=AS_CHAT, system_prompt="be brief", max_new_tokens=5.0, rounds=2.0, fixed_length=False)
    (spec,) = backend.asked_specs
    assert (spec.as_chat, spec.system_prompt, spec.max_new_tokens, spec.rounds, spec.fixed_length) == (
        True,
        "be brief",
        5,
        2,
        False,
    )


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("prompt", "", "Prompt: is empty"),
        ("prompt", None, "Prompt"),
        ("max_new_tokens", 0, "New tokens: must be between"),
        ("max_new_tokens", None, "New tokens: must be a whole number"),
        ("max_new_tokens", float("nan"), "New tokens"),
        ("rounds", 10**400, "Rounds"),
        ("strategies", ["none"], "Strategies"),
        ("strategies", None, "Strategies"),
        ("strategies", ["none", "magic"], "Strategies"),
        ("budget_min", -1, "Time budget"),
    ],
)
def test_bad_input_is_named_and_nothing_runs(field: str, value: Any, named: str) -> None:
    backend = FakeBackend()
    (last,) = views(backend, **{"until_clear": True, field: value})
    assert isinstance(last, Refused)
    assert named in last.notice
    assert last.headline is None, "what stood there stays"
    assert backend.closed == []


def test_without_a_model_the_form_says_so() -> None:
    (view,) = views(FakeBackend(model=Loading("m", "starting")))
    assert isinstance(view, Refused)
    assert "still loading" in view.notice


def test_stop_keeps_what_was_done() -> None:
    backend = FakeBackend()
    shown = []
    for view in run(backend, FASTER, form_of(rounds=3), "me"):
        shown.append(view)
        if isinstance(view, Running) and "round 2" in view.headline:
            backend.stop("me")
    assert isinstance(shown[-1], Shown)
    assert shown[-1].result.stopped_because == "stopped"


def test_the_page_is_drawn_once_for_each_progress_and_nothing_of_a_run_is_missing_then() -> None:
    asked = CompareSpec("The red cat was", max_new_tokens=6, rounds=2)
    steps = list(FakeBackend().ask(asked, owner="me"))
    shown = views(FakeBackend(), max_new_tokens=6, rounds=2)
    assert len(shown) == sum(isinstance(step, Progress) for step in steps) + 1
    counts = [re.findall(r"(\d) of 6 tokens", view.live) for view in shown if isinstance(view, Running)]
    assert sorted({number for found in counts for number in found}) == ["1", "2", "3", "4", "5", "6"]


def test_leaving_closes_the_run() -> None:
    backend = FakeBackend()
    shown = run(backend, FASTER, form_of(), "me")
    for _ in range(5):
        next(shown)
    shown.close()
    assert len(backend.closed) >= 1


def test_a_failed_arm_says_why_in_its_column() -> None:
    record = RunRecord("dynamic", "failed", None, 4)
    arm = ArmFailed("dynamic", 1, False, "Out of memory <b>", record)
    shown = (CompareRun({"dynamic": ArmView(ROW)}, 6).after(arm)).fragment()
    assert "Out of memory &lt;b&gt;" in shown


def test_the_place_where_an_answer_would_have_ended_is_marked() -> None:
    record = RunRecord(
        "dynamic", "ok", "length", 4, token_ids=(1, 2, 3), token_times_s=(0.1, 0.2, 0.3), text="abc", would_end_at=2
    )
    view = CompareRun({"dynamic": ArmView(ROW)}, 3)
    events: list[GenerationEvent] = [
        PromptEncoded(4, 0.0, 0.0),
        *(TokenEmitted(at, at, "abc"[at], 0.1, 4, 0, 0) for at in range(3)),
    ]
    for event in (*events, Finished("length", record)):
        view = view.after(ArmEvent("dynamic", 1, False, event))
    assert (
        'ab<span class="kv-would-end">an answer would have ended here</span><span class="kv-after-end">c</span>'
        in view.fragment()
    )


def test_warming_up_is_not_shown_as_a_result() -> None:
    view = CompareRun({"dynamic": ArmView(ROW)}, 3)
    view = view.after(ArmEvent("dynamic", 0, True, TokenEmitted(0, 1, "secret", 0.1, 4, 0, 0)))
    assert "secret" not in view.fragment()
    assert "warming up, not timed" in view.fragment()


def test_progress_says_what_runs_how_far_and_time_left() -> None:
    shown = progress_card(Progress("No cache: round 1 of 1", 2, 4, 3.0, 7.4))
    assert "No cache: round 1 of 1 · 2 of 4 runs done · about 7 s left" in shown


def test_tokens_are_counted_as_the_model_will_see_them() -> None:
    backend = FakeBackend()
    assert "4 tokens" in count_tokens(backend, "The red cat was", AS_TEXT, "")
    assert "34 tokens" in count_tokens(backend, "The red cat was", AS_CHAT, "")
    assert count_tokens(backend, "  ", AS_TEXT, "") == ""
    assert count_tokens(FakeBackend(model=Loading("m", "starting")), "x", AS_TEXT, "") == ""


def test_a_fault_of_ours_leaves_the_form_usable() -> None:
    view = failed(FASTER)
    assert "Something went wrong on our side" in view.notice
    assert view.headline is not None


def test_saved_files_have_names_of_ours_and_their_own_folder() -> None:
    exports = Exports()
    one, two = exports.write("kvdemo-compare", "csv", "a\r\nb"), exports.write("kvdemo-compare", "csv", "c")
    assert one != two
    assert one.name.startswith("kvdemo-compare-")
    assert one.read_bytes() == b"a\r\nb"


def test_a_refused_run_is_told_with_its_reason() -> None:
    error = RunFailed("The model's thread ended.", RunRecord("dynamic", "failed", None, 0))
    *_, last = views(FakeBackend(error=error))
    assert isinstance(last, Refused)
    assert "thread ended" in last.notice
