"""Several requests at once on a tiny model: the same tokens, the work that was done, and the model as it was afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Finished, Waiting, Working
from kvdemo.facts.load import PAGED, Arrival, ManyFinished, ManyRecord, ManyRequest, Serving
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.many import PREEMPTED, run_many
from kvdemo.generation.paged import refuse_layers
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from tests.tiny import PROMPT, tiny_loaded, tiny_model

SERVED: tuple[tuple[Serving, str], ...] = (
    ("one-by-one", "dynamic"),
    ("one-by-one", "none"),
    ("padded", "dynamic"),
    ("padded", "none"),
    ("continuous", PAGED),
)


@pytest.fixture(scope="module")
def loaded() -> Iterator[Any]:
    made = tiny_loaded()
    yield made
    made.thread.close()


def ids_of(length: int) -> tuple[int, ...]:
    return tuple(1 + (7 * at + length) % 250 for at in range(length))


def request_of(serving: Serving, strategy: str, lengths: tuple[int, ...], new_tokens: int = 6, **more: Any) -> Any:
    arrivals = tuple(Arrival(ids_of(length), new_tokens) for length in lengths)
    return ManyRequest(serving, arrivals, strategy, **{"page_size": 16, **more})


def serve(loaded: Any, request: ManyRequest, **more: Any) -> ManyRecord:
    *steps, last = run_many(loaded, request, turnstile=Turnstile(3), **more)
    assert all(isinstance(step, Waiting | Working) for step in steps)
    assert isinstance(last, ManyFinished)
    return last.record


def tokens(record: ManyRecord) -> list[Any]:
    return [run.token_ids for run in record.runs]


def a_chat_works(loaded: Any) -> bool:
    *_, last = stream(loaded, GenerationRequest(PROMPT, 3), turnstile=Turnstile(3))
    return isinstance(last, Finished) and last.record.new_tokens == 3


def managers() -> list[Any]:
    """Managers that still run, and caches that still have pages; an error that is kept may keep what is empty."""
    gc.collect()
    left = [one for one in gc.get_objects() if type(one).__name__ == "ContinuousBatchingManager" and one.is_running()]
    caches = [one for one in gc.get_objects() if type(one).__name__ == "PagedAttentionCache"]
    tensors = [one.cache_tensor for one in caches if hasattr(one, "cache_tensor")]
    return [*left, *(tensor for tensor in tensors if tensor.untyped_storage().nbytes())]


LENGTHS = (31, 32, 33, 63, 64, 65)


@pytest.mark.parametrize(("serving", "strategy"), SERVED[1:], ids=[" ".join(one) for one in SERVED[1:]])
def test_every_way_of_serving_gives_each_request_the_tokens_it_gets_alone(
    loaded: Any, serving: Serving, strategy: str
) -> None:
    alone = serve(loaded, request_of("one-by-one", "dynamic", LENGTHS))
    served = serve(loaded, request_of(serving, strategy, LENGTHS))
    assert (alone.status, served.status, served.error) == ("ok", "ok", None)
    assert tokens(served) == tokens(alone)
    assert served.output_tokens == 6 * len(LENGTHS)


@pytest.mark.parametrize("width", LENGTHS)
def test_rows_padded_to_one_and_to_one_more_token_than_a_kernel_s_block_keep_their_tokens(
    loaded: Any, width: int
) -> None:
    lengths = (width, 5, width - 1, 1)
    alone = serve(loaded, request_of("one-by-one", "dynamic", lengths))
    assert tokens(serve(loaded, request_of("padded", "dynamic", lengths))) == tokens(alone)


def test_work_of_one_by_one_is_counted_exactly(loaded: Any) -> None:
    lengths = (10, 20)
    record = serve(loaded, request_of("one-by-one", "dynamic", lengths, new_tokens=4))
    assert record.positions_computed == (10 + 3) + (20 + 3)
    assert record.positions_read == (10 + 11 + 12) + (20 + 21 + 22)
    assert record.padding_positions == 0
    without = serve(loaded, request_of("one-by-one", "none", lengths, new_tokens=4))
    assert without.positions_computed == (10 + 11 + 12 + 13) + (20 + 21 + 22 + 23)
    assert (without.positions_read, without.reserved_cache_bytes) == (0, 0)


def test_a_padded_batch_computes_rows_times_the_longest_and_says_how_much_of_it_is_padding(loaded: Any) -> None:
    record = serve(loaded, request_of("padded", "dynamic", (10, 20), new_tokens=4))
    assert [forward.computed for forward in record.forwards or ()] == [2 * 20, 2, 2, 2]
    assert [forward.read for forward in record.forwards or ()] == [0, 2 * 20, 2 * 21, 2 * 22]
    assert record.padding_positions == 10
    without = serve(loaded, request_of("padded", "none", (10, 20), new_tokens=4))
    assert [forward.computed for forward in without.forwards or ()] == [40, 42, 44, 46]
    assert without.padding_positions == 4 * 10


def test_rows_that_have_ended_are_padding_until_the_longest_answer_ends(loaded: Any) -> None:
    arrivals = (Arrival(ids_of(10), 2), Arrival(ids_of(12), 6))
    record = serve(loaded, ManyRequest("padded", arrivals))
    assert [run.new_tokens for run in record.runs] == [2, 6]
    assert record.padding_positions == 2 + 4
    alone = serve(loaded, ManyRequest("one-by-one", arrivals))
    assert tokens(record) == tokens(alone)


def test_a_continuous_batch_computes_nothing_for_nobody_and_its_pool_is_sized_to_the_load(loaded: Any) -> None:
    record = serve(loaded, request_of("continuous", PAGED, (10, 20), new_tokens=4, share_prefix=False))
    assert record.positions_computed == (10 + 3) + (20 + 3)
    assert record.padding_positions == 0
    assert record.num_pages == 1 + 2
    per_token = loaded.facts.cache_bytes_per_token
    assert record.page_bytes == 16 * per_token
    assert record.reserved_cache_bytes == (3 + 2) * 16 * per_token
    assert record.peak_cache_bytes == 3 * 16 * per_token
    assert max(forward.pages or 0 for forward in record.forwards or ()) == 3


def test_pages_that_begin_alike_are_computed_once_where_they_are_shared(loaded: Any) -> None:
    arrivals = tuple(Arrival((*ids_of(64), 200 + at), 4, 0.0) for at in range(4))
    shared, apart = (
        serve(loaded, ManyRequest("continuous", arrivals, PAGED, page_size=16, share_prefix=share))
        for share in (True, False)
    )
    assert apart.reused_tokens == 0
    assert shared.reused_tokens is not None
    assert shared.reused_tokens % 16 == 0
    assert (shared.positions_computed or 0) + shared.reused_tokens == apart.positions_computed
    assert tokens(shared) == tokens(apart)


def test_a_request_that_the_engine_preempts_is_marked_and_has_no_times(loaded: Any) -> None:
    request = request_of("continuous", PAGED, (14, 14, 14), new_tokens=30, num_pages=5, share_prefix=False)
    record = serve(loaded, request)
    marked = [run for run in record.runs if PREEMPTED in run.notices]
    assert record.status == "ok"
    assert marked
    for run in marked:
        assert (run.token_times_s, run.ttft_s, run.tpot_s, run.request_s) == ((), None, None, None)
        assert run.new_tokens == 30
    alone = serve(loaded, request_of("one-by-one", "dynamic", (14, 14, 14), new_tokens=30))
    assert tokens(record) == tokens(alone)


@pytest.mark.parametrize(("serving", "strategy"), SERVED, ids=[" ".join(one) for one in SERVED])
def test_an_answer_may_end_at_its_end_token(loaded: Any, serving: Serving, strategy: str) -> None:
    record = serve(loaded, request_of(serving, strategy, (10, 20), new_tokens=20, fixed_length=False))
    assert record.status == "ok"
    assert all(run.finish_reason in ("stop", "length") for run in record.runs)


@pytest.mark.parametrize(("serving", "strategy"), SERVED, ids=[" ".join(one) for one in SERVED])
def test_a_request_waits_for_its_arrival_and_its_queue_is_counted_from_there(
    loaded: Any, serving: Serving, strategy: str
) -> None:
    arrivals = (Arrival(ids_of(8), 3, 0.0), Arrival(ids_of(9), 3, 0.3))
    record = serve(loaded, ManyRequest(serving, arrivals, strategy, page_size=16))
    assert record.wall_s is not None
    assert record.wall_s > 0.3
    assert record.status == "ok"
    assert all(run.request_s is not None and run.request_s >= run.queue_s for run in record.runs)


class StopAfter:
    """A flag that is set when the model has begun so many forwards."""

    def __init__(self, loaded: Any, forwards: int) -> None:
        self.flag, self._left = threading.Event(), forwards
        self._hook = loaded.model.register_forward_pre_hook(self._before)

    def _before(self, *_: object) -> None:
        self._left -= 1
        if self._left <= 0:
            self.flag.set()

    def remove(self) -> None:
        self._hook.remove()


@pytest.mark.parametrize(("serving", "strategy"), SERVED, ids=[" ".join(one) for one in SERVED])
def test_stop_ends_it_and_the_next_chat_works(loaded: Any, serving: Serving, strategy: str) -> None:
    stop = StopAfter(loaded, 3)
    try:
        record = serve(loaded, request_of(serving, strategy, (20, 21), new_tokens=400), stop=stop.flag)
    finally:
        stop.remove()
    assert record.status == "cancelled"
    assert not managers()
    assert not hasattr(loaded.model, "_cached_continuous_batching_manager")
    assert a_chat_works(loaded)


@pytest.mark.parametrize(("serving", "strategy"), SERVED, ids=[" ".join(one) for one in SERVED])
def test_who_leaves_ends_it_and_closing_returns_when_the_model_has_ended(
    loaded: Any, serving: Serving, strategy: str
) -> None:
    turnstile = Turnstile(3)
    begun = StopAfter(loaded, 2)
    events = run_many(
        loaded, request_of(serving, strategy, (20, 21), new_tokens=400), turnstile=turnstile, every_s=0.01
    )
    try:
        while not begun.flag.is_set():
            assert isinstance(next(events), Working)
        events.close()
    finally:
        begun.remove()
    assert turnstile.length == 0
    assert not managers()
    assert a_chat_works(loaded)


def breaking(after: int) -> Callable[..., None]:
    left = [after]

    def broken(*_: object) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise RuntimeError("a kernel failed")

    return broken


@pytest.mark.parametrize(("serving", "strategy"), SERVED, ids=[" ".join(one) for one in SERVED])
def test_a_failure_is_told_with_its_reason_and_leaves_nothing_behind(
    loaded: Any, serving: Serving, strategy: str
) -> None:
    hook = loaded.model.model.layers[1].register_forward_pre_hook(breaking(3))
    try:
        record = serve(loaded, request_of(serving, strategy, (20, 21), new_tokens=8))
    finally:
        hook.remove()
    assert record.status == "failed"
    assert "a kernel failed" in (record.error or "")
    assert {run.status for run in record.runs} == {"failed"}
    assert not managers()
    assert loaded.model.config._attn_implementation == "sdpa"
    assert a_chat_works(loaded)


@pytest.mark.parametrize("serving", ["one-by-one", "padded", "continuous"])
@pytest.mark.parametrize("lengths", [(10,), (10, 20)])
def test_logits_that_are_not_numbers_are_a_fault_in_a_batch_too(serving: Serving, lengths: tuple[int, ...]) -> None:
    import torch

    damaged = tiny_loaded()
    with torch.no_grad():
        damaged.model.lm_head.weight[7, 0] = float("nan")
    strategy = "paged" if serving == "continuous" else "dynamic"
    record = serve(damaged, request_of(serving, strategy, lengths))
    assert record.status == "failed"
    assert "logits are not numbers" in (record.error or "")
    damaged.thread.close()


def test_what_cannot_be_allocated_fails_before_the_clock_and_leaves_nothing_behind(loaded: Any) -> None:
    request = request_of("continuous", PAGED, (20,), num_pages=1_000_000)
    record = serve(loaded, ManyRequest(**{**fields(request), "page_size": 4096}), free=lambda _: 2**62)
    assert record.status == "failed"
    assert "not enough memory" in (record.error or "")
    assert not managers()
    assert a_chat_works(loaded)


def fields(request: ManyRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ManyRequest.__dataclass_fields__}


def test_the_manager_is_gone_and_its_memory_free_when_all_are_answered(loaded: Any) -> None:
    before = threading.active_count()
    assert serve(loaded, request_of("continuous", PAGED, (20, 21))).status == "ok"
    assert not managers()
    assert not [one for one in gc.get_objects() if type(one).__name__ == "ContinuousBatchProcessor"]
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        (
            {"lengths": (1000,), "new_tokens": 100},
            "max_new_tokens",
            "request 1 has 1,000 prompt tokens and 100 new ones",
        ),
        ({"lengths": (20, 21), "num_pages": 1}, "num_pages", "needs 2 pages of 16 tokens"),
    ],
)
def test_what_does_not_fit_the_model_or_the_pages_is_refused_before_anything_runs(
    loaded: Any, changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        next(iter(run_many(loaded, request_of("continuous", PAGED, **changes), turnstile=Turnstile(3))))
    assert refused.value.field == field
    assert said in str(refused.value)


@pytest.mark.parametrize(("serving", "strategy"), [one for one in SERVED if one[1] != "none"])
def test_more_requests_than_memory_allows_are_refused_with_both_sizes(
    loaded: Any, serving: Serving, strategy: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        serve(loaded, request_of(serving, strategy, (20,) * 8), free=lambda _: 1000)
    assert refused.value.field == "requests"
    assert "1000 B are free" in str(refused.value)


def test_layers_that_continuous_batching_does_not_take_are_refused_in_a_sentence() -> None:
    from transformers import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

    config = Qwen3_5TextConfig(
        vocab_size=258, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2,
        linear_key_head_dim=8, linear_value_head_dim=8, eos_token_id=256, pad_token_id=257,
    )  # fmt: skip
    made = tiny_loaded(Qwen3_5ForCausalLM(config).eval())
    try:
        with pytest.raises(InvalidRequest) as refused:
            serve(made, request_of("continuous", PAGED, (20,)))
    finally:
        made.thread.close()
    assert refused.value.field == "modes"
    assert "linear_attention" in str(refused.value)


def test_latent_layers_are_refused_in_a_sentence_too() -> None:
    from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

    config = DeepseekV2Config(
        vocab_size=258, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=8, q_lora_rank=None, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=2, num_experts_per_tok=1, first_k_dense_replace=2,
        n_group=1, topk_group=1, n_shared_experts=1,
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match="latent"):
        refuse_layers(DeepseekV2ForCausalLM(config).eval())


def test_sliding_layers_are_served_too() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=258, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=16, initializer_range=0.3, eos_token_id=256, pad_token_id=257,
    )  # fmt: skip
    ways: tuple[tuple[Serving, str], ...] = (("one-by-one", "dynamic"), ("continuous", PAGED))
    made = tiny_loaded(MistralForCausalLM(config).eval())
    try:
        alone, served = (serve(made, request_of(serving, strategy, (30, 40))) for serving, strategy in ways)
    finally:
        made.thread.close()
    assert served.status == "ok"
    assert tokens(served) == tokens(alone)
    assert served.reserved_cache_bytes is not None


def test_eager_attention_is_set_back_even_where_the_manager_never_started() -> None:
    made = tiny_loaded(tiny_model(attn_implementation="eager"))
    try:
        serve(made, request_of("continuous", PAGED, (20,)))
        assert made.model.config._attn_implementation == "eager"
        request = request_of("continuous", PAGED, (20,), num_pages=1_000_000)
        failed = serve(made, ManyRequest(**{**fields(request), "page_size": 4096}), free=lambda _: 2**62)
        assert failed.status == "failed"
        assert made.model.config._attn_implementation == "eager"
        assert a_chat_works(made)
    finally:
        made.thread.close()


def test_nothing_else_runs_until_all_are_answered(loaded: Any) -> None:
    turnstile = Turnstile(3)
    events = run_many(
        loaded, request_of("continuous", PAGED, (20, 21), new_tokens=40), turnstile=turnstile, every_s=0.01
    )
    assert isinstance(next(events), Working)
    chat = stream(loaded, GenerationRequest(PROMPT, 2), turnstile=turnstile)
    assert isinstance(next(chat), Waiting)
    *_, last = events
    assert isinstance(last, ManyFinished)
    *_, finished = chat
    assert isinstance(finished, Finished)
    assert finished.reason == "length"
