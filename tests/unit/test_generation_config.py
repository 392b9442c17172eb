"""Values of generation_config.json that no run could have: refused before anything runs, with their names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.facts.requests import GenerationRequest, SamplingParams
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from tests.known import ended
from tests.tiny import PROMPT, tiny_loaded

SAMPLED = SamplingParams(temperature=0.7)


@pytest.fixture
def loaded() -> Iterator[LoadedModel]:
    made = tiny_loaded()
    yield made
    made.thread.close()


def set_to(loaded: LoadedModel, **values: Any) -> None:
    for name, value in values.items():
        setattr(loaded.model.generation_config, name, value)


def run(loaded: LoadedModel, prompt: str = PROMPT, **fields: Any) -> str:
    return ended(stream(loaded, GenerationRequest(prompt, 3, **fields), turnstile=Turnstile(1))).record.status


@pytest.mark.parametrize(
    ("name", "value", "sampling"),
    [
        ("repetition_penalty", 0.0, SamplingParams()),
        ("repetition_penalty", "much", SAMPLED),
        ("encoder_repetition_penalty", -1.0, SamplingParams()),
        ("no_repeat_ngram_size", 1.5, SamplingParams()),
        ("bad_words_ids", [], SamplingParams()),
        ("bad_words_ids", [[9999]], SamplingParams()),  # beyond the vocabulary: seen when it is used
        ("sequence_bias", [[[1], "x"]], SamplingParams()),
        ("suppress_tokens", "a", SamplingParams()),
        ("begin_suppress_tokens", 5, SamplingParams()),
        ("exponential_decay_length_penalty", [1], SamplingParams()),
        ("forced_eos_token_id", 9999, SamplingParams()),  # seen at the last token
        ("min_p", 7.0, SAMPLED),
        ("typical_p", -1.0, SAMPLED),
        ("top_h", 9.0, SAMPLED),
    ],
)
def test_a_value_that_transformers_refuses_is_refused_before_the_run_with_its_name(
    loaded: LoadedModel, name: str, value: Any, sampling: SamplingParams
) -> None:
    set_to(loaded, **{name: value, "min_length": 1})
    with pytest.raises(InvalidRequest) as refused:
        run(loaded, sampling=sampling)
    assert refused.value.field == "generation_config.json"
    assert f"sets {name}={value}; transformers refuses it: " in str(refused.value)


def test_what_the_run_never_reads_refuses_nothing(loaded: LoadedModel) -> None:
    """The request's own values win over the file's, and a greedy run reads none of those for sampling."""
    set_to(loaded, temperature=-1.0, top_k=-3, top_p=7.0)
    assert run(loaded, sampling=SAMPLED) == "ok"
    set_to(loaded, min_p=7.0, typical_p=-1.0)
    assert run(loaded) == "ok"


def test_values_that_transformers_takes_go_on_working(loaded: LoadedModel) -> None:
    set_to(
        loaded,
        repetition_penalty=1.1, no_repeat_ngram_size=3, bad_words_ids=[[7]], suppress_tokens=[8], min_new_tokens=2,
        begin_suppress_tokens=[9], exponential_decay_length_penalty=(2, 1.1), forced_bos_token_id=5, min_p=0.1,
    )  # fmt: skip
    assert run(loaded) == run(loaded, sampling=SAMPLED) == run(loaded, fixed_length=False) == "ok"
