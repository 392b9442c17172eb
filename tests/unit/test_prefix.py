"""Caches kept between requests: matched by ids, cropped where allowed, never shared, freed in time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.caches.prefix import KeptCaches, common_prefix
from kvdemo.caches.strategies import strategy_of
from kvdemo.engine.engine import Engine
from kvdemo.facts.events import Finished, PromptEncoded, Reuse
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from kvdemo.settings import Limits, Settings
from tests.known import known
from tests.tiny import PROMPT, tiny_loaded


def store(budget_bytes: int = 2**30, idle_s: float = 900, clock: Callable[[], float] = lambda: 0.0) -> KeptCaches:
    return KeptCaches(lambda _: budget_bytes, idle_s, clock)


def ask(
    loaded: LoadedModel,
    prompt: Any,
    kept: KeptCaches | None,
    owner: str = "me",
    strategy: str = "dynamic",
    new: int = 8,
) -> tuple[RunRecord, Reuse]:
    reuse = Reuse("fresh", 0, 0)
    request = GenerationRequest(prompt, new, strategy, fixed_length=True)
    for event in stream(loaded, request, turnstile=Turnstile(2), kept=kept, owner=owner):
        if isinstance(event, PromptEncoded):
            assert event.reuse is not None
            reuse = event.reuse
    assert isinstance(event, Finished)
    return event.record, reuse


def tokens(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_the_common_prefix_is_common_and_cannot_be_longer(one: list[int], other: list[int]) -> None:
    common = common_prefix(one, other)
    assert one[:common] == other[:common]
    assert common == min(len(one), len(other)) or one[common] != other[common]


@pytest.mark.parametrize("strategy", ["dynamic", "static", "fp8"])
def test_the_next_turn_processes_only_what_is_new(tiny: LoadedModel, strategy: str) -> None:
    kept = store()
    first, _ = ask(tiny, tokens(PROMPT), kept, strategy=strategy)
    following = (*tokens(PROMPT), *known(first.token_ids), *tokens(" and then?"))
    second, reuse = ask(tiny, following, kept, strategy=strategy)
    assert (reuse.how, reuse.reused_tokens, reuse.kept_tokens) == ("continued", len(PROMPT) + 7, len(PROMPT) + 7)
    assert known(second.positions_computed)[0] == len(following) - reuse.reused_tokens
    assert second.reused_tokens == reuse.reused_tokens
    if strategy != "fp8":
        assert second.token_ids == ask(tiny, following, None)[0].token_ids


@pytest.mark.parametrize("strategy", ["dynamic", "static"])
def test_a_prompt_that_differs_in_the_middle_reuses_the_part_before_and_equals_a_fresh_run(
    tiny: LoadedModel, strategy: str
) -> None:
    kept = store()
    ask(tiny, tokens("The quick brown fox jumps"), kept, strategy=strategy)
    record, reuse = ask(tiny, tokens("The quick red fox jumps over"), kept, strategy=strategy)
    assert (reuse.how, reuse.reused_tokens) == ("cropped", len("The quick "))
    assert (reuse.kept_text, reuse.new_text) == ("b", "r")
    assert reuse.reason == "First difference at token 11."
    assert record.token_ids == ask(tiny, tokens("The quick red fox jumps over"), None)[0].token_ids


def test_a_cache_that_cannot_be_shortened_is_filled_again_with_the_reason(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens("The quick brown fox"), kept, strategy="fp8")
    record, reuse = ask(tiny, tokens("The quick red fox"), kept, strategy="fp8")
    assert (reuse.how, reuse.reused_tokens) == ("refilled", 0)
    assert "cannot be shortened" in reuse.reason
    assert record.token_ids == ask(tiny, tokens("The quick red fox"), None, strategy="fp8")[0].token_ids


def test_the_same_prompt_again_leaves_one_token_to_process(tiny: LoadedModel) -> None:
    kept = store()
    first, _ = ask(tiny, tokens(PROMPT), kept)
    again, reuse = ask(tiny, tokens(PROMPT), kept)
    assert reuse.reused_tokens == len(PROMPT) - 1
    assert known(again.positions_computed)[0] == 1
    assert again.token_ids == first.token_ids


def test_a_cache_of_another_prompt_of_fitting_length_is_never_used(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens("X" * 19), kept)
    record, reuse = ask(tiny, tokens("The quick brown fox says"), kept)
    assert reuse.reused_tokens == 0
    assert record.token_ids == ask(tiny, tokens("The quick brown fox says"), None)[0].token_ids


def test_a_static_cache_that_has_become_too_small_is_made_again_larger(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens("x" * 400), kept, strategy="static")
    _, reuse = ask(tiny, tokens("x" * 600), kept, strategy="static")
    assert (reuse.how, reuse.reason) == ("refilled", "The kept cache has 512 slots and this turn needs 607.")


def test_another_strategy_does_not_continue_the_kept_cache(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens(PROMPT), kept, strategy="dynamic")
    _, reuse = ask(tiny, tokens(PROMPT), kept, strategy="static")
    assert (reuse.how, reuse.reused_tokens) == ("refilled", 0)
    assert "strategy was changed" in reuse.reason


def test_a_filled_sliding_window_is_filled_again_with_the_reason() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    loaded = tiny_loaded(
        MistralForCausalLM(
            MistralConfig(
                vocab_size=258,
                hidden_size=32,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                head_dim=16,
                sliding_window=8,
            )
        ).eval()
    )
    kept = store()
    ask(loaded, tokens("The quick brown fox"), kept)
    record, reuse = ask(loaded, tokens("The quick red fox"), kept)
    assert (reuse.how, reuse.reused_tokens) == ("refilled", 0)
    assert "sliding window" in reuse.reason
    assert record.token_ids == ask(loaded, tokens("The quick red fox"), None)[0].token_ids
    loaded.thread.close()


def test_two_owners_never_share_even_with_the_same_prompt(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens(PROMPT), kept, owner="one")
    _, reuse = ask(tiny, tokens(PROMPT), kept, owner="two")
    assert (reuse.how, reuse.reused_tokens) == ("fresh", 0)


def test_the_shared_prefix_is_copied_and_stays_as_long_as_it_was(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens(PROMPT), kept, owner="operator", new=1)
    assert kept.share("operator") == len(PROMPT)
    for suffix in (" jumps over", " sleeps"):
        prompt = tokens(PROMPT + suffix)
        record, reuse = ask(tiny, prompt, kept, owner=suffix)
        assert (reuse.how, reuse.reused_tokens) == ("copied", len(PROMPT))
        assert record.token_ids == ask(tiny, prompt, None)[0].token_ids


def test_the_least_recently_used_goes_first_when_the_budget_is_full(tiny: LoadedModel) -> None:
    one = 26 * 1024  # bytes of 19 + 7 positions
    kept = store(budget_bytes=2 * one)
    for owner in ("first", "second"):
        ask(tiny, tokens(PROMPT), kept, owner=owner)
    assert kept.storage_bytes() == 2 * one
    ask(tiny, tokens(PROMPT), kept, owner="first")  # used again
    ask(tiny, tokens(PROMPT), kept, owner="third")
    assert [bool(kept.token_ids(owner)) for owner in ("first", "second", "third")] == [True, False, True]


def test_the_budget_counts_storage_not_what_a_cropped_view_shows(tiny: LoadedModel) -> None:
    kept = store()
    ask(tiny, tokens("x" * 400), kept)
    long = kept.storage_bytes("me")
    kept_ids = kept.token_ids("me")
    ask(tiny, tokens("y"), kept, owner="other")
    assert (len(kept_ids), long) == (407, 407 * 1024)


def test_a_cache_larger_than_the_whole_budget_is_not_kept_and_drops_nobody_elses(tiny: LoadedModel) -> None:
    kept = store(budget_bytes=30 * 1024)
    ask(tiny, tokens(PROMPT), kept, owner="other")
    ask(tiny, tokens(2 * PROMPT), kept)
    assert (bool(kept.token_ids("other")), kept.token_ids("me")) == (True, ())
    _, reuse = ask(tiny, tokens(PROMPT), kept)
    assert reuse == Reuse("fresh", 0, 0, "The kept cache was dropped: all that are kept together may take 30.0 KiB.")


def test_a_cache_that_others_pushed_out_is_missed_with_the_reason_once(tiny: LoadedModel) -> None:
    kept = store(budget_bytes=30 * 1024)
    ask(tiny, tokens(PROMPT), kept)
    ask(tiny, tokens(PROMPT), kept, owner="other")
    _, reuse = ask(tiny, tokens(PROMPT), kept)
    assert (reuse.how, reuse.reason) == (
        "fresh",
        "The kept cache was dropped: all that are kept together may take 30.0 KiB.",
    )
    kept.release("me")
    assert ask(tiny, tokens(PROMPT), kept)[1] == Reuse("fresh", 0, 0)


def test_the_budget_is_asked_with_what_is_kept_so_that_keeping_does_not_shrink_it() -> None:
    """A machine on which everything that is kept is missing from what is free."""
    one = 26 * 1024  # bytes of 19 + 7 positions
    held = itertools.count(one, one)
    loaded = tiny_loaded()

    def load(settings: Settings, thread: Any, progress: Any) -> LoadedModel:
        return replace(loaded, thread=thread)

    limits = Limits(kept_cache_share=0.5)
    engine = Engine(Settings(limits=limits), load, free_bytes=lambda _: 8 * one - next(held))
    engine.start()
    engine.wait_until_settled()
    for number in range(4):
        request = GenerationRequest(tokens(PROMPT), 8, fixed_length=True)
        assert list(engine.run(request, f"owner {number}", kept=engine.kept))
    assert engine.kept.storage_bytes() == 4 * one
    engine.close()
    loaded.thread.close()


def test_a_turn_without_a_cache_leaves_the_kept_one_for_the_next(tiny: LoadedModel) -> None:
    kept = store()
    first, _ = ask(tiny, tokens(PROMPT), kept)
    held = kept.token_ids("me")
    _, reuse = ask(tiny, tokens(PROMPT + " jumps"), kept, strategy="none")
    assert reuse == Reuse("fresh", 0, 0)
    assert kept.token_ids("me") == held
    prompt = (*tokens(PROMPT), *known(first.token_ids), *tokens(" and then?"))
    record, reuse = ask(tiny, prompt, kept)
    assert (reuse.how, reuse.reused_tokens) == ("continued", len(held))
    assert record.token_ids == ask(tiny, prompt, None)[0].token_ids


def test_idle_caches_are_dropped_and_used_ones_stay(tiny: LoadedModel) -> None:
    now = 0.0
    kept = store(idle_s=900, clock=lambda: now)
    ask(tiny, tokens(PROMPT), kept, owner="idle")
    now = 600.0
    ask(tiny, tokens(PROMPT), kept, owner="busy")
    now = 901.0
    kept.sweep()
    assert (kept.token_ids("idle"), bool(kept.token_ids("busy"))) == ((), True)
    _, reuse = ask(tiny, tokens(PROMPT), kept, owner="idle")
    assert reuse == Reuse("fresh", 0, 0, "The kept cache was dropped after 15 min without a turn.")


def test_an_owner_who_left_while_his_run_went_on_keeps_nothing(tiny: LoadedModel) -> None:
    kept = store()
    running = stream(
        tiny, GenerationRequest(PROMPT, 200, fixed_length=True), turnstile=Turnstile(2), kept=kept, owner="gone"
    )
    next(running)
    kept.release("gone")
    running.close()
    assert kept.storage_bytes() == 0


def test_a_stopped_run_leaves_a_cache_that_can_be_continued(tiny: LoadedModel) -> None:
    kept = store()
    running = stream(
        tiny, GenerationRequest(PROMPT, 400, fixed_length=True), turnstile=Turnstile(2), kept=kept, owner="me"
    )
    for _ in range(8):
        next(running)
    running.close()
    held = kept.token_ids("me")
    assert held[: len(PROMPT)] == tokens(PROMPT)
    prompt = (*held, *tokens(" go on"))
    record, reuse = ask(tiny, prompt, kept)
    assert (reuse.how, reuse.reused_tokens) == ("continued", len(held))
    assert record.token_ids == ask(tiny, prompt, None)[0].token_ids


def simulated_fault(*_: object) -> None:
    raise RuntimeError("simulated fault")


def test_a_failed_run_leaves_nothing_to_continue() -> None:
    from kvdemo.errors import RunFailed

    loaded, kept = tiny_loaded(), store()
    ask(loaded, tokens(PROMPT), kept)
    broken = loaded.model.lm_head.register_forward_hook(simulated_fault)
    with pytest.raises(RunFailed):
        ask(loaded, tokens(PROMPT), kept)
    assert kept.storage_bytes() == 0
    broken.remove()
    _, reuse = ask(loaded, tokens(PROMPT), kept)
    assert reuse == Reuse("fresh", 0, 0, "The turn before failed, and the kept cache was dropped with it.")
    assert ask(loaded, tokens(PROMPT + "!"), kept)[1].reused_tokens == len(PROMPT)
    loaded.thread.close()


def test_what_is_reserved_is_what_the_kept_cache_has(tiny: LoadedModel) -> None:
    kept = store()
    request = GenerationRequest(tokens(PROMPT), 4, "static", fixed_length=True)
    told = [
        event.reserved_tokens
        for event in stream(tiny, request, turnstile=Turnstile(2), kept=kept, owner="me")
        if isinstance(event, PromptEncoded)
    ]
    assert told == [512]


# --- room ------------------------------------------------------------------------------------------------------------


def test_a_shared_cache_without_room_for_this_turn_is_left_alone_and_the_answer_is_right(tiny: LoadedModel) -> None:
    kept = store()
    kept.fill_shared(tiny.model, strategy_of("static"), tokens(PROMPT))  # not a slot more than it holds
    prompt = tokens(PROMPT + " jumps over")
    record, reuse = ask(tiny, prompt, kept, strategy="static")
    assert (reuse.how, reuse.reused_tokens) == ("fresh", 0)
    assert reuse.reason == "The shared system prompt's cache has 19 slots and this turn needs 37."
    assert record.token_ids == ask(tiny, prompt, None)[0].token_ids


def test_a_run_that_says_how_many_slots_it_wants_gets_no_other_number(tiny: LoadedModel) -> None:
    request = GenerationRequest(tokens(PROMPT), 4, "static", fixed_length=True, cache_slots=40)
    told = [
        event.reserved_tokens
        for kept in (None, store())
        for event in stream(tiny, request, turnstile=Turnstile(2), kept=kept, owner="me")
        if isinstance(event, PromptEncoded)
    ]
    assert told == [40, 40]


def sliding(window: int = 8) -> LoadedModel:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    config = MistralConfig(
        vocab_size=258,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.3,
        sliding_window=window,
        eos_token_id=256,
    )
    loaded: LoadedModel = tiny_loaded(MistralForCausalLM(config).eval())
    return loaded


def test_a_static_cache_of_windows_alone_is_continued_past_them(tiny: LoadedModel) -> None:
    loaded, kept = sliding(), store()
    first, _ = ask(loaded, tokens(PROMPT), kept, strategy="static")
    prompt = (*tokens(PROMPT), *known(first.token_ids), *tokens(" and then?"))
    record, reuse = ask(loaded, prompt, kept, strategy="static")
    assert (reuse.how, reuse.reused_tokens) == ("continued", len(PROMPT) + 7)
    assert record.token_ids == ask(loaded, prompt, None, strategy="none")[0].token_ids
    loaded.thread.close()


def test_a_static_cache_of_windows_alone_says_that_its_windows_have_forgotten() -> None:
    loaded, kept = sliding(), store()
    ask(loaded, tokens("The quick brown fox"), kept, strategy="static")
    record, reuse = ask(loaded, tokens("The quick red fox"), kept, strategy="static")
    assert (reuse.how, reuse.reused_tokens) == ("refilled", 0)
    assert "sliding window has forgotten" in reuse.reason
    assert record.token_ids == ask(loaded, tokens("The quick red fox"), None, strategy="none")[0].token_ids
    loaded.thread.close()


def test_windows_that_were_cut_short_by_their_slots_are_not_rolled() -> None:
    loaded, kept = sliding(window=600), store()
    ask(loaded, tokens("x" * 400), kept, strategy="static")  # 512 slots: less than the window
    record, reuse = ask(loaded, tokens("x" * 550), kept, strategy="static")
    assert reuse.reason == "The kept cache has 512 slots and this turn needs 557."
    assert record.token_ids == ask(loaded, tokens("x" * 550), None, strategy="none")[0].token_ids
    loaded.thread.close()


def test_a_model_without_logits_to_keep_shares_a_prefix_all_the_same() -> None:
    loaded, kept = tiny_loaded(), store()
    whole = loaded.model.forward

    def forward(input_ids: Any, attention_mask: Any = None, cache: Any = None, use_cache: Any = None) -> Any:
        return whole(input_ids, attention_mask=attention_mask, cache=cache, use_cache=use_cache)

    loaded.model.forward = forward
    kept.fill_shared(loaded.model, strategy_of("dynamic"), tokens(PROMPT))
    loaded.model.forward = whole
    _, reuse = ask(loaded, tokens(PROMPT + " jumps"), kept)
    assert (reuse.how, reuse.reused_tokens) == ("copied", len(PROMPT))
    loaded.thread.close()
