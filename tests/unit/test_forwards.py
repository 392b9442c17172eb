"""What a forward is given is counted from outside the stream as well: any model, any way of handing ids and cache over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.forwards import Forward, Forwards, forward_of, watched
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from tests.known import ended
from tests.tiny import PROMPT, tiny_model

P, N = 7, 4
IDS = torch.arange(1, P + 1)[None]


def generate(model: Any, ids: torch.Tensor = IDS, **options: Any) -> Forwards:
    with watched(model) as forwards, torch.inference_mode():
        model.generate(ids, max_new_tokens=N, do_sample=False, eos_token_id=None, pad_token_id=0, **options)
    return forwards


def test_a_generate_of_ones_own_is_counted_with_and_without_a_cache() -> None:
    model = tiny_model()
    cached, uncached = generate(model), generate(model, use_cache=False)
    assert cached.positions_computed == (P, 1, 1, 1)
    assert cached.positions_read == (0, P, P + 1, P + 2)
    assert uncached.positions_computed == (P, P + 1, P + 2, P + 3)
    assert uncached.positions_read == (0, 0, 0, 0)


def test_the_stream_counts_as_an_observer_from_outside_does(tiny: LoadedModel) -> None:
    with watched(tiny.model) as forwards:
        finished = ended(stream(tiny, GenerationRequest(PROMPT, N, fixed_length=True), turnstile=Turnstile(1)))
    assert finished.record.positions_computed == forwards.positions_computed
    assert finished.record.positions_read == forwards.positions_read


def test_after_the_block_nothing_is_watched_any_more() -> None:
    model = tiny_model()
    with pytest.raises(ZeroDivisionError), watched(model) as forwards:
        raise ZeroDivisionError
    model(IDS)
    assert len(forwards) == 0
    assert forwards.positions_computed == ()


def test_rows_of_a_batch_are_counted_together_and_apart() -> None:
    forwards = generate(tiny_model(), torch.cat([IDS, IDS, IDS]))
    assert [one.rows for one in forwards] == [3] * N
    assert forwards.positions_computed == (3 * P, 3, 3, 3)
    assert forwards.positions_read == (0, 3 * P, 3 * (P + 1), 3 * (P + 2))


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
@pytest.mark.parametrize("as_embeddings", [False, True])
def test_both_names_of_the_cache_and_both_kinds_of_input_are_seen(name: str, as_embeddings: bool) -> None:
    from transformers import DynamicCache

    model = tiny_model()
    cache = DynamicCache(config=model.config)
    model(IDS, cache=cache)
    more = torch.tensor([[8, 9]])
    given = {"inputs_embeds": model.get_input_embeddings()(more)} if as_embeddings else {"input_ids": more}
    assert forward_of((), {**given, name: cache, "use_cache": True}) == Forward(rows=1, computed=2, read=P)


def test_a_static_cache_is_read_up_to_where_it_is_filled() -> None:
    from transformers import StaticCache

    model = tiny_model()
    forwards = generate(model, cache=StaticCache(config=model.config, max_cache_len=64))
    assert forwards.positions_read == (0, P, P + 1, P + 2)


def test_ids_given_by_place_are_counted() -> None:
    assert forward_of((torch.zeros(2, 5),), {}) == Forward(rows=2, computed=5, read=0)


def test_of_an_encoder_decoder_the_decoders_positions_are_counted() -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    forwards = generate(T5ForConditionalGeneration(config).eval())
    assert forwards.positions_computed == (1,) * N
    assert forwards.positions_read == (0, 1, 2, 3)


def test_a_model_with_states_alone_is_counted_by_the_positions_it_computes() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=64, hidden_size=16, state_size=4, num_hidden_layers=1, expand=2, time_step_rank=4)
    forwards = generate(MambaForCausalLM(config).eval())
    assert forwards.positions_computed == (P, 1, 1, 1)
    assert forwards.positions_read == (0, 0, 0, 0)


def test_what_cannot_be_known_is_none_and_never_0() -> None:
    forwards = Forwards()
    forwards.add((), {"input_ids": IDS})
    forwards.add((), {"input_ids": IDS[:, :1], "cache": SimpleNamespace(of_its_own=True)})
    assert forwards.positions_computed == (P, 1)
    assert forwards.positions_read is None
    forwards.add((), {"pixel_values": torch.zeros(1, 3, 8, 8)})
    assert forwards.positions_computed is None


def test_a_compiled_model_is_watched_at_every_forward() -> None:
    model = tiny_model()
    compiled = torch.compile(model, backend="eager")
    with watched(model) as forwards, torch.inference_mode():
        for length in (3, 5, 7):
            compiled(torch.ones(1, length, dtype=torch.long), use_cache=False)
    assert forwards.positions_computed == (3, 5, 7)
