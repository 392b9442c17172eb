"""One token at a time: together the answer of one run, each continues the kept cache; a look changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from kvdemo.caches.look import look_into
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Finished
from kvdemo.facts.requests import Message
from kvdemo.facts.steps import CacheLook, Stepped
from tests.known import known
from tests.tiny import tiny_model
from tests.tiny_backend import ready_backend

ASKED = (Message("user", "hi"),)


@pytest.fixture
def backend() -> Iterator[Any]:
    made = ready_backend()
    yield made
    made.close()


def steps(backend: Any, count: int, owner: str = "me", **options: Any) -> list[Stepped]:
    found: list[Stepped] = []
    made: tuple[int, ...] = ()
    for _ in range(count):
        *_, last = backend.step(ASKED, made, owner=owner, **options)
        assert isinstance(last, Stepped)
        found.append(last)
        made = last.made
    return found


def test_the_steps_are_the_answer_of_one_run(backend: Any) -> None:
    *_, last = backend.chat(ASKED, max_new_tokens=6, owner="whole")
    assert isinstance(last, Finished)
    assert steps(backend, 6)[-1].made == last.record.token_ids


def test_every_step_computes_one_position_and_reads_the_rest(backend: Any) -> None:
    found = steps(backend, 4)
    prompt_tokens = known(found[0].record.prompt_tokens)
    assert [sum(step.record.positions_computed or ()) for step in found] == [prompt_tokens, 1, 1, 1]
    assert [step.record.reused_tokens for step in found] == [0, prompt_tokens, prompt_tokens + 1, prompt_tokens + 2]


def test_without_a_cache_every_step_computes_all_again_and_there_is_nothing_to_look_into(backend: Any) -> None:
    found = steps(backend, 3, strategy="none")
    prompt_tokens = known(found[0].record.prompt_tokens)
    assert [sum(step.record.positions_computed or ()) for step in found] == [prompt_tokens + at for at in range(3)]
    assert [step.look for step in found] == [None] * 3


def test_a_look_tells_positions_and_norms_of_what_is_really_held(backend: Any) -> None:
    last = steps(backend, 3, layer=1, head=1)[-1]
    assert last.look is not None
    held = last.record.prompt_tokens
    assert last.look.tokens == held
    assert set(last.look.held) == {held}
    assert len(last.look.key_norms) == len(last.look.value_norms) == held
    assert min(last.look.key_norms) > 0


def test_looking_changes_nothing_of_the_cache(backend: Any) -> None:
    made = steps(backend, 3)[-1].made
    looked = list(backend.look(layer=1, head=0, owner="me"))[-1]
    assert isinstance(looked, CacheLook)
    *_, after = backend.step(ASKED, made, owner="me")
    assert isinstance(after, Stepped)
    assert sum(after.record.positions_computed or ()) == 1


def test_nobody_looks_into_the_cache_of_another(backend: Any) -> None:
    steps(backend, 1)
    assert list(backend.look(owner="somebody else"))[-1] is None


@pytest.mark.parametrize(("layer", "head", "field"), [(99, 0, "layer"), (-1, 0, "layer"), (0, 99, "head")])
def test_a_layer_or_head_that_is_not_there_is_refused_by_name(backend: Any, layer: int, head: int, field: str) -> None:
    steps(backend, 1)
    with pytest.raises(InvalidRequest, match=field):
        list(backend.look(layer=layer, head=head, owner="me"))


def test_norms_are_those_of_the_stored_tensors() -> None:
    model = tiny_model()
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.tensor([[5, 6, 7, 8]]), cache=cache, use_cache=True)
    look = look_into(cache, 4, layer=2, head=1)
    expected = torch.linalg.vector_norm(cache.layers[2].keys[0, 1], dim=-1)
    assert look.key_norms == pytest.approx(expected.tolist())
    assert look.first == 0


def test_a_window_holds_its_recent_positions_only() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    model = MistralForCausalLM(config).eval()
    cache = DynamicCache(config=config)
    with torch.inference_mode():
        for token in range(20):
            model(torch.tensor([[token]]), cache=cache, use_cache=True)
    look = look_into(cache, 20)
    assert set(look.held) == {7}
    assert look.first == 13
    assert len(look.key_norms) == 7
