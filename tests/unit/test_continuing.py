"""Models with state layers: cached runs equal uncached ones, and what cannot be continued is not."""

from __future__ import annotations

from typing import Any

import pytest

from kvdemo.caches.prefix import KeptCaches
from kvdemo.engine.engine import share_system_prompt
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Finished, PromptEncoded, Reuse
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.continuing import STARTS_OVER, STATES_ALONE, continues
from kvdemo.models.loaded import LoadedModel
from tests.known import known
from tests.state_models import jamba, mamba, mamba2, measured
from tests.tiny import PROMPT, tiny_loaded, tiny_model


def hybrid(model: Any) -> LoadedModel:
    loaded: LoadedModel = tiny_loaded(measured(model))
    return loaded


def ask(loaded: LoadedModel, prompt: tuple[int, ...], strategy: str, **options: Any) -> tuple[RunRecord, Reuse | None]:
    kept, reuse = options.pop("kept", None), None
    request = GenerationRequest(prompt, 6, strategy, fixed_length=True, **options)
    for event in stream(loaded, request, turnstile=Turnstile(1), kept=kept, owner="me"):
        if isinstance(event, PromptEncoded):
            reuse = event.reuse
    assert isinstance(event, Finished)
    return event.record, reuse


def test_attention_continues_what_a_cache_holds() -> None:
    assert continues(tiny_model())


@pytest.mark.parametrize("make", [mamba, jamba])
def test_states_that_several_tokens_do_not_take_up_are_found_out(make: Any) -> None:
    assert not continues(make())


@pytest.mark.parametrize("make", [mamba, jamba])
def test_turns_and_chunks_of_such_a_model_equal_the_uncached_run(make: Any) -> None:
    loaded, kept = hybrid(make()), KeptCaches(lambda _: 2**30, 900)
    prompt = tuple(PROMPT.encode())
    for _ in range(3):
        plain, _ = ask(loaded, prompt, "none")
        cached, reuse = ask(loaded, prompt, "dynamic", kept=kept, prefill_chunk=4)
        assert cached.token_ids == plain.token_ids
        assert sum(known(cached.positions_computed)) == len(prompt) + 5
        assert reuse == Reuse("fresh", 0, 0, STARTS_OVER)
        prompt = (*prompt, *known(cached.token_ids), *b" and then?")
    assert kept.storage_bytes() == 0
    loaded.thread.close()


def test_a_shared_system_prompt_of_such_a_model_is_not_kept() -> None:
    loaded, kept = hybrid(jamba()), KeptCaches(lambda _: 2**30, 900)
    share_system_prompt(loaded, kept, "You are terse.")
    _, reuse = ask(loaded, tuple(b"<system>You are terse.\n<user>Why?\n<assistant>"), "dynamic", kept=kept)
    assert reuse is not None
    assert reuse.reused_tokens == 0
    loaded.thread.close()


def test_a_model_of_states_alone_has_no_static_cache() -> None:
    loaded = hybrid(mamba())
    with pytest.raises(InvalidRequest, match="no attention layers"):
        ask(loaded, (1, 2, 3), "static")
    loaded.thread.close()


def test_states_alone_are_continued_by_nothing_and_say_so() -> None:
    loaded, kept = hybrid(mamba2()), KeptCaches(lambda _: 2**30, 900)
    assert loaded.continues
    prompt = tuple(PROMPT.encode())
    for _ in range(2):
        record, reuse = ask(loaded, prompt, "dynamic", kept=kept)
        assert record.token_ids == ask(loaded, prompt, "none")[0].token_ids
        assert reuse == Reuse("fresh", 0, 0, STATES_ALONE)
        prompt = (*prompt, *known(record.token_ids), *b" and then?")
    loaded.thread.close()
