"""Conversations at random, with edits, undos, retries, stops and other strategies: keeping a cache changes nothing but time."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import torch

from kvdemo.caches.prefix import KeptCaches
from kvdemo.caches.strategies import strategy_of
from kvdemo.facts.events import Finished, PromptEncoded, Reuse, TokenEmitted
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from tests.known import known
from tests.state_models import jamba, measured
from tests.tiny import tiny_loaded, tiny_model

TURNS, NEW_TOKENS, LONGEST, WINDOW = 10, 6, 600, 24
CHANGES = ("more", "more", "more", "edit", "undo", "retry", "long", "another")
COMMON: dict[str, Any] = {
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,
    "max_position_embeddings": 1024,
    "eos_token_id": 256,
    "pad_token_id": 257,
    "bos_token_id": None,
}


def full() -> Any:
    return tiny_model(num_hidden_layers=2)


def windows() -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**COMMON, num_hidden_layers=2, sliding_window=WINDOW))


def windows_and_full() -> Any:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = Gemma3TextConfig(**COMMON, num_hidden_layers=3, sliding_window=WINDOW, layer_types=kinds)
    return Gemma3ForCausalLM(config)


def convolution_and_full() -> Any:
    from transformers import Lfm2Config, Lfm2ForCausalLM

    return Lfm2ForCausalLM(Lfm2Config(**COMMON, num_hidden_layers=2, layer_types=["conv", "full_attention"]))


def states_that_start_over() -> Any:
    return measured(jamba())


class Conversation:
    """Token ids that change from turn to turn as a person changes a conversation."""

    def __init__(self, seed: int, beginning: int) -> None:
        self.chance = random.Random(seed)
        self.beginning = self.words(beginning)
        self.ids = (*self.beginning, *self.words(8))

    def words(self, count: int) -> tuple[int, ...]:
        return tuple(self.chance.choices(b"abcdefgh ", k=count))

    def change(self, how: str) -> None:
        ids, chance = self.ids, self.chance
        if how == "more":
            ids += self.words(chance.randint(1, 20))
        elif how == "long":
            ids += self.words(chance.randint(100, 250))
        elif how == "undo":
            ids = ids[: max(1, len(ids) - chance.randint(1, 30))]
        elif how == "edit":
            at = chance.randrange(len(ids))
            ids = (*ids[:at], *self.words(chance.randint(1, 9)), *ids[at + 3 :])
        elif how == "another":
            ids = (*self.beginning, *self.words(chance.randint(1, 30)))
        self.ids = ids[:LONGEST]


def answer(
    loaded: LoadedModel,
    prompt: tuple[int, ...],
    strategy: str,
    kept: KeptCaches | None,
    *,
    chunk: int | None = None,
    stop_after: int | None = None,
) -> tuple[tuple[int, ...], Reuse]:
    """The tokens (none when it is stopped on the way), and what was reused."""
    request = GenerationRequest(prompt, NEW_TOKENS, strategy, fixed_length=True, prefill_chunk=chunk)
    made, reuse = 0, Reuse("fresh", 0, 0)
    with closing(stream(loaded, request, turnstile=Turnstile(1), kept=kept, owner="me")) as events:
        for event in events:
            if isinstance(event, PromptEncoded):
                assert event.reuse is not None
                reuse = event.reuse
            made += isinstance(event, TokenEmitted)
            if stop_after is not None and made >= stop_after:
                return (), reuse
    assert isinstance(event, Finished)
    return known(event.record.token_ids), reuse


@pytest.mark.parametrize("strategies", [("dynamic",), ("static",), ("dynamic", "static", "none")], ids="-".join)
@pytest.mark.parametrize("make", [full, windows, windows_and_full, convolution_and_full, states_that_start_over])
def test_every_turn_of_a_conversation_with_a_kept_cache_equals_a_fresh_uncached_run(
    make: Callable[[], Any], strategies: tuple[str, ...]
) -> None:
    torch.manual_seed(1)
    loaded: LoadedModel = tiny_loaded(make().eval())
    kept = KeptCaches(lambda _: 2**30, 900)
    conversation = Conversation(seed=2, beginning=20)
    chance = conversation.chance
    if loaded.continues:
        kept.fill_shared(loaded.model, strategy_of("dynamic"), conversation.beginning)
    ways = set()
    for _ in range(TURNS):
        strategy, chunk = chance.choice(strategies), chance.choice((None, 7))
        if chance.random() < 0.3:
            answer(loaded, conversation.ids, strategy, kept, chunk=chunk, stop_after=chance.choice((0, 2)))
        made, reuse = answer(loaded, conversation.ids, strategy, kept, chunk=chunk)
        expected, _ = answer(loaded, conversation.ids, "none", None)
        assert made == expected, f"{strategy}, {len(conversation.ids)} tokens, {reuse}"
        ways.add(reuse.how)
        conversation.ids = (*conversation.ids, *made)
        conversation.change(chance.choice(CHANGES))
    assert ("continued" in ways) == loaded.continues
    loaded.thread.close()
