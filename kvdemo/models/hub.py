"""Models of the Hugging Face hub: the copy in the local cache, found without importing or asking anything, and the download.

A token comes from the environment through huggingface_hub and is never read, kept or shown here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdemo.errors import KvdemoError, ModelUnavailable
from kvdemo.models.direction import other_purpose
from kvdemo.models.folder import check_folder
from kvdemo.surroundings import client_problem

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["ANSWER_TIMEOUT_S", "asking_for", "cached_snapshot", "download", "hub_cache", "network_is_off", "patiently"]

log = logging.getLogger(__name__)
ANSWER_TIMEOUT_S = 10.0
PATIENCE_S = 2.0
ENDPOINT = re.compile(r"https?://[^\s/?#:\[\]]+(:[0-9]{1,5})?(/\S*)?")
SMALL_FILES = (".json", ".model", ".txt", ".jinja")


def hub_cache() -> Path:
    """Where huggingface_hub keeps downloads, as HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME say."""
    from huggingface_hub import constants  # light: neither the client nor torch

    return Path(constants.HF_HUB_CACHE)


def network_is_off() -> bool:
    """Has the operator forbidden the hub (HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE)?"""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def cached_snapshot(hub_id: str, cache: Path) -> Path | None:
    """The folder of the newest cached snapshot of the main branch, complete or not; its name is the commit."""
    repository = cache / ("models--" + hub_id.replace("/", "--"))
    try:
        commit = (repository / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if commit.isalnum() and snapshot.is_dir() else None


def download(hub_id: str, progress: Callable[[str], None], *, api: HfApi | None = None, weights: bool = True) -> Path:
    """Fetch what is needed to run `hub_id` and return the folder of its snapshot. weights: False for the tokenizer alone.

    One question first, so that a wrong name, a private model or a missing network is known at once and nothing of the
    wrong kind is fetched. Raises ModelUnavailable.
    """
    from huggingface_hub import HfApi

    with asking_for(hub_id):
        api = api or HfApi()
        with patiently(hub_id):
            info = api.model_info(hub_id, timeout=ANSWER_TIMEOUT_S, files_metadata=True)
        files = _wanted_files(hub_id, info) if weights else _small_files(info)
        if reason := other_purpose(getattr(info, "config", None) or {}):
            raise ModelUnavailable(f"{hub_id} {reason}")
        progress(f"downloading {sum(files.values()) / 1e6:,.0f} MB")
        folder = Path(api.snapshot_download(hub_id, revision=info.sha, allow_patterns=list(files)))
    check_folder(folder, hub_id, weights=weights)
    return folder


@contextlib.contextmanager
def patiently(hub_id: str, after_s: float = PATIENCE_S) -> Iterator[None]:
    """Around one question to the hub: whoever waits longer than a moment for its answer is told what is waited for."""
    said = threading.Timer(after_s, log.warning, ("Waiting for the hub to answer about %s", hub_id))
    said.daemon = True
    said.start()
    try:
        yield
    finally:
        said.cancel()


@contextlib.contextmanager
def asking_for(hub_id: str) -> Iterator[None]:
    """Whatever keeps the hub from giving `hub_id` becomes a ModelUnavailable in one line, also what the client reads from
    the environment: proxies, certificates, endpoint and token."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    if problem := client_problem(os.environ):
        raise ModelUnavailable(_unreachable(hub_id, problem))
    if not ENDPOINT.fullmatch(constants.ENDPOINT):
        raise ModelUnavailable(_unreachable(hub_id, "HF_ENDPOINT is not an address, such as https://hub.example"))
    # The client tells of each of its five tries; what came of them is told here, once.
    logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)
    try:
        yield
    except KvdemoError:
        raise
    except GatedRepoError:
        raise ModelUnavailable(
            f"{hub_id} is only given to people who accepted its terms; accept them on its page and set HF_TOKEN."
        ) from None
    except RepositoryNotFoundError:
        raise ModelUnavailable(
            f"The hub has no model {hub_id}, or it is private; check the name, or set HF_TOKEN. For a folder give its path."
        ) from None
    except OfflineModeIsEnabled:
        raise ModelUnavailable(_unreachable(hub_id, "the network is switched off (HF_HUB_OFFLINE)")) from None
    except Exception as error:  # whichever HTTP library the client uses; the message may quote the token
        log.info("asking the hub for %s failed: %s", hub_id, type(error).__name__)
        why = "the hub cannot be reached"
        if isinstance(error, UnicodeEncodeError) or type(error).__name__ == "LocalProtocolError":
            why = "the token (HF_TOKEN) holds characters that no token has"
        elif isinstance(error, OSError) and not isinstance(error, HTTPError) and error.filename is not None:
            why = f"nothing can be written there, see HF_HOME ({error.strerror})"
        raise ModelUnavailable(_unreachable(hub_id, why)) from None


def _unreachable(hub_id: str, why: str) -> str:
    return f"{hub_id} is not in the local hub cache and {why}; check the network, or give a local folder or .gguf file."


def _wanted_files(hub_id: str, info: Any) -> dict[str, int]:
    """Names and sizes (bytes) of the files to fetch: the safetensors weights and the small files at the top."""
    sizes = _sizes(info)
    weights = [name for name in sizes if name.startswith("model") and name.endswith(".safetensors")]
    if not weights:
        raise ModelUnavailable(
            f"{hub_id} has no safetensors weights; pickle weights can run code and are never loaded."
        )
    if "config.json" not in sizes:
        raise ModelUnavailable(f"{hub_id} has no config.json, so it is not a model of transformers.")
    if "model.safetensors" in weights:  # a repository may hold the same weights again in pieces
        weights = ["model.safetensors"]
    return {name: size for name, size in sizes.items() if name in weights or name.endswith(SMALL_FILES)}


def _small_files(info: Any) -> dict[str, int]:
    """The same without the weights."""
    return {name: size for name, size in _sizes(info).items() if name.endswith(SMALL_FILES)}


def _sizes(info: Any) -> dict[str, int]:
    return {file.rfilename: file.size or 0 for file in info.siblings if "/" not in file.rfilename}
