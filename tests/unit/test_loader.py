"""A source becomes a model in memory: what is known about it is exact, and every failure is one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvdemo.errors import ModelUnavailable
from kvdemo.facts.model import ModelFacts
from kvdemo.generation.ends import end_ids
from kvdemo.models.hub import download
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import load
from kvdemo.models.source import EMBEDDED_INSTALL, ModelSource, resolve
from kvdemo.models.thread import ModelThread
from kvdemo.models.weights import cache_bytes_per_token, weigh
from kvdemo.settings import Settings
from tests.known import known
from tests.model_files import write_folder, write_tiny_gguf
from tests.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def load_from(path: Path, home: Path, steps: list[str] | None = None, **settings: Any) -> LoadedModel:
    """Load as the backend does: resolved first, then in the thread that will own the model."""
    thread = ModelThread()
    options = Settings(home=home, **settings)
    told = [] if steps is None else steps
    try:
        source = resolve(str(path), home)
        return thread.submit(lambda: load(options, source, thread=thread, progress=told.append)).result()
    finally:
        thread.close()


def refusal(path: Path, home: Path, **settings: Any) -> str:
    with pytest.raises(ModelUnavailable) as caught:
        load_from(path, home, **settings)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path.parent) not in text
    return text


def test_a_folder_is_loaded_with_its_facts(saved: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    loaded = load_from(saved, tmp_path, steps, device="cpu")
    num_parameters = sum(parameter.numel() for parameter in tiny_model().parameters())
    assert loaded.facts == ModelFacts(
        name="tiny",
        source=f"Weights from the folder {saved}.",
        model_type="llama",
        num_parameters=num_parameters,
        weight_bytes=num_parameters * 4,
        dtype="float32",
        device="cpu",
        context_limit=1024,
        cache_bytes_per_token=4 * 2 * 2 * 16 * 4,
        vocab_size=258,
        has_chat_template=True,
        attention="sdpa",
    )
    assert not loaded.model.training
    assert [step for step in steps if "tensors" not in step] == [
        "importing torch, 1 of 3",
        "weights, 2 of 3",
        "first token, 3 of 3",
    ]


@pytest.mark.parametrize(("name", "told"), [(None, True), ("owner/name", False)])
def test_where_the_default_model_cannot_be_downloaded_the_line_that_installs_it_is_told(
    name: str | None, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://x")
    source = resolve(name, tmp_path, cache=tmp_path / "hub", embedded_package="no_such_package")
    thread = ModelThread()
    try:
        with pytest.raises(ModelUnavailable) as caught:
            thread.submit(lambda: load(Settings(home=tmp_path), source, thread=thread, progress=print)).result()
    finally:
        thread.close()
    assert "ALL_PROXY" in str(caught.value)
    assert (EMBEDDED_INSTALL in str(caught.value)) is told
    assert str(caught.value) == str(caught.value).strip()


def test_a_model_of_the_hub_keeps_the_id_that_names_it_to_others(saved: Path, tmp_path: Path) -> None:
    source = ModelSource("hub", "tiny", "Weights from the local hub cache: owner/tiny.", saved, "owner/tiny", "tiny")
    thread = ModelThread()
    try:
        loaded = thread.submit(lambda: load(Settings(home=tmp_path), source, thread=thread, progress=print)).result()
    finally:
        thread.close()
    assert (loaded.facts.name, loaded.facts.hub_id) == ("tiny", "owner/tiny")


def test_a_dtype_that_was_asked_for_is_used(saved: Path, tmp_path: Path) -> None:
    facts = load_from(saved, tmp_path, dtype="bfloat16", device="cpu").facts
    assert (facts.dtype, facts.weight_bytes) == ("bfloat16", known(facts.num_parameters) * 2)
    assert facts.cache_bytes_per_token == 4 * 2 * 2 * 16 * 2


def test_a_device_that_is_not_there_is_named_with_the_way_out(saved: Path, tmp_path: Path) -> None:
    import torch

    missing = "mps" if torch.cuda.is_available() else "cuda"
    text = refusal(saved, tmp_path, device=missing)
    assert text.startswith(f"KVDEMO_DEVICE asks for {missing}")
    assert "cpu" in text


def test_tied_weights_count_once() -> None:
    tied, untied = tiny_model(tie_word_embeddings=True), tiny_model()
    assert weigh(untied)[0] - weigh(tied)[0] == 258 * 64
    assert weigh(untied)[1] - weigh(tied)[1] == 258 * 64 * 4


def test_bytes_per_token_are_those_of_the_layers_that_the_model_really_has() -> None:
    assert cache_bytes_per_token(tiny_model(head_dim=32)) == 4 * 2 * 2 * 32 * 4


def test_weights_that_the_config_calls_for_and_the_file_lacks_are_refused(copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["num_hidden_layers"] = 5
    config.pop("layer_types", None)
    (copy / "config.json").write_text(json.dumps(config))
    assert "lacks 9 of the weights" in refusal(copy, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "never_heard_of"}, "does not know its architecture"),
        ({"model_type": "vit"}, "not a model that continues text"),
        ({"hidden_size": 32}, "do not fit together"),
        ({"hidden_size": "wide"}, "do not fit together|unexpected"),
    ],
)
def test_a_config_that_does_not_fit_is_one_line(change: dict[str, Any], words: str, copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **change}))
    assert re.search(words, refusal(copy, tmp_path))


SMALL = {"vocab_size": 258, "max_position_embeddings": 64, "initializer_range": 0.3}
BERT_LIKE = {**SMALL, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
BART_LIKE = {
    **SMALL,
    "d_model": 32,
    **dict.fromkeys(("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 32),
}


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("BertForMaskedLM", BERT_LIKE, r"a masked model, which fills gaps in a text \(BertForMaskedLM\)"),
        ("BertLMHeadModel", BERT_LIKE, r"look at those that follow it \(BertLMHeadModel\)"),
        ("XLNetLMHeadModel", {"vocab_size": 258, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 32}, "follow it"),
        ("BartForConditionalGeneration", BART_LIKE, r"an encoder-decoder or a half of one \(Bart"),
        ("BartForCausalLM", BART_LIKE, r"a half of one \(BartForCausalLM\)"),
        (
            "GPT2LMHeadModel",
            {"vocab_size": 258, "n_embd": 32, "n_head": 2, "n_layer": 1, "add_cross_attention": True},
            "a half of one",
        ),
        ("LlamaForSequenceClassification", {}, r"a classifier \(LlamaForSequenceClassification\)"),
        ("Qwen2ForTokenClassification", {"tie_word_embeddings": True}, "a classifier"),
        ("LlamaForQuestionAnswering", {}, "picks an answer"),
        ("LlamaModel", {}, r"hold nothing that chooses the next token \(lm_head"),
    ],
)
def test_a_model_that_does_not_write_from_left_to_right_is_refused_by_what_it_is(
    kind: str, fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    import transformers

    model_class = getattr(transformers, kind)
    config = {**BERT_LIKE, "num_key_value_heads": 2} if not fields or "tie_word_embeddings" in fields else {}
    model_class(model_class.config_class(**config, **fields)).save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    text = refusal(tmp_path / "other", tmp_path)
    assert text.startswith("other is not a model that writes text from left to right: ")
    assert re.search(words, text)


def test_an_end_token_that_only_a_config_class_has_ends_no_answer(copy: Path, tmp_path: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config["eos_token_id"]
    (copy / "config.json").write_text(json.dumps(config))
    loaded = load_from(copy, tmp_path)
    assert loaded.model.config.eos_token_id is None
    assert end_ids(loaded) == {256}


def test_what_is_no_writer_is_refused_before_it_is_downloaded(tmp_path: Path) -> None:
    hub: Any = FakeHub(tmp_path, ["config.json", "tokenizer.json", "model.safetensors"])
    hub.config = {"architectures": ["BertForMaskedLM"], "model_type": "bert"}
    with pytest.raises(ModelUnavailable, match=r"owner/name is not a model that writes text .*masked model"):
        download("owner/name", print, api=hub)
    assert hub.fetched == []


def test_code_beside_the_weights_is_never_run(copy: Path, tmp_path: Path) -> None:
    witness = tmp_path / "it ran"
    (copy / "modeling_own.py").write_text(f"open({str(witness)!r}, 'w')")
    config = json.loads((copy / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "modeling_own.C", "AutoModelForCausalLM": "modeling_own.M"}
    source = resolve(str(copy), tmp_path)
    (copy / "config.json").write_text(json.dumps(config))  # changed after it was looked at
    thread = ModelThread()
    with pytest.raises(ModelUnavailable, match="code of its own"):
        load(Settings(home=tmp_path), source, thread=thread, progress=print)
    thread.close()
    assert not witness.exists()


def test_the_token_for_the_hub_is_in_no_error_and_no_log(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_a_test")
    config = json.loads((copy / "config.json").read_text())
    config["model_type"] = "hf_secret_of_a_test"  # so that a library quotes it
    (copy / "config.json").write_text(json.dumps(config))
    assert "secret" not in refusal(copy, tmp_path)
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("kvdemo")]
    assert "(token)" in line
    assert "secret" not in line
    assert len(line.splitlines()) == 1


def test_a_gguf_is_unpacked_exactly_once_and_loads_from_then_on(tmp_path: Path) -> None:
    import torch

    original = tiny_model(vocab_size=259)
    file = write_tiny_gguf(tmp_path / "tiny.gguf", original)
    first: list[str] = []
    load_from(file, tmp_path / "home", first)
    second: list[str] = []
    loaded = load_from(file, tmp_path / "home", second)

    assert "unpacking the GGUF, once (about half a minute), 2 of 4" in first
    assert not any("unpacking" in step for step in second)
    unpacked = loaded.model.state_dict()
    assert all(torch.equal(tensor, unpacked[name]) for name, tensor in original.state_dict().items())
    assert loaded.tokenizer.encode("The tea") == [84, 104, 101, 258, 101, 97]
    assert loaded.tokenizer.decode([84, 104, 101, 258, 101, 97]) == "The tea"
    assert loaded.facts.source == f"Weights from the file {file}, unpacked."


def test_a_gguf_takes_nothing_from_the_folder_it_lies_in(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["own.T", null]}}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert load_from(file, tmp_path / "home").model.generation_config.eos_token_id == 256


class FakeHub:
    """Answers like huggingface_hub's client; remembers what was fetched."""

    def __init__(self, folder: Path, names: list[str], error: Exception | None = None) -> None:
        self.folder, self.error = folder, error
        self.siblings = [SimpleNamespace(rfilename=name, size=1_000_000) for name in names]
        self.config: dict[str, Any] | None = None
        self.fetched: list[str] = []

    def model_info(self, _hub_id: str, **_: Any) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(sha="0123abcd", siblings=self.siblings, config=self.config)

    def snapshot_download(self, _hub_id: str, *, revision: str, allow_patterns: list[str]) -> str:
        assert revision == "0123abcd"
        self.fetched = allow_patterns
        return str(self.folder)

    endpoint = None

    def get_hf_file_metadata(self, *, url: str, timeout: float) -> None:
        """There is always an answer; what is missing is told by the download."""

    def hf_hub_download(self, _hub_id: str, name: str) -> str:
        from huggingface_hub.errors import EntryNotFoundError

        if self.error is not None:
            raise self.error
        self.fetched.append(name)
        if not (self.folder / name).is_file():
            raise EntryNotFoundError("404")
        return str(self.folder / name)


def test_only_safetensors_and_small_files_are_downloaded(tmp_path: Path) -> None:
    names = [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "pytorch_model.bin",
        "modeling_x.py",
        "onnx/model.onnx",
    ]
    hub: Any = FakeHub(write_folder(tmp_path / "snapshot"), names)
    steps: list[str] = []
    assert download("owner/name", steps.append, api=hub) == tmp_path / "snapshot"
    assert hub.fetched == ["config.json", "tokenizer.json", "model.safetensors"]
    assert steps == ["downloading 3 MB"]


def test_a_model_with_only_pickle_weights_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    hub: Any = FakeHub(tmp_path, ["config.json", "pytorch_model.bin"])
    with pytest.raises(ModelUnavailable, match="no safetensors weights"):
        download("owner/name", print, api=hub)
    assert hub.fetched == []


def test_a_hub_that_cannot_be_reached_is_one_line_at_once() -> None:
    from huggingface_hub import HfApi

    with pytest.raises(ModelUnavailable, match="check the network") as caught:
        download("owner/name", print, api=HfApi(endpoint="http://127.0.0.1:9", token="hf_secret"))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_name_that_the_hub_does_not_know_is_one_line(tmp_path: Path) -> None:
    import httpx
    from huggingface_hub.errors import RepositoryNotFoundError

    response = httpx.Response(401, request=httpx.Request("GET", "https://hub.test/api"))
    hub: Any = FakeHub(tmp_path, [], RepositoryNotFoundError("401 hf_secret", response=response))
    with pytest.raises(ModelUnavailable, match=r"The hub has no model owner/name") as caught:
        download("owner/name", print, api=hub)
    assert "secret" not in str(caught.value)


@pytest.mark.real
def test_the_embedded_model_continues_a_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Settings.from_environment({}).home
    source: ModelSource = resolve(None, home, cache=tmp_path_factory.mktemp("no hub cache"), allow_network=False)
    assert source.kind == "embedded"
    thread = ModelThread()
    loaded = thread.submit(lambda: load(Settings(home=home), source, thread=thread, progress=print)).result()
    assert loaded.facts.num_parameters == 134_515_008
    assert loaded.facts.context_limit == 8192
    if loaded.facts.dtype == "float32":
        assert loaded.facts.weight_bytes == 538_060_032
        assert loaded.facts.cache_bytes_per_token == 46_080
    prompt = loaded.tokenizer("The red cat was", return_tensors="pt").to(loaded.facts.device)
    assert prompt["input_ids"].tolist() == [[504, 2382, 2644, 436]]
    ids = thread.submit(lambda: loaded.model.generate(**prompt, max_new_tokens=3, do_sample=False)).result()
    thread.close()
    assert loaded.tokenizer.decode(ids[0]) == "The red cat was a cat that"
