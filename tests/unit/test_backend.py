"""The one door: states of the model, limits, owners, experiments; on the tiny model."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kvdemo.backend import Backend
from kvdemo.engine.shared_prefix import text_of_length
from kvdemo.errors import ContextFull, InvalidRequest, ModelNotReady, ModelUnavailable, TooBusy
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.facts.events import Finished, PromptEncoded, TokenEmitted, Waiting, Working
from kvdemo.facts.model import Failed, Loading, Ready
from kvdemo.facts.plans import MeasuredPoint, MemoryRequest
from kvdemo.facts.reader import Reader
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import MeasureSpec, Message
from kvdemo.facts.results import ArmFailed, Progress
from kvdemo.generation.prompt import encode_prompt
from kvdemo.models.continuing import STARTS_OVER, STATES_ALONE
from kvdemo.questions.grow.spec import GrowthResult, GrowthSpec
from kvdemo.questions.prefix.spec import PrefixResult, PrefixSpec
from kvdemo.questions.prompts.spec import PromptSetResult, PromptSetSpec
from kvdemo.settings import Limits, Settings
from tests.known import ended, known, sure
from tests.puppet import Puppet
from tests.state_models import jamba, mamba2, measured
from tests.tiny import PROMPT, tiny_loaded, tiny_model, tiny_tokenizer
from tests.tiny_backend import ready_backend, tiny_backend

ASK = (Message("user", "hi"),)


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    made = ready_backend()
    yield made
    made.close()


def last(steps: Iterator[Any]) -> Any:
    *_, final = steps
    return final


# --- the model -------------------------------------------------------------------------------------------------------


def test_before_the_model_is_there_runs_are_refused_in_words_and_known_models_can_be_planned() -> None:
    waiting = tiny_backend()
    assert isinstance(waiting.status(), Loading)
    with pytest.raises(ModelNotReady, match="still loading"):
        next(waiting.chat(ASK, max_new_tokens=4))
    plan = waiting.plan(MemoryRequest(seq_len=1000), model="Llama-3.1-8B")
    assert plan.held_bytes == 131_072 * 1000
    waiting.start()
    assert isinstance(waiting.wait_until_settled(), Ready)
    waiting.close()


def test_a_model_that_cannot_be_loaded_leaves_the_rest_working() -> None:
    def fail(*_: Any) -> Any:
        raise ModelUnavailable("there is no such model")

    broken = Backend(Settings(), load_model=fail)
    broken.start()
    assert broken.wait_until_settled() == Failed("the model", "there is no such model")
    with pytest.raises(ModelUnavailable, match="there is no such model"):
        broken.describe()
    assert broken.plan(MemoryRequest(seq_len=10), model="GPT-2 124M").held_bytes == 36_864 * 10
    broken.close()


def test_an_error_nobody_foresaw_is_told_without_its_details() -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("/home/somebody/secret")

    broken = Backend(Settings(), load_model=fail)
    broken.start()
    status = broken.wait_until_settled()
    assert isinstance(status, Failed)
    assert "secret" not in status.reason
    broken.close()


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_operators_limits_are_checked_before_anything_runs() -> None:
    strict = ready_backend(Limits(new_tokens=10, prompt_chars=20))
    with pytest.raises(InvalidRequest, match="11 is more than the limit here, 10"):
        next(strict.chat(ASK, max_new_tokens=11))
    with pytest.raises(InvalidRequest, match="21 characters long; the limit here is 20"):
        next(strict.chat((Message("user", "x" * 21),), max_new_tokens=4))
    with pytest.raises(InvalidRequest, match="the limit here, 10"):
        next(strict.ask(CompareSpec("hi", max_new_tokens=64)))
    strict.close()


def test_a_run_past_the_operators_time_is_cut() -> None:
    hasty = ready_backend(Limits(run_s=0.0))
    assert last(hasty.chat(ASK, max_new_tokens=50)).reason == "timed_out"
    hasty.close()


def test_a_full_line_is_refused_and_those_in_it_see_their_places() -> None:
    narrow = ready_backend(Limits(waiting=1))
    running = narrow.chat(ASK, max_new_tokens=500, owner="one")
    next(running)
    waiting = narrow.chat(ASK, max_new_tokens=4, owner="two")
    assert next(waiting) == Waiting(1)
    with pytest.raises(TooBusy):
        next(narrow.chat(ASK, max_new_tokens=4, owner="three"))
    running.close()
    assert isinstance(last(waiting), Finished)
    narrow.close()


# --- owners ----------------------------------------------------------------------------------------------------------


def test_stop_ends_the_owners_run_and_nobody_elses(backend: Backend) -> None:
    mine, other = (backend.chat(ASK, max_new_tokens=300, owner=owner) for owner in ("me", "you"))
    next(mine)
    assert isinstance(next(other), Waiting)
    backend.stop("me")
    assert last(mine).reason == "cancelled"
    assert last(other).reason in ("length", "stop")


def test_stop_ends_a_run_that_is_still_waiting(backend: Backend) -> None:
    running = backend.chat(ASK, max_new_tokens=500, owner="me")
    next(running)
    waiting = backend.chat(ASK, max_new_tokens=4, owner="you")
    next(waiting)
    backend.stop("you")
    assert last(waiting).reason == "cancelled"
    running.close()


def test_the_next_turn_reuses_the_cache_and_forgetting_frees_it(backend: Backend) -> None:
    def ask(*turns: str) -> tuple[PromptEncoded, Finished]:
        roles = itertools.cycle(("user", "assistant"))
        messages = tuple(Message(role, text) for role, text in zip(roles, turns, strict=False))
        events = list(backend.chat(messages, max_new_tokens=6, owner="me", keep=True))
        return next(event for event in events if isinstance(event, PromptEncoded)), ended(events)

    _, first = ask("hello")
    assert backend.kept_bytes("me") > 0
    encoded, _ = ask("hello", first.record.text or "x", "again")
    assert encoded.reuse is not None
    assert encoded.reuse.reused_tokens >= len("<user>hello\n<assistant>")
    backend.forget("me")
    assert backend.kept_bytes("me") == 0
    encoded, _ = ask("hello")
    assert encoded.reuse is not None
    assert encoded.reuse.how == "fresh"
    backend.release("me")
    assert backend.kept_bytes("me") == 0


def test_a_conversation_that_is_too_long_is_refused_with_the_turns_to_drop(backend: Backend) -> None:
    # 3 turns of about 520 tokens; the model's limit is 1,024
    turns = [Message(role, "x" * 250) for _ in range(3) for role in ("user", "assistant")]
    with pytest.raises(ContextFull, match=r"this turn needs [\d,]+ of 1,024 tokens.*drop the 2 oldest turns") as caught:
        next(backend.chat((Message("system", "Be kind."), *turns, Message("user", "hi")), max_new_tokens=50))
    assert caught.value.drop_turns == 2
    with pytest.raises(ContextFull) as caught:
        next(backend.chat((Message("user", "x" * 1000),), max_new_tokens=50))
    assert caught.value.drop_turns == 0


def counting_tokenizer(encoded: list[Any]) -> Callable[[], Any]:
    """Makes the tiny tokenizer, which notes every conversation that it makes ids of."""

    def made() -> Any:
        tokenizer = tiny_tokenizer()
        template = tokenizer.apply_chat_template

        def counted(conversation: Any, **options: Any) -> Any:
            if options["tokenize"]:
                encoded.append(conversation)
            return template(conversation, **options)

        tokenizer.apply_chat_template = counted
        return tokenizer

    return made


def test_a_turn_of_chat_and_a_turn_measured_without_reuse_encode_their_prompt_once() -> None:
    encoded: list[Any] = []
    backend = ready_backend(tokenizer=counting_tokenizer(encoded))
    list(backend.chat((Message("user", "hi"),), max_new_tokens=4, owner="a", keep=True))
    assert len(encoded) == 1
    assert list(backend.turns_without_reuse(((Message("user", "ho"),),), strategy="static"))
    assert len(encoded) == 2
    backend.close()


def test_finding_the_turns_to_drop_reads_a_long_conversation_a_few_times_only() -> None:
    turns = [Message(role, "x" * 50) for _ in range(300) for role in ("user", "assistant")]
    read: list[Any] = []
    backend = ready_backend(tokenizer=counting_tokenizer(read))
    with pytest.raises(ContextFull) as caught:
        next(backend.chat((*turns, Message("user", "hi")), max_new_tokens=50))
    assert len(read) < 12
    left = (*turns[2 * caught.value.drop_turns :], Message("user", "hi"))
    assert list(backend.chat(left, max_new_tokens=50))
    with pytest.raises(ContextFull):
        next(backend.chat((*turns[2 * caught.value.drop_turns - 2 :], Message("user", "hi")), max_new_tokens=50))


def test_the_operators_system_prompt_is_processed_once_and_copied_for_everybody() -> None:
    shared = ready_backend(system_prompt="You are a patient teacher.")
    plain = ready_backend()
    told = (Message("system", "You are a patient teacher."), Message("user", "hi"))
    fresh = last(plain.chat(told, max_new_tokens=8, owner="a", keep=True)).record
    for owner in ("a", "b"):
        encoded, *_, final = shared.chat(told, max_new_tokens=8, owner=owner, keep=True)
        reuse = known(sure(PromptEncoded, encoded).reuse)
        assert reuse.how == "copied"
        assert reuse.reused_tokens == len("<system>You are a patient teacher.\n<user>")
        assert sure(Finished, final).record.token_ids == fresh.token_ids
    other = (Message("system", "Another one."), Message("user", "hi"))
    encoded, *_ = shared.chat(other, max_new_tokens=8, owner="c", keep=True)
    assert known(sure(PromptEncoded, encoded).reuse).reused_tokens == 0
    shared.close()
    plain.close()


def test_the_same_turns_can_be_measured_without_reuse(backend: Backend) -> None:
    turns = (ASK, (*ASK, Message("assistant", "yo"), Message("user", "again")))
    records = [told for told in backend.turns_without_reuse(turns) if isinstance(told, RunRecord)]
    assert [record.positions_computed for record in records] == [
        (len("<user>hi\n<assistant>"),),
        (len("<user>hi\n<assistant>yo\n<user>again\n<assistant>"),),
    ]


def test_the_same_turns_without_reuse_have_caches_as_large_as_the_kept_one_had(backend: Backend) -> None:
    turns = ((Message("user", "x" * 500),),)
    kept = ended(backend.chat(turns[0], max_new_tokens=200, strategy="static", owner="large", keep=True))
    told = backend.turns_without_reuse(turns, strategy="static", longest_answer=200)
    (record,) = [record for record in told if isinstance(record, RunRecord)]
    assert record.cache_bytes == kept.record.cache_bytes == 1024 * 1024  # 1,024 slots of 1,024 bytes
    backend.release("large")


@pytest.mark.parametrize("visitors", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_visitors_who_come_and_go_leave_memory_and_threads_flat(visitors: int) -> None:
    made = ready_backend()
    for _ in made.chat(ASK, max_new_tokens=4, owner="warm", keep=True):
        pass
    made.release("warm")
    threads = threading.active_count()
    for number in range(visitors):
        owner = f"visitor {number}"
        running = made.chat(ASK, max_new_tokens=40, owner=owner, keep=True)
        for _ in range(3 + number % 3):
            next(running)
        running.close()
        made.release(owner)
    assert (made.kept_bytes("warm"), made._engine.kept.storage_bytes(), threading.active_count()) == (0, 0, threads)
    made.close()


# --- experiments -----------------------------------------------------------------------------------------------------


def test_a_comparison_runs_every_arm_in_every_round_and_finds_the_same_tokens(backend: Backend) -> None:
    spec = CompareSpec("The quick brown fox", ("none", "dynamic", "static"), max_new_tokens=10, rounds=2)
    result = last(backend.ask(spec))
    assert isinstance(result, ComparisonResult)
    timed = [(run.round, run.strategy) for run in result.runs if not run.warmup]
    assert timed == [(1, "none"), (1, "dynamic"), (1, "static"), (2, "dynamic"), (2, "static"), (2, "none")]
    assert all(comparison.verdict.same_output for comparison in result.comparisons)
    assert {run.total_computed for run in result.runs if run.strategy == "none" and run.counts} == {10 * 19 + 45}
    assert {run.total_computed for run in result.runs if run.strategy == "dynamic" and run.counts} == {19 + 9}


def test_a_lossy_arm_gets_its_largest_logit_gap_and_no_alarm(backend: Backend) -> None:
    result = last(backend.ask(CompareSpec("The quick brown fox", ("dynamic", "fp8"), max_new_tokens=8)))
    verdict = result.comparisons[0].verdict
    assert not verdict.expected_equal
    assert verdict.largest_gap is not None
    assert 0 < verdict.largest_gap < 5


def test_no_verdict_is_given_on_tokens_that_logits_without_numbers_would_choose() -> None:
    def damaged() -> Any:
        model = tiny_model()
        with torch.no_grad():
            model.lm_head.weight[7, 0] = float("nan")
        return model

    backend = ready_backend(model=damaged)
    *steps, result = backend.ask(CompareSpec(PROMPT, max_new_tokens=4, rounds=2))
    told = [step.message for step in steps if isinstance(step, ArmFailed)]
    assert all("logits are not numbers" in words for words in told)
    assert len(told) == 2
    assert {run.status for run in result.runs} == {"failed"}
    assert result.stopped_because == "failed"
    assert {item.verdict.same_output for item in result.comparisons} == {None}
    backend.close()


def test_words_that_a_model_masks_out_count_for_nothing_in_the_largest_gap() -> None:
    def masking() -> Any:
        model = tiny_model()
        model.lm_head.register_forward_hook(lambda _m, _i, made: made.index_fill(-1, torch.tensor([7]), -torch.inf))
        return model

    backend = ready_backend(model=masking)
    *_, result = backend.ask(CompareSpec(PROMPT, ("none", "fp8"), max_new_tokens=8))
    gap = result.comparisons[0].verdict.largest_gap
    assert gap is not None
    assert 0 < gap < 5
    backend.close()


def test_stop_keeps_the_rounds_that_were_done(backend: Backend) -> None:
    steps = backend.ask(CompareSpec("hi", ("none", "dynamic"), max_new_tokens=20, rounds=50), owner="me")
    done = 0
    for step in steps:
        done += isinstance(getattr(step, "event", None), Finished)
        if done == 6:
            backend.stop("me")
    assert isinstance(step, ComparisonResult)
    assert step.stopped_because == "stopped"
    assert len([run for run in step.runs if run.counts]) >= 4


def test_an_unknown_strategy_is_refused_before_anything_runs(backend: Backend) -> None:
    with pytest.raises(InvalidRequest, match="'magic' is not one of"):
        next(backend.ask(CompareSpec("hi", ("none", "magic"))))


def test_growth_measures_every_point_at_the_lengths_that_were_asked(backend: Backend) -> None:
    spec = GrowthSpec("some words to cut prompts from", prompt_tokens=(8, 16), new_tokens=(4,), longest_tokens=64)
    result = last(backend.ask(spec))
    assert isinstance(result, GrowthResult)
    assert [point.result.runs[-1].prompt_tokens for point in result.points] == [8, 16]


def beginning() -> Any:
    """A tokenizer that puts a begin token before every prompt, as those of most base models do."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<pad> $A", special_tokens=[("<pad>", tokenizer.pad_token_id)]
    )
    return tokenizer


@pytest.mark.parametrize("text", ["The quick brown fox jumps.", "a", "🌍 Erde", "x" * 300])
@pytest.mark.parametrize("tokenizer", [tiny_tokenizer, beginning])
def test_a_prompt_of_a_length_has_that_length_whatever_the_tokenizer_adds(tokenizer: Any, text: str) -> None:
    loaded = tiny_loaded(tokenizer=tokenizer())
    for wanted in (8, 16, 128, 512):
        prompt, length = text_of_length(loaded, text, wanted)
        assert length == len(encode_prompt(loaded, prompt).token_ids)
        assert wanted - 4 < length <= wanted
        assert length == wanted or "🌍" in text  # no cut inside a character of several tokens
    loaded.thread.close()


def test_a_point_of_growth_ran_with_the_length_on_its_label() -> None:
    backend = ready_backend(tokenizer=beginning)
    spec = GrowthSpec("🌍 and more of the same", prompt_tokens=(64, 200), new_tokens=(4,))
    result = last(backend.ask(spec))
    assert [point.prompt_tokens for point in result.points] == [
        point.result.runs[-1].prompt_tokens for point in result.points
    ]
    backend.close()


def test_a_prompt_set_gives_a_ratio_for_every_prompt(backend: Backend) -> None:
    rows = (PromptRow("one", "row 1"), PromptRow("another one", "row 2"))
    result = last(backend.ask(PromptSetSpec(rows, max_new_tokens=4)))
    assert isinstance(result, PromptSetResult)
    assert [prompt.result.comparisons[0].ratio is not None for prompt in result.prompts] == [True, True]


def test_a_shared_prefix_is_processed_once_and_the_answers_are_the_same(backend: Backend) -> None:
    spec = PrefixSpec("A long system prompt. " * 10, ("one?", "two?"), max_new_tokens=6)
    result = last(backend.ask(spec))
    assert isinstance(result, PrefixResult)
    prefix = len("<system>" + spec.system_prompt + "\n<user>")
    assert result.prefix.num_tokens == prefix
    for pair in result.pairs:
        assert pair.verdict.same_output
        assert pair.kept.reused_tokens == prefix
        assert known(pair.kept.positions_computed)[0] == known(pair.kept.prompt_tokens) - prefix


def prefix_runs(result: PrefixResult) -> dict[str, list[RunRecord]]:
    return {"fresh": [pair.fresh for pair in result.pairs], "kept": [pair.kept for pair in result.pairs]}


@pytest.mark.parametrize("strategy", ["dynamic", "static"])
def test_a_shared_prefix_just_below_a_power_of_two_leaves_room_for_question_and_answer(
    backend: Backend, strategy: str
) -> None:
    system_prompt = "x" * (510 - len("<system>\n<user>"))
    questions = ("one?", "a much longer question than the other?")
    spec = PrefixSpec(system_prompt, questions, strategy, max_new_tokens=12)
    result = last(backend.ask(spec))
    for pair in result.pairs:
        assert (pair.fresh.error, pair.kept.error) == (None, None)
        assert pair.verdict.same_output
        assert pair.kept.reused_tokens == 510


def test_both_ways_of_a_shared_prefix_reserve_the_slots_of_the_longest_question_and_answer(backend: Backend) -> None:
    questions = ("one?", "a much longer question than the other?")
    spec = PrefixSpec("Be kind. " * 10, questions, "static", max_new_tokens=12)
    result = last(backend.ask(spec))
    slots = len("<system>" + spec.system_prompt + "\n<user>" + questions[1] + "\n<assistant>") + 12 - 1
    reserved = {known(run.cache_bytes) // (4 * 2 * 2 * 16 * 4) for runs in prefix_runs(result).values() for run in runs}
    assert reserved == {slots}
    assert result.prefix.cache_bytes == slots * 4 * 2 * 2 * 16 * 4


def refusal(backend: Backend, spec: PrefixSpec) -> str:
    """Why it was refused, before anything ran."""
    with pytest.raises(InvalidRequest) as caught:
        next(backend.ask(spec))
    return str(caught.value)


def test_a_question_that_does_not_fit_is_refused_before_any_question_is_asked(backend: Backend) -> None:
    spec = PrefixSpec("Be kind.", ("one?", "x" * 1000), max_new_tokens=12)
    assert "this model's limit is 1,024" in refusal(backend, spec)


@pytest.mark.parametrize(("make", "words"), [(jamba, STARTS_OVER), (mamba2, STATES_ALONE)])
def test_a_shared_prefix_is_refused_where_the_model_cannot_continue_it(make: Any, words: str) -> None:
    made = ready_backend(model=lambda: measured(make()))
    assert words in refusal(made, PrefixSpec("Be kind.", ("one?",), max_new_tokens=4))
    made.close()


def test_the_shared_prefix_is_what_all_questions_begin_with() -> None:
    """A tokenizer that merges the end of the prefix with how one of the questions begins."""
    merging = ready_backend(tokenizer=lambda: tiny_tokenizer(merges=[(">", "W")]))
    result = last(merging.ask(PrefixSpec("Be kind.", ("What?", "Why?", "how?"), max_new_tokens=4)))
    prefix = len("<system>Be kind.\n<user")
    assert result.prefix.num_tokens == prefix
    assert [pair.kept.reused_tokens for pair in result.pairs] == [prefix] * 3
    merging.close()


# --- several runs that belong together -------------------------------------------------------------------------------


LONG_PREFIX = PrefixSpec("A long system prompt. " * 10, ("one?", "two?"), max_new_tokens=3)
TOGETHER: dict[str, Callable[..., Iterator[Any]]] = {
    "compare": lambda one, **who: one.ask(CompareSpec(PROMPT, ("dynamic", "fp8"), 3), **who),
    "growth": lambda one, **who: one.ask(
        GrowthSpec(PROMPT, ("none", "dynamic"), prompt_tokens=(8,), new_tokens=(3,), longest_tokens=64), **who
    ),
    "prompt_set": lambda one, **who: one.ask(PromptSetSpec((PromptRow("one", "row 1"),), max_new_tokens=3), **who),
    "prefix_reuse": lambda one, **who: one.ask(LONG_PREFIX, **who),
    "measure_memory": lambda one, **who: one.measure_memory(MeasureSpec((16,), ("dynamic", "static")), **who),
    "turns_without_reuse": lambda one, **who: one.turns_without_reuse((ASK, ASK), **who),
}


def held_model(hold: threading.Event, release: threading.Event, forwards: list[int]) -> Any:
    """The tiny model; once `hold` is set its forwards wait for `release`."""
    model = tiny_model()

    def before_forward(*_: Any) -> None:
        forwards.append(1)
        if hold.is_set():
            assert release.wait(60)

    model.register_forward_pre_hook(before_forward)
    return model


def records_in(value: Any) -> list[RunRecord]:
    """Every record that a result, a point or an event holds, however deep."""
    if isinstance(value, RunRecord):
        return [value]
    if isinstance(value, tuple | list):
        return [record for item in value for record in records_in(item)]
    if dataclasses.is_dataclass(value):
        return records_in([getattr(value, field.name) for field in dataclasses.fields(value)])
    return []


@pytest.mark.parametrize("name", TOGETHER)
def test_a_full_line_is_waited_out_and_never_counted_against_an_arm(name: str) -> None:
    backend = ready_backend(Limits(waiting=0))
    ahead = backend._engine.turnstile.join()
    steps = TOGETHER[name](backend, owner="me")
    seen: list[Any] = []
    while not any(isinstance(getattr(step, "event", step), Waiting) for step in seen):
        seen.append(next(steps))
    with pytest.raises(TooBusy):
        next(backend.chat(ASK, max_new_tokens=2))
    ahead.leave()
    seen += steps
    assert not [step for step in seen if isinstance(step, ArmFailed)]
    assert {record.status for record in records_in(seen)} <= {"ok"}
    assert not isinstance(seen[-1], Waiting)
    backend.close()


def test_logits_are_compared_after_a_full_line_too() -> None:
    backend = ready_backend(Limits(waiting=0))
    phase, ahead = "", None
    for step in TOGETHER["compare"](backend, owner="me"):
        if isinstance(step, Progress) and step.phase != phase:
            phase = step.phase
            if "comparing its logits" in phase:
                ahead = backend._engine.turnstile.join()
        elif isinstance(step, Progress) and ahead is not None:
            ahead.leave()
    assert isinstance(step, ComparisonResult)
    assert step.comparisons[0].verdict.largest_gap is not None
    backend.close()


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("compare", "warming up"),
        ("compare", "comparing its logits"),
        ("prefix_reuse", "processing the prefix"),
        ("measure_memory", None),
        ("turns_without_reuse", None),
    ],
)
def test_a_model_that_takes_its_time_is_no_silence(name: str, phase: str | None) -> None:
    """Only at a step can a page notice that its reader has left: here no forward ends before three of them have come."""
    hold, release = threading.Event(), threading.Event()

    backend = ready_backend(model=lambda: held_model(hold, release, []))
    if phase is None:
        hold.set()
    quiet = 0
    for step in TOGETHER[name](backend, owner="me", reader=Reader(every_s=0.5)):
        if phase is not None and isinstance(step, Progress) and phase in step.phase:
            hold.set()
        quiet += hold.is_set() and isinstance(step, Progress | Working)
        if quiet == 3:
            release.set()
    assert release.is_set()
    assert not isinstance(step, Working)
    backend.close()


def test_whoever_stops_reading_while_logits_are_compared_ends_that_too() -> None:
    hold, release = threading.Event(), threading.Event()
    forwards: list[int] = []
    backend = ready_backend(model=lambda: held_model(hold, release, forwards))
    steps = backend.ask(CompareSpec(PROMPT, ("dynamic", "fp8"), 400), owner="me")
    for step in steps:
        if hold.is_set():
            break  # a sign of life: the logits are being computed
        if isinstance(step, Progress) and "comparing its logits" in step.phase:
            hold.set()
    before = len(forwards)
    leaving = threading.Thread(target=steps.close)
    leaving.start()
    release.set()
    leaving.join()
    assert backend._engine.turnstile.length == 0
    assert len(forwards) < before + 400
    assert list(backend.turns_without_reuse((ASK,)))
    backend.close()


@pytest.mark.parametrize("on_page", [False, True])
def test_a_result_records_whether_it_was_made_on_a_page(backend: Backend, on_page: bool) -> None:
    results = [
        last(TOGETHER[name](backend, reader=Reader(on_page=on_page)))
        for name in ("compare", "growth", "prompt_set", "prefix_reuse")
    ]
    assert [result.environment.on_page for result in results] == [on_page] * 4


# --- memory ----------------------------------------------------------------------------------------------------------


def test_what_is_measured_on_the_loaded_model_is_what_was_predicted_layer_by_layer(backend: Backend) -> None:
    told = backend.measure_memory(MeasureSpec((16, 64), ("none", "dynamic", "static", "fp8")))
    points = [point for point in told if isinstance(point, MeasuredPoint)]
    assert [(point.strategy, point.seq_len) for point in points][2:4] == [("dynamic", 16), ("dynamic", 64)]
    for point in points:
        if point.strategy != "none":
            assert [layer.held_bytes - layer.predicted_bytes for layer in point.layers] == [0, 0, 0, 0]
    assert points[-1].held_bytes == 4 * (2 * 2 * 16 * 64 + 8)


def test_tokens_are_counted_as_the_model_will_see_them(backend: Backend) -> None:
    assert backend.count_tokens("four") == 4
    assert backend.count_tokens((Message("user", "four"),)) == len("<user>four\n<assistant>")
    tokens = [
        event for event in backend.chat((Message("user", "four"),), max_new_tokens=2) if isinstance(event, TokenEmitted)
    ]
    assert tokens[0].cache_tokens == len("<user>four\n<assistant>")


@pytest.mark.parametrize("how", ["fails", "is stopped"])
def test_a_comparison_of_logits_that_fails_or_is_stopped_leaves_the_result_standing(how: str) -> None:
    made = ready_backend()
    loaded = made._engine.ready()
    comparing = False

    def hook(*_: object) -> None:
        if comparing and how == "fails":
            raise RuntimeError("no room for logits")
        if comparing:
            made.stop("me")

    handle = loaded.model.register_forward_hook(hook)
    for step in made.ask(CompareSpec("hi", ("dynamic", "fp8"), max_new_tokens=4), owner="me"):
        comparing = isinstance(step, Progress) and "comparing its logits" in step.phase
    handle.remove()
    assert isinstance(step, ComparisonResult)
    assert step.comparisons[0].ratio is not None
    assert step.comparisons[0].verdict.largest_gap is None
    made.close()


def test_a_shared_system_prompt_that_cannot_be_processed_leaves_the_model_usable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    puppet = Puppet()
    puppet.fault = RuntimeError("no room")
    made = ready_backend(model=puppet.model, system_prompt="Be kind.")
    assert isinstance(made.status(), Ready)
    assert puppet.fault is None
    assert "shared system prompt" in caplog.text
    assert last(made.chat((Message("user", "hi"),), max_new_tokens=4, owner="a")).reason == "length"
    made.close()
