"""Does a shared prefix pay: both ways per question, what is saved, when it pays."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.facts.events import Working
from kvdemo.facts.records import Reported, RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import ArmEvent, PreparedPrefix, Progress
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.prefix.code import PREFIX_CODE
from kvdemo.questions.prefix.run import pays_after, prefix_reuse
from kvdemo.questions.prefix.spec import PrefixPair, PrefixResult, PrefixSpec
from kvdemo.questions.prefix.words import headline as prefix_headline
from tests.scripted import Clock, ScriptedPrefix, ScriptedRun, bench_of, even_times, record

PREFIX = PreparedPrefix(num_tokens=500, cache_bytes=23_040_000, prepare_s=0.9)


def fresh(request: GenerationRequest, earlier: int) -> RunRecord:
    return record(request.strategy, even_times(0.549, 0.03, request.max_new_tokens))


def kept(request: GenerationRequest, earlier: int) -> RunRecord:
    return record(request.strategy, even_times(0.049, 0.03, request.max_new_tokens), reused_tokens=500)


def prepared(clock: Clock, beats: int = 0) -> Generator[Working, None, PreparedPrefix]:
    for _beat in range(beats):
        clock.now_s += 0.5
        yield Working(clock.now_s)
    return PREFIX


def play(spec: PrefixSpec, kept_script: Any = kept, **options: Any) -> tuple[list[Any], PrefixResult, list[str]]:
    clock = Clock()
    order: list[str] = []

    def noting(name: str, script: Callable[[GenerationRequest, int], RunRecord]) -> ScriptedRun:
        def noted(request: GenerationRequest, earlier: int) -> RunRecord:
            order.append(name)
            return script(request, earlier)

        return ScriptedRun(noted, clock, stop=options.get("stop", lambda: False))

    prefix = ScriptedPrefix(lambda: prepared(clock), noting("kept", kept_script))
    *steps, result = prefix_reuse(spec, bench_of(noting("fresh", fresh), share=prefix.share, clock=clock, **options))
    assert isinstance(result, PrefixResult)
    return steps, result, order


@pytest.mark.parametrize(("page", "could"), [(16, "480 in the whole pages of 16"), (None, "493 that could be")])
def test_a_servers_hits_are_of_what_could_be_shared_and_stand_beside_the_times(page: int | None, could: str) -> None:
    """Of 500 tokens two are the question's, by its share of the text, and five end the template."""
    spec = PrefixSpec("s" * 2000, ("q" * 8,), max_new_tokens=3)

    def said(request: GenerationRequest, earlier: int) -> RunRecord:
        return replace(kept(request, earlier), prompt_tokens=500, reused_tokens=480, reported=Reported(500, 3, 480))

    _, result, _ = play(spec, said, page_tokens=page)
    headline = plain(prefix_headline(result))
    assert "49.0 ms to the first token with the prefix kept, 549 ms without" in headline
    assert f"It reports 480 tokens as reused of about {could}" in headline
    assert "a hit rate is not a speed-up" in headline
    written = any_document(result)
    assert written["hit_efficiency"] == pytest.approx(1.0 if page else 480 / 493)
    assert from_any_document(loads(dumps(written).encode())) == result


def spec_of(count: int = 6, **changes: Any) -> PrefixSpec:
    return PrefixSpec("You are the newsroom's assistant.", tuple(f"Question {n}?" for n in range(count)), **changes)


def test_each_question_is_asked_both_ways_in_alternating_order_after_a_warm_up_of_each() -> None:
    _, result, order = play(spec_of(2))
    assert order == ["fresh", "kept", "fresh", "kept", "kept", "fresh"]
    assert [pair.first for pair in result.pairs] == ["fresh", "kept"]
    assert [run.warmup for run in result.warmups] == [True, True]


def test_first_token_times_ratio_reuse_and_when_it_pays() -> None:
    _, result, _ = play(spec_of())
    assert result.fresh_ttft_s is not None
    assert result.kept_ttft_s is not None
    assert (result.fresh_ttft_s.median, result.kept_ttft_s.median) == (0.549, 0.049)
    assert result.ratio == pytest.approx(0.549 / 0.049)
    assert result.coverage == 0.96875
    assert {pair.kept.reused_tokens for pair in result.pairs} == {500}
    assert all(pair.verdict.same_output and pair.verdict.expected_equal for pair in result.pairs)
    assert result.pays_after == 2
    assert plain(prefix_headline(result)) == (
        "49.0 ms to the first token with the prefix kept, 549 ms without: 11.2 times faster"
        " (11.2 to 11.2 over 6 questions). It keeps 500 tokens in 22.0 MiB, processed once in 900 ms."
        " It pays from 2 questions on. Same tokens on every question."
    )


def test_it_never_pays_where_nothing_is_saved() -> None:
    assert (pays_after(0.9, 0.0), pays_after(0.9, -0.1), pays_after(0.9, None)) == (None, None, None)

    def as_slow(request: GenerationRequest, earlier: int) -> RunRecord:
        return replace(fresh(request, earlier), reused_tokens=500)

    _, result, _ = play(spec_of(), as_slow)
    assert "It does not pay: no time was saved." in plain(prefix_headline(result))


def test_other_tokens_after_a_kept_prefix_are_a_fault_in_float32() -> None:
    def wrong(request: GenerationRequest, earlier: int) -> RunRecord:
        return record(request.strategy, (0.05, 0.08), (0, 9), reused_tokens=500)

    _, result, _ = play(spec_of(max_new_tokens=2), wrong)
    assert [pair.verdict.first_difference for pair in result.pairs] == [1] * 6
    assert "this is a fault" in plain(prefix_headline(result))


def test_a_prefix_that_was_kept_and_not_used_is_no_result() -> None:
    with pytest.raises(InvalidRequest, match="the kept prefix was not used"):
        play(spec_of(), fresh)


def test_every_question_gets_the_same_slots_both_ways() -> None:
    slots: list[int | None] = []

    def noted(request: GenerationRequest, earlier: int) -> RunRecord:
        slots.append(request.cache_slots)
        return kept(request, earlier)

    play(spec_of(2), noted)
    assert slots == [600] * 3


def test_events_name_the_arm_they_belong_to() -> None:
    steps, _, _ = play(spec_of(1))
    assert {step.arm for step in steps if isinstance(step, ArmEvent)} == {"fresh", "kept"}


@pytest.mark.parametrize(
    ("key", "words"), [("none", "cannot be copied"), ("warp", "is not one of"), ("offloaded", "needs an accelerator")]
)
def test_a_strategy_that_keeps_nothing_is_refused(key: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        play(spec_of(strategy=key))


def test_a_failed_question_stays_and_counts_in_nothing() -> None:
    def sometimes(request: GenerationRequest, earlier: int) -> RunRecord:
        if earlier == 2:
            return record(request.strategy, status="failed", finish_reason=None, error="it broke")
        return kept(request, earlier)

    _, result, _ = play(spec_of(3), sometimes)
    assert [pair.counts for pair in result.pairs] == [True, False, True]
    assert result.pairs[1].verdict.same_output is None
    assert result.fresh_ttft_s is not None
    assert result.fresh_ttft_s.n == 2


def test_stop_keeps_the_questions_that_were_answered() -> None:
    answered = 0

    def counting(request: GenerationRequest, earlier: int) -> RunRecord:
        nonlocal answered
        answered = earlier
        return kept(request, earlier)

    steps, result, _ = play(spec_of(6), counting, stop=lambda: answered >= 3)
    assert result.stopped_because == "stopped"
    assert [step for step in steps if isinstance(step, PrefixPair)] == list(result.pairs)
    assert [pair.kept.status for pair in result.pairs] == ["ok", "ok", "cancelled"]
    assert result.fresh_ttft_s is not None
    assert result.fresh_ttft_s.n == 2


def test_no_question_begins_after_the_operators_limit() -> None:
    _, result, _ = play(spec_of(6), limit_s=5)
    assert (result.stopped_because, 0 < len(result.pairs) < 6) == ("limit", True)


def test_a_prefix_result_can_be_opened_again() -> None:
    _, result, _ = play(spec_of())
    assert from_any_document(loads(dumps(any_document(result)))) == result


def test_the_code_that_does_it_runs_and_answers_as_without_a_kept_prefix(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from tests.tiny import tiny_model, tiny_tokenizer

    model, tokenizer = tiny_model(), tiny_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    questions = ["Why?", "Where was it found?"]
    names = {"name": str(tmp_path), "system_prompt": "Be brief.", "questions": questions, "max_new_tokens": 12}
    capsys.readouterr()
    exec(compile(PREFIX_CODE, "prefix.py", "exec"), names)
    expected = []
    for question in questions:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
        inputs = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=12, do_sample=False)
        expected.append(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
    assert capsys.readouterr().out == "".join(f"{text}\n" for text in expected)


def test_a_long_prefix_is_prepared_with_a_step_every_half_second() -> None:
    clock = Clock()
    told_s: list[float] = []
    prefix = ScriptedPrefix(lambda: prepared(clock, beats=40), ScriptedRun(kept, clock))
    bench = bench_of(ScriptedRun(fresh, clock), share=prefix.share, clock=clock)
    for step in prefix_reuse(spec_of(1), bench):
        if isinstance(step, Progress) and step.phase == "processing the prefix once":
            told_s.append(step.elapsed_s - (told_s[0] if told_s else 0))
    assert isinstance(step, PrefixResult)
    assert told_s[1:] == pytest.approx([0.5 * beat for beat in range(1, 41)])
