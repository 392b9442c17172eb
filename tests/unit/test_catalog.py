"""The known models: read without torch, and what is stored is what their configs trace to."""

from __future__ import annotations

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.planner import architecture, catalog
from kvdemo.settings import TINY_WINDOW

# Parameters as published with the weights (tied embeddings once, draft heads for several tokens left out).
PARAMETERS = {
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V3": 671_026_404_352,
    "Falcon-7B": 6_921_720_704,
    "Falcon-40B": 41_303_293_952,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-3-1B": 999_885_952,
    "Gemma-3-27B": 27_432_406_640,
    "Gemma-3n-E4B": 6_835_235_568,  # the language model of 7,849,978,192
    "GPT-2 124M": 124_439_808,
    "GPT-2 XL 1.5B": 1_557_611_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "Jamba-1.5-Mini": 51_570_323_328,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-4-Maverick-17B-128E": 401_583_781_376,
    "Llama-4-Scout-17B-16E": 108_641_793_536,
    "Mamba-130M": 129_135_360,
    "Mamba-2.8B": 2_768_345_600,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-Nemo-12B": 12_247_782_400,
    "Mixtral-8x7B": 46_702_792_704,
    "Mixtral-8x22B": 140_620_634_112,
    "Nemotron-3-Nano-30B-A3B": 31_577_937_344,
    "Nemotron-H-8B": 8_100_852_736,
    "OLMo-2-7B": 7_298_617_344,
    "Phi-2": 2_779_683_840,
    "Phi-3-mini-4k": 3_821_079_552,
    "Phi-4": 14_659_507_200,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-Next-80B-A3B": 79_674_391_296,
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "SmolLM2-1.7B": 1_711_376_384,
    "SmolLM3-3B": 3_075_098_624,
    "Whisper-large-v3": 1_543_490_560,
    "tiny-window": 3_368_512,
}


def test_every_known_model_has_the_parameters_that_were_published() -> None:
    assert {name: catalog.architecture(name).num_parameters for name in catalog.names()} == PARAMETERS


def test_there_are_enough_known_models_and_each_names_its_source() -> None:
    assert len(catalog.names()) >= 25
    for name in catalog.names():
        published = catalog.source(name).startswith("https://huggingface.co/")
        assert published or name == TINY_WINDOW
        assert catalog.architecture(name).method == "traced"
        assert catalog.config(name)["model_type"]


def test_what_is_packed_is_what_is_unpacked() -> None:
    for name in catalog.names():
        found = catalog.architecture(name)
        assert catalog.packed(found) == catalog.entry(name)["traced"]
        assert [layer.index for layer in found.layers] == list(range(len(found.layers)))


def test_kinds_of_layers_are_those_that_each_family_is_known_for() -> None:
    kinds = {name: sorted({layer.kind for layer in catalog.architecture(name).layers}) for name in catalog.names()}
    assert kinds["Llama-3.1-8B"] == ["full"]
    assert kinds["Gemma-3-27B"] == ["full", "sliding"]
    assert kinds["Gemma-3n-E4B"] == ["full", "shared", "sliding"]
    assert kinds["Llama-4-Scout-17B-16E"] == ["chunked", "full"]
    assert kinds["DeepSeek-V3"] == ["latent"]
    assert kinds["Mamba-2.8B"] == ["state"]
    assert kinds["Jamba-1.5-Mini"] == ["full", "state"]
    assert kinds["Nemotron-H-8B"] == ["full", "none", "state"]
    assert kinds["Whisper-large-v3"] == ["cross", "full"]


@pytest.mark.parametrize("name", ["Llama-9", "", None, ["Llama-3.1-8B"], "../../etc/passwd"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(InvalidRequest, match=r"Llama-3\.1-8B") as refused:
        catalog.architecture(name)  # type: ignore[arg-type]
    assert refused.value.field == "model"


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.names())
def test_tracing_a_known_models_config_gives_what_is_stored(name: str) -> None:
    assert catalog.packed(architecture.from_config(catalog.config(name), name=name)) == catalog.entry(name)["traced"]


def test_tracing_three_known_configs_gives_what_is_stored() -> None:
    for name in ("SmolLM2-135M", "Gemma-3-1B", "gpt-oss-20b", TINY_WINDOW):
        assert (
            catalog.packed(architecture.from_config(catalog.config(name), name=name)) == catalog.entry(name)["traced"]
        )
