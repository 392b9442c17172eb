"""Compare's further questions, called as functions on scripted runs of the real experiments."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kvdemo.components.prompt_source import SHIPPED, TYPED, UPLOADED
from kvdemo.components.wiring import Updates
from kvdemo.experiments.question import Question
from kvdemo.questions.grow.page import GrowthForm
from kvdemo.questions.grow.question import GROW
from kvdemo.questions.grow.spec import GrowthResult
from kvdemo.questions.prefix.page import PrefixForm
from kvdemo.questions.prefix.question import PREFIX
from kvdemo.questions.prefix.spec import PrefixResult
from kvdemo.questions.prompts.page import PromptsForm, SetParts, show_source, take_file
from kvdemo.questions.prompts.question import PROMPTS
from kvdemo.questions.prompts.spec import PromptSetResult
from kvdemo.ui.compare.runs import Refused, Running, Shown, View, run
from tests.fake_backend import FakeBackend
from tests.known import sure

PREFIX_SMALL = {"system_prompt": "be brief", "questions": "one?\n\ntwo?\nthree?", "max_new_tokens": 3}
GROWTH_SMALL = {"prompt": "words", "new_tokens": "2, 4", "prompt_tokens": "3", "longest_tokens": 32}
PROMPTS_SMALL = {"source": TYPED, "typed": "one\n\ntwo words\nand three words", "max_new_tokens": 3}


def asked(question: Question[Any, Any], form: Any, backend: FakeBackend | None = None) -> list[View]:
    values = [getattr(form, field.name) for field in fields(form)]
    return list(run(backend or FakeBackend(), question, values, "me"))


def test_a_set_of_prompts_ends_with_its_picture_its_ratios_and_the_worst_prompt() -> None:
    views = asked(PROMPTS, PromptsForm(**PROMPTS_SMALL))
    last = views[-1]
    assert isinstance(last, Shown)
    assert isinstance(last.result, PromptSetResult)
    assert [item.row.prompt for item in last.result.prompts] == ["one", "two words", "and three words"]
    assert "The whole set" in last.headline
    assert "Least on row" in last.headline
    assert [type(chart).__name__ for chart in last.figures] == ["Figure"] * 2
    assert last.live == ""


def test_what_is_known_so_far_is_shown_while_a_set_runs() -> None:
    views = asked(PROMPTS, PromptsForm(**PROMPTS_SMALL))
    assert any(isinstance(view, Running) and "row 1: " in view.live for view in views)
    assert any(isinstance(view, Running) and "prompts done" in view.headline for view in views)


def test_growth_ends_with_four_figures_and_every_point() -> None:
    last = asked(GROW, GrowthForm(**GROWTH_SMALL))[-1]
    assert isinstance(last, Shown)
    assert isinstance(last.result, GrowthResult)
    assert [(point.prompt_tokens, point.new_tokens) for point in last.result.points] == [(3, 2), (3, 4)]
    assert [type(chart).__name__ for chart in last.figures] == ["Figure"] * 4


def test_a_shared_prefix_ends_with_the_lines_that_keep_it() -> None:
    last = asked(PREFIX, PrefixForm(**PREFIX_SMALL))[-1]
    assert isinstance(last, Shown)
    assert isinstance(last.result, PrefixResult)
    assert last.result.spec.questions == ("one?", "two?", "three?")
    assert "copy.deepcopy(kept)" in last.change
    assert (last.arms, last.chosen) == ([], None)


@pytest.mark.parametrize(
    ("question", "form", "named"),
    [
        (PROMPTS, PromptsForm(source=TYPED, typed=" \n"), "Prompts: there is no prompt in it"),
        (PROMPTS, PromptsForm(source=UPLOADED), "Prompts: choose a file first"),
        (PROMPTS, PromptsForm(**{**PROMPTS_SMALL, "max_new_tokens": -1}), "New tokens"),
        (PROMPTS, PromptsForm(**{**PROMPTS_SMALL, "longest_tokens": 4}), "row 3: needs 32 prompt tokens"),
        (PROMPTS, PromptsForm(**{**PROMPTS_SMALL, "budget_min": float("nan")}), "Time budget"),
        (PROMPTS, PromptsForm(**{**PROMPTS_SMALL, "strategies": ["none"]}), "Strategies"),
        (GROW, GrowthForm(**{**GROWTH_SMALL, "new_tokens": "8, many"}), "Answer lengths: &#x27;many&#x27;"),
        (GROW, GrowthForm(**{**GROWTH_SMALL, "prompt_tokens": "8, 8"}), "Prompt lengths: each length"),
        (GROW, GrowthForm(**{**GROWTH_SMALL, "longest_tokens": 10**9}), "Longest request"),
        (GROW, GrowthForm(**{**GROWTH_SMALL, "longest_tokens": 9000}), "Longest request: 9,000 is beyond"),
        (GROW, GrowthForm(**{**GROWTH_SMALL, "prompt": ""}), "Prompt: is empty"),
        (PREFIX, PrefixForm(**{**PREFIX_SMALL, "questions": ""}), "Questions"),
        (PREFIX, PrefixForm(**{**PREFIX_SMALL, "system_prompt": None}), "System prompt"),
        (PREFIX, PrefixForm(**{**PREFIX_SMALL, "strategy": "magic"}), "Strategy"),
        (PREFIX, PrefixForm(**{**PREFIX_SMALL, "strategy": []}), "Strategy"),
    ],
)
def test_a_refusal_names_the_field_or_the_row_and_nothing_runs(
    question: Question[Any, Any], form: Any, named: str
) -> None:
    backend = FakeBackend()
    (only,) = asked(question, form, backend)
    assert isinstance(only, Refused)
    assert named in only.notice
    assert only.headline is None, "what stood there stays"
    assert backend.closed == []


def test_stopping_a_set_keeps_the_prompts_that_were_done() -> None:
    backend, shown = FakeBackend(), []
    form = PromptsForm(**PROMPTS_SMALL)
    values = [getattr(form, field.name) for field in fields(form)]
    for view in run(backend, PROMPTS, values, "me"):
        shown.append(view)
        if isinstance(view, Running) and "row 1: " in view.live:
            backend.stop("me")
    assert isinstance(shown[-1], Shown)
    result = sure(PromptSetResult, shown[-1].result)
    assert (result.stopped_because, next(item.row.id for item in result.prompts)) == ("stopped", "row 1")
    assert "row 4" in result.not_run


def test_the_shipped_set_is_what_runs_unless_something_else_is_chosen() -> None:
    assert len(PromptsForm().spec(FakeBackend()).prompts) == 12


SET = SetParts("source", "typed", "rows", "about", "notice")


def uploaded(tmp_path: Path, name: str, content: str) -> Updates:
    path = tmp_path / name
    path.write_text(content)
    told = take_file(SET, 5 * 2**20, str(path))
    assert not path.exists()
    return told


def test_an_uploaded_file_is_read_told_of_and_deleted(tmp_path: Path) -> None:
    told = uploaded(tmp_path, "mine.csv", "id,prompt\na,Hello\nb,There\n")
    assert [(row.id, row.prompt) for row in told["rows"]] == [("a", "Hello"), ("b", "There")]
    assert (told["source"], told["notice"]) == (UPLOADED, "")
    assert "mine.csv: 2 prompts" in told["about"]


def test_a_file_with_bad_rows_names_them_and_the_file_before_stays(tmp_path: Path) -> None:
    told = uploaded(tmp_path, "bad.jsonl", '{"prompt": "a"}\n{"promt": "b"}\n')
    assert set(told) == {"notice"}
    assert "row 2: prompt: is missing" in told["notice"]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    assert "must end in" in uploaded(tmp_path, "evil.pickle", "x")["notice"]


def test_what_is_in_a_source_is_told_before_anything_runs() -> None:
    told = show_source(SET, TYPED, "one\ntwo", ())
    assert told["typed"]["visible"] is True
    assert "2 prompts" in told["about"]
    told = show_source(SET, SHIPPED, "", ())
    assert told["typed"]["visible"] is False
    assert "12 prompts" in told["about"]
