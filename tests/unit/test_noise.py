"""How noisy is this machine? A strategy beside itself: what is said, drawn, written, opened again and repeated."""

from __future__ import annotations

import ast
import re
from dataclasses import fields, replace
from typing import Any

import pytest

from kvdemo.experiments.comparison import CompareSpec, ComparisonResult, Noise
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.summary import summarise
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.faster.charts import arrival_chart
from kvdemo.questions.faster.command import compare
from kvdemo.questions.faster.page import CompareForm
from kvdemo.questions.faster.question import FASTER
from kvdemo.questions.grow.question import GROW
from kvdemo.questions.grow.words import headline as grow_headline
from kvdemo.questions.prompts.words import headline as prompts_headline
from kvdemo.report.contents import command_line
from kvdemo.report.report import report_html, report_markdown
from kvdemo.report.reproduce import reproduce_script
from kvdemo.ui.compare.keep_this import arms, fastest, keep_card
from kvdemo.ui.compare.runs import Refused, Shown, run
from tests.fake_backend import FakeBackend
from tests.known import known, sure
from tests.made_up import growth_of, noise_result, prompt_set_of
from tests.tiny_backend import ready_backend


def said(result: ComparisonResult) -> str:
    return plain(FASTER.words.headline(result))


def test_the_headline_says_how_far_identical_runs_lie_apart() -> None:
    assert said(noise_result()) == (
        "Two identical runs here differ by up to 2 % (0.98 to 0.98 times in 6 paired rounds). A difference within that is none."
    )


@pytest.mark.parametrize(
    ("rounds", "begins"),
    [
        (1, "First look: two identical runs here differ by 2 % in one round."),
        (3, "First look: two identical runs here differ by up to 2 % (range 0.98 to 0.98 times, 3 rounds)."),
    ],
)
def test_below_six_rounds_it_is_a_first_look(rounds: int, begins: str) -> None:
    words = said(noise_result(rounds=rounds))
    assert words.startswith(begins)
    assert words.endswith("Enough to go on, not enough to decide: run 6 rounds.")


@pytest.mark.parametrize(("ratio", "words"), [(0.98, "2 %"), (1.26, "26 %"), (1.003, "0.3 %"), (1.0, "0.0 %")])
def test_a_small_difference_is_not_rounded_to_none(ratio: float, words: str) -> None:
    assert Noise(ratio, None, None, 1).words() == words


def test_identical_runs_that_make_other_tokens_are_told_first() -> None:
    result = noise_result()
    other = [replace(one, token_ids=(7,) * one.new_tokens) if one.arm else one for one in result.runs]
    table = {row.key: row for row in result.strategies}
    odd = summarise(result.spec, other, model=result.model, environment=result.environment, strategies=table)
    assert "Their tokens differ from token 1 on, though the request was the same." in said(odd)
    assert any("greedy float32 must agree" in point for point in FASTER.words.open_points(odd, None))


def test_what_is_open_speaks_of_the_noise_and_of_no_gain() -> None:
    points = FASTER.words.open_points(noise_result(rounds=1), None)
    assert not re.search(r"\b(ratio|gain)\b", " ".join(points)), points
    assert any(point.startswith("How well the noise repeats: one round was completed") for point in points)
    assert any("at other times" in point for point in points)


def test_nothing_is_to_choose_between_a_strategy_and_itself() -> None:
    result = noise_result()
    assert (arms(FASTER, result), fastest(FASTER, result), result.fastest) == ([], None, None)
    assert keep_card(FakeBackend(), FASTER, result, "dynamic") == ""


def test_a_twin_that_was_lucky_is_not_the_fastest() -> None:
    """dynamic-again takes 0.9 of dynamic's time, static 1.04 of it."""
    result = noise_result(("dynamic", "static"), again=0.9)
    assert {item.candidate for item in result.comparisons} == {"static", "dynamic-again"}
    assert (result.fastest, [key for _, key in arms(FASTER, result)]) == ("dynamic", ["dynamic", "static"])
    lucky = noise_result(("static", "dynamic"), again=0.9)
    assert lucky.fastest == "dynamic"


def test_beside_other_strategies_the_noise_is_a_sentence_of_its_own() -> None:
    words = said(noise_result(("none", "dynamic")))
    assert "times faster" in words
    assert "Two identical runs differed by up to 2 %." in words


@pytest.mark.parametrize("strategies", [("dynamic",), ("none", "dynamic")])
def test_its_document_opens_again_as_it_was(strategies: tuple[str, ...]) -> None:
    result = noise_result(strategies)
    again = from_any_document(loads(dumps(any_document(result))))
    assert again == result
    assert isinstance(again, ComparisonResult)
    assert again.noise is not None


def test_the_noise_that_a_part_of_a_larger_result_knew_of_is_kept_in_its_document() -> None:
    result = growth_of((16,), (4,))
    known = replace(result.points[0], result=replace(result.points[0].result, noise=Noise(1.0, 0.97, 1.03, 6)))
    told = replace(result, points=(known,))
    assert from_any_document(loads(dumps(any_document(told)))) == told
    assert GROW.kind == any_document(told)["kind"]


def test_the_second_of_two_identical_runs_is_drawn_dotted_and_called_again() -> None:
    figure = arrival_chart(noise_result())
    lines = {trace.name: trace.line.dash for trace in figure.data if trace.mode == "lines" and trace.name != "rounds"}
    assert lines == {"dynamic cache": "solid", "dynamic cache, again": "dot"}
    labels = " ".join(note.text for note in figure.layout.annotations if note.text)
    assert "dynamic cache, again" in labels


@pytest.mark.parametrize("form", [report_html, report_markdown])
def test_a_report_tells_of_both_and_advises_nothing(form: Any) -> None:
    page = form(noise_result())
    assert "Two identical runs here differ by up to 2 %" in page
    assert "Dynamic cache, again" in page
    assert "Keep this, or go back" not in page
    assert "--strategy dynamic --rounds 6 --noise" in page.replace("\\", "")
    assert "dynamic once more in every round" in page


def test_the_command_asks_the_same_again() -> None:
    result = noise_result()
    line = command_line(FASTER, result)
    assert line.startswith("python -m kvdemo compare --prompt")
    assert line.endswith("--max-new-tokens 40 --strategy dynamic --rounds 6 --noise")
    assert (
        compare(prompt="The red cat was", max_new_tokens=40, strategy=["dynamic"], rounds=6, noise=True) == result.spec
    )


def test_the_script_without_kvdemo_runs_it_twice_in_every_round() -> None:
    script = reproduce_script(noise_result())
    (arms_of_script,) = (
        sure(ast.Dict, node.value)
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Assign) and is_arms(node)
    )
    assert [ast.literal_eval(known(key)) for key in arms_of_script.keys] == ["dynamic", "dynamic-again"]
    first, again = (ast.unparse(value) for value in arms_of_script.values)
    assert first == again
    assert script.startswith('"""Compares dynamic, dynamic-again on one prompt')


def is_arms(node: ast.Assign) -> bool:
    return getattr(node.targets[0], "id", "") == "arms"


def test_the_command_without_strategies_takes_the_one_that_is_usual() -> None:
    assert compare(noise=True).arms == ("dynamic", "dynamic-again")


# --- on the page -----------------------------------------------------------------------------------------------------


def asked(**form: Any) -> list[Any]:
    values = CompareForm("The red cat was", max_new_tokens=4, noise=True, **form)
    return list(run(FakeBackend(), FASTER, [getattr(values, field.name) for field in fields(values)], "me"))


def test_the_button_runs_the_last_of_the_chosen_strategies_beside_itself() -> None:
    last = asked(strategies=["none", "dynamic"], rounds=6)[-1]
    assert isinstance(last, Shown)
    assert isinstance(last.result, ComparisonResult)
    assert last.result.spec.arms == ("dynamic", "dynamic-again")
    assert "identical runs here differ" in last.headline
    assert (list(last.arms), last.chosen, last.change) == ([], None, "")
    assert "Dynamic cache, again" in last.live
    assert 'class="kv-key kv-of-dynamic kv-again"' in last.live
    assert "Dynamic cache, again" in last.tables
    assert None not in last.figures[:4]


def test_with_nothing_chosen_the_button_names_the_field() -> None:
    (only,) = asked(strategies=[])
    assert isinstance(only, Refused)
    assert "Strategies: choose between one and" in only.notice


def test_a_noise_measured_once_belongs_to_later_comparisons_of_the_same_machine() -> None:
    backend = ready_backend()
    try:
        *_, first = backend.ask(CompareSpec("ab", ("dynamic",), 4, rounds=6, noise=True))
        *_, later = backend.ask(CompareSpec("ab", ("none", "dynamic"), 4))
    finally:
        backend.close()
    assert later.noise == first.noise is not None


def test_growth_and_a_set_of_prompts_call_a_difference_within_the_noise_none_too() -> None:
    wide = Noise(1.0, 0.2, 9.0, 6, 32)
    grown = growth_of((16,), (16,))
    known = tuple(replace(point, result=replace(point.result, noise=wide)) for point in grown.points)
    assert "no difference beyond the noise of this machine" in plain(grow_headline(replace(grown, points=known)))
    assert "times faster" in plain(grow_headline(grown))
    asked = prompt_set_of()
    heard = tuple(replace(one, result=replace(one.result, noise=wide)) for one in asked.prompts)
    assert "no difference beyond the noise of this machine" in plain(prompts_headline(replace(asked, prompts=heard)))
