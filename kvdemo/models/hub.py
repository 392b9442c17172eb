"""Models of the Hugging Face hub: the copy in the local cache, found without importing or asking anything, and the download.

A token comes from the environment through huggingface_hub and is never read, kept or shown here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdemo.errors import ModelUnavailable
from kvdemo.models.direction import other_purpose
from kvdemo.models.folder import check_folder

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["cached_snapshot", "download", "hub_cache", "network_is_off"]

ANSWER_TIMEOUT_S = 10.0
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


def download(hub_id: str, progress: Callable[[str], None], *, api: HfApi | None = None) -> Path:
    """Fetch what is needed to run `hub_id` and return the folder of its snapshot.

    One question first, so that a wrong name, a private model or a missing network is known at once and nothing of the
    wrong kind is fetched. Raises ModelUnavailable.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    api = api or HfApi()
    try:
        info = api.model_info(hub_id, timeout=ANSWER_TIMEOUT_S, files_metadata=True)
        files = _wanted_files(hub_id, info)
        if reason := other_purpose(getattr(info, "config", None) or {}):
            raise ModelUnavailable(f"{hub_id} {reason}")
        progress(f"downloading {sum(files.values()) / 1e6:,.0f} MB")
        folder = Path(api.snapshot_download(hub_id, revision=info.sha, allow_patterns=list(files)))
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
    except (HTTPError, OSError):  # the client's own, of whichever HTTP library this version uses
        raise ModelUnavailable(_unreachable(hub_id, "the hub cannot be reached")) from None
    check_folder(folder, hub_id)
    return folder


def _unreachable(hub_id: str, why: str) -> str:
    return f"{hub_id} is not in the local hub cache and {why}; check the network, or give a local folder or .gguf file."


def _wanted_files(hub_id: str, info: Any) -> dict[str, int]:
    """Names and sizes (bytes) of the files to fetch: the safetensors weights and the small files at the top."""
    sizes = {file.rfilename: file.size or 0 for file in info.siblings if "/" not in file.rfilename}
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
