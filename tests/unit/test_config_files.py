"""What a model's files say about generating: read where they are, fetched where they are not, and nothing of our own in them."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kvdemo.backend import Backend
from kvdemo.errors import ModelUnavailable
from kvdemo.facts.decision import InspectSpec
from kvdemo.in_force.asked import Asked, decision
from kvdemo.models.config import read_config, read_generation_config
from kvdemo.models.conversion import convert, converted_folder
from kvdemo.models.hub import patiently
from kvdemo.models.loader import load, unpack_gguf
from kvdemo.models.source import ModelSource, resolve
from kvdemo.models.thread import ModelThread
from kvdemo.settings import Settings
from kvdemo.surroundings import direct_to_this_machine
from tests.model_files import write_tiny_gguf
from tests.served import wait_until
from tests.tiny import tiny_model
from tests.unit.test_loader import FakeHub

ON_THE_HUB = ModelSource("hub", "name", "", None, "owner/name")


def write_files(folder: Path, generation_config: dict[str, Any] | None, **config: Any) -> Path:
    """The two small files of a model, as published."""
    folder.mkdir(exist_ok=True)
    made = {**tiny_model().config.to_dict(), **config}
    (folder / "config.json").write_text(json.dumps(made))
    if generation_config is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation_config))
    return folder


@pytest.mark.parametrize(
    ("generation_config", "source", "value"),
    [
        (None, "config.json", False),
        ({"eos_token_id": 2}, "library default", True),
        ({"use_cache": False}, "generation_config.json", False),
    ],
)
def test_of_a_hub_model_that_is_not_here_both_files_are_asked_for(
    tmp_path: Path, generation_config: dict[str, Any] | None, source: str, value: bool
) -> None:
    hub: Any = FakeHub(write_files(tmp_path / "hub", generation_config, use_cache=False), [])
    settings = Settings(home=tmp_path)
    asked = Asked({}, read_config(ON_THE_HUB, settings, api=hub), read_generation_config(ON_THE_HUB, settings, api=hub))
    found = decision(asked, settings)
    assert hub.fetched == ["config.json", "generation_config.json"]
    assert (found.source, found.value) == (source, value)
    assert found.has_generation_config is (generation_config is not None)


def test_a_hub_that_cannot_be_reached_is_not_told_as_a_file_that_is_missing(tmp_path: Path) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    hub: Any = FakeHub(tmp_path, [], LocalEntryNotFoundError("no connection"))
    with pytest.raises(
        ModelUnavailable, match=r"owner/name is not in the local hub cache and the hub cannot be reached"
    ):
        read_generation_config(ON_THE_HUB, Settings(home=tmp_path), api=hub)


def test_a_config_on_the_hub_that_is_no_json_object_is_one_line_by_name(tmp_path: Path) -> None:
    hub: Any = FakeHub(tmp_path, [])
    for content in ("{", "[1]", "\xff" * 3):
        (tmp_path / "config.json").write_text(content, "latin-1")
        with pytest.raises(ModelUnavailable, match=r"^config\.json of owner/name .*JSON"):
            read_config(ON_THE_HUB, Settings(home=tmp_path), api=hub)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def home(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    convert(gguf, folder, unpack=unpack_gguf, progress=print)
    return folder


def test_an_unpacked_gguf_says_about_generating_what_the_gguf_says(gguf: Path, home: Path, tmp_path: Path) -> None:
    folder = converted_folder(gguf, home)
    assert folder is not None
    said = {"eos_token_id": 256, "pad_token_id": 257}
    assert json.loads((folder / "generation_config.json").read_text()) == said
    config = json.loads((folder / "config.json").read_text())
    assert "use_cache" not in config
    assert (config["eos_token_id"], config["bos_token_id"]) == (256, None)
    source = resolve(str(gguf), home)
    for place in (home, tmp_path / "not unpacked yet"):
        assert read_generation_config(source, Settings(home=place)) == said


@pytest.mark.parametrize("unpacked", [True, False])
def test_of_a_gguf_no_file_is_named_that_nobody_wrote(gguf: Path, home: Path, tmp_path: Path, unpacked: bool) -> None:
    backend = Backend(Settings(home=home if unpacked else tmp_path, model=str(gguf)))
    assert backend.inspect(InspectSpec()).source == "library default"
    backend.close()


@pytest.mark.parametrize(("said", "kept"), [(True, None), (False, False)])
def test_an_earlier_unpacking_is_read_without_what_the_library_added(
    gguf: Path, tmp_path: Path, said: bool, kept: bool | None
) -> None:
    folder = convert(gguf, tmp_path, unpack=unpack_gguf, progress=print)
    earlier = {"_from_model_config": True, "eos_token_id": 256, "use_cache": said}
    (folder / "generation_config.json").write_text(json.dumps(earlier))
    found = read_generation_config(resolve(str(gguf), tmp_path), Settings(home=tmp_path))
    assert found is not None
    assert found.get("use_cache") is kept
    assert found["eos_token_id"] == 256


def test_loading_mends_an_earlier_unpacking_and_keeps_what_a_person_put_into_it(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "turns.gguf", eot_token_id=10)
    folder = convert(file, tmp_path, unpack=unpack_gguf, progress=print)
    weights = (folder / "model.safetensors").stat().st_mtime_ns
    library = {"output_attentions": False, "output_hidden_states": False, "transformers_version": "5.24.0"}
    ids = {"bos_token_id": 1, "eos_token_id": 256, "pad_token_id": 257}
    for earlier, kept in (({"use_cache": True}, {}), ({"use_cache": False, "max_cache_len": 64},) * 2):
        made = {"_from_model_config": True, **library, **ids, **earlier}
        (folder / "generation_config.json").write_text(json.dumps(made))
        thread = ModelThread()
        settings, source = Settings(home=tmp_path, device="cpu"), resolve(str(file), tmp_path)
        loaded = load(settings, source, thread=thread, progress=print)
        thread.close()
        said = json.loads((folder / "generation_config.json").read_text())
        assert said == {"eos_token_id": [10, 256], "pad_token_id": 257, **kept}
        assert loaded.model.generation_config.eos_token_id == [10, 256]
    assert (folder / "model.safetensors").stat().st_mtime_ns == weights


def test_all_tokens_with_which_a_gguf_ends_a_turn_are_kept(tmp_path: Path) -> None:
    from kvdemo.models.gguf import read_header

    file = write_tiny_gguf(tmp_path / "turns.gguf", eot_token_id=10)
    assert read_header(file).special_tokens == {"eos_token_id": [10, 256], "pad_token_id": 257}


class Broken(BaseHTTPRequestHandler):
    """A hub that is there and does not work; it remembers how often it was asked."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        self.send_response(503)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        pass


def test_a_hub_that_does_not_work_is_asked_once_and_not_waited_for(tmp_path: Path) -> None:
    from huggingface_hub import HfApi

    with HTTPServer(("127.0.0.1", 0), Broken) as server, direct_to_this_machine():
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = HfApi(endpoint=f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ModelUnavailable, match="the hub cannot be reached"):
            read_config(ON_THE_HUB, Settings(home=tmp_path), api=hub)
        server.shutdown()
    assert Broken.asked == ["/owner/name/resolve/main/config.json"]


def test_who_waits_for_the_hub_is_told_so_and_who_does_not_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with patiently("owner/name", after_s=60):
        pass
    assert caplog.messages == []
    with patiently("owner/name", after_s=0):
        wait_until(lambda: caplog.messages, "it is said")
    assert caplog.messages == ["Waiting for the hub to answer about owner/name"]
