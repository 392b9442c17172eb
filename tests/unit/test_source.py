"""Which model a name means, and one clear line at once for everything that cannot be used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvdemo.errors import InvalidRequest, KvdemoError, ModelUnavailable
from kvdemo.models.source import EMBEDDED_INSTALL, ModelSource, resolve
from kvdemo.settings import DEFAULT_MODEL
from tests.model_files import write_folder, write_tiny_gguf

NO_PACKAGE = "kvdemo_test_package_that_is_not_there"


def write_snapshot(cache: Path, hub_id: str, commit: str = "0123abcd") -> Path:
    repository = cache / ("models--" + hub_id.replace("/", "--"))
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    return write_folder(repository / "snapshots" / commit)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package that carries a GGUF and must never be imported."""
    folder = tmp_path / "site" / "carrier_of_weights"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    write_tiny_gguf(folder / "tiny.gguf")
    monkeypatch.syspath_prepend(folder.parent)
    return "carrier_of_weights"


def find(name: str | None, tmp_path: Path, **options: object) -> ModelSource:
    defaults: dict[str, object] = {"cache": tmp_path / "hub", "embedded_package": NO_PACKAGE}
    return resolve(name, tmp_path / "home", **{**defaults, **options})  # type: ignore[arg-type]


def test_the_default_model_comes_from_the_hub_cache_before_the_package(tmp_path: Path, package: str) -> None:
    snapshot = write_snapshot(tmp_path / "hub", DEFAULT_MODEL)
    source = find(None, tmp_path, embedded_package=package)
    assert source == ModelSource(
        kind="hub",
        name="SmolLM2-135M-Instruct",
        sentence=f"Weights from the local hub cache: {DEFAULT_MODEL}.",
        path=snapshot,
        hub_id=DEFAULT_MODEL,
        revision="0123abcd",
    )


def test_the_default_model_comes_from_the_package_where_the_cached_one_is_incomplete(
    tmp_path: Path, package: str
) -> None:
    (write_snapshot(tmp_path / "hub", DEFAULT_MODEL) / "model.safetensors").unlink()
    source = find(None, tmp_path, embedded_package=package, allow_network=False)
    assert source.kind == "embedded"
    assert source.path is not None
    assert source.path.name == "tiny.gguf"
    assert source.sentence == "Weights from the installed package carrier-of-weights, unpacked from 4 bits."
    assert package not in sys.modules


def test_the_default_model_is_downloaded_where_nothing_is_there(tmp_path: Path) -> None:
    source = find(None, tmp_path)
    assert (source.kind, source.path, source.hub_id) == ("hub", None, DEFAULT_MODEL)


def test_without_a_network_a_model_that_is_not_cached_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="not in the local hub cache"):
        find("owner/name", tmp_path, allow_network=False)


def test_without_a_network_the_default_model_is_refused_with_the_line_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=re.escape(f": {EMBEDDED_INSTALL} (")):
        find(None, tmp_path, allow_network=False)
    with pytest.raises(ModelUnavailable) as caught:
        find("owner/name", tmp_path, allow_network=False)
    assert EMBEDDED_INSTALL not in str(caught.value), "another model is not in that package"


def test_a_cached_hub_model_needs_no_network(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path / "hub", "owner/name")
    source = find("owner/name", tmp_path, allow_network=False)
    assert (source.path, source.revision, source.name) == (snapshot, "0123abcd", "name")


def test_a_cached_hub_model_with_code_of_its_own_is_refused(tmp_path: Path) -> None:
    snapshot = write_snapshot(tmp_path / "hub", "owner/name")
    (snapshot / "config.json").write_text('{"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}')
    with pytest.raises(ModelUnavailable, match="code of its own"):
        find("owner/name", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "a b",
        "a/b/c",
        "owner/../name",
        "owner/na--me",
        "owner/name.git",
        "-owner/name",
        "https://host/owner/name",
        "owner/name\nsecond line",
        "owner/näme",
        "a\0b",
        "\ud800",
        "x" * 2000,
    ],
)
def test_what_cannot_be_a_name_is_refused_by_the_field_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        find(name, tmp_path)
    assert caught.value.field == "model"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "name",
    [
        "./missing",
        "../missing",
        "/missing",
        "~/missing-kvdemo",
        "~nosuchuser-kvdemo/x",
        "missing.gguf",
        "missing.safetensors",
        "missing/model.bin",
        "/" + "x" * 300,
    ],
)
def test_a_missing_path_is_one_line_and_never_a_hub_id(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        find(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_is_taken_with_or_without_a_leading_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "my" / "model")
    monkeypatch.chdir(tmp_path)
    for name in ("my/model", "./my/model", str(folder)):
        source = find(name, tmp_path)
        assert (source.kind, source.name, source.path) == ("folder", "model", folder)


def test_a_missing_folder_beside_others_is_told_before_the_hub_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "models" / "tiny")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ModelUnavailable, match=r"^There is nothing at models/tinny, although the folder models is here"
    ):
        find("models/tinny", tmp_path)
    assert find("models/tiny", tmp_path).kind == "folder"
    snapshot = write_snapshot(tmp_path / "hub", "models/tinny")
    assert find("models/tinny", tmp_path).path == snapshot
    assert find("others/tinny", tmp_path).kind == "hub"
    assert find("tinny", tmp_path).kind == "hub"


def test_only_local_mode_shows_where_a_folder_lies(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "secret" / "model")
    assert find(str(folder), tmp_path).sentence == f"Weights from the folder {folder}."
    for mode in ("share", "space"):
        assert find(str(folder), tmp_path, mode=mode).sentence == "Weights from the folder model."
        with pytest.raises(ModelUnavailable) as caught:
            find(str(tmp_path / "secret"), tmp_path, mode=mode)
        assert str(tmp_path) not in str(caught.value)


def test_a_folder_in_pieces_is_taken_when_every_piece_is_there(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "model-1.safetensors"}}')
    assert find(str(folder), tmp_path).kind == "folder"
    index.write_text('{"weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}')
    with pytest.raises(ModelUnavailable, match=r"lacks model-2\.safetensors"):
        find(str(folder), tmp_path)
    index.write_text('{"weight_map": {"w": "../model-1.safetensors"}}')
    with pytest.raises(ModelUnavailable, match="cannot be used"):
        find(str(folder), tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", None, "no config.json"),
        ("config.json", "[]", "not a JSON object"),
        ("config.json", "{", "not a JSON object"),
        ("config.json", "[" * 100_000, "not a JSON object"),
        ("config.json", '{"auto_map": {"AutoConfig": "c.C"}}', "code of its own"),
        ("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["t.T", null]}}', "code of its own"),
        ("adapter_config.json", "{}", "adapter"),
        ("tokenizer.json", None, "no tokenizer"),
        ("model.safetensors", None, "no model.safetensors"),
        ("model.safetensors", "", "cut short or damaged"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1", "cut short or damaged"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_one_line(
    file: str, content: str | None, words: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "model")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(ModelUnavailable, match=words) as caught:
        find(str(folder), tmp_path)
    assert "\n" not in str(caught.value)


def test_pickle_weights_are_never_taken(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match="only pickle weights"):
        find(str(folder), tmp_path)


def test_a_cut_off_safetensors_file_is_seen_at_once(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(ModelUnavailable, match="cut short"):
        find(str(folder), tmp_path)


def test_a_folder_with_a_gguf_says_to_give_the_file(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(ModelUnavailable, match=r"give the file itself, such as tiny\.gguf"):
        find(str(tmp_path), tmp_path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelUnavailable, match=r"not a \.gguf"):
        find(str(tmp_path / "model.bin"), tmp_path)


def test_a_gguf_file_is_taken(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    source = find(str(file), tmp_path)
    assert source == ModelSource("gguf", "tiny", f"Weights from the file {file}, unpacked.", file)


def test_a_broken_symlink_and_a_missing_home_are_plain_errors(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(KvdemoError, match="nothing at"):
        find(str(tmp_path / "dangling"), tmp_path)


def test_finding_a_model_imports_nothing_heavy() -> None:
    code = (
        "import sys; from pathlib import Path; import kvdemo.models.loader, kvdemo.models.source as s;"
        "s.resolve('owner/name', Path('home'), cache=Path('hub'));"
        "print([m for m in ('torch', 'transformers', 'httpx', 'pandas', 'gradio') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
