"""The config of a model that is not in memory: its config.json, or what its GGUF says. No weights are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdemo.errors import ModelUnavailable
from kvdemo.models.conversion import converted_folder
from kvdemo.models.gguf import check_gguf
from kvdemo.models.hub import ANSWER_TIMEOUT_S, asking_for, patiently
from kvdemo.models.loader import SAFE, chosen_device, chosen_dtype, in_one_line
from kvdemo.models.source import ModelSource
from kvdemo.models.tiny_window import tiny_window_config
from kvdemo.settings import Settings

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["IgnoredFile", "device_when_loaded", "dtype_when_loaded", "read_config", "read_generation_config"]


class IgnoredFile(Exception):
    """There is a generation_config.json, and transformers goes on as if there were none; the text says why."""


def device_when_loaded(settings: Settings) -> str:
    """The device that these settings would load a model on, on this machine."""
    return chosen_device(settings.device)


def dtype_when_loaded(settings: Settings) -> str:
    """The dtype that these settings would load a model in, on this machine."""
    return str(chosen_dtype(settings.dtype, chosen_device(settings.device))).removeprefix("torch.")


def read_config(source: ModelSource, settings: Settings, *, api: HfApi | None = None) -> dict[str, Any]:
    """The config of `source` as a dict; of a hub model that is not here yet only config.json is fetched."""
    if source.kind == "built":
        return tiny_window_config()
    if source.path is None:
        fetched = _fetched(source, "config.json", api)
        if fetched is None:
            raise ModelUnavailable(f"{source.hub_id} has no config.json, so it is not a model of transformers.")
        return _object(fetched, str(source.hub_id))
    folder = source.path
    if source.kind in ("gguf", "embedded"):
        converted = converted_folder(source.path, settings.home)
        if converted is None:
            return _of_gguf(source)
        folder = converted
    return _object(folder / "config.json", source.name)


def read_generation_config(
    source: ModelSource, settings: Settings, *, api: HfApi | None = None
) -> dict[str, Any] | None:
    """generation_config.json of `source` as a dict; None when it has none. For a GGUF: what it says in its place.

    Of a hub model that is not here yet this file alone is fetched. IgnoredFile where from_pretrained ignores the file,
    ModelUnavailable where it would raise.
    """
    if source.kind == "built":
        return None
    if source.path is None:
        fetched = _fetched(source, "generation_config.json", api)
        return None if fetched is None else _generation_object(fetched)
    if source.kind not in ("gguf", "embedded"):
        return _generation_object(source.path / "generation_config.json")
    converted = converted_folder(source.path, settings.home)
    if converted is None:
        return dict(check_gguf(source.path, source.name).special_tokens)
    content = _generation_object(converted / "generation_config.json")
    if content is None:
        return None
    if content.pop("_from_model_config", False) and content.get("use_cache") is True:
        del content["use_cache"]  # an earlier version's: a default of the library that neither GGUF nor person named
    return content


def _of_gguf(source: ModelSource) -> dict[str, Any]:
    from transformers import AutoConfig

    assert source.path is not None
    try:
        found = AutoConfig.from_pretrained(source.path.parent, gguf_file=str(source.path.absolute()), **SAFE)
    except Exception as error:  # whatever a file makes transformers raise, a person gets the line that loading says
        raise ModelUnavailable(f"{source.name} cannot be loaded: {in_one_line(error)}") from error
    return dict(found.to_dict())


def _fetched(source: ModelSource, name: str, api: HfApi | None) -> Path | None:
    """A small file of a hub model; None where the model has no such file."""
    from huggingface_hub import HfApi, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    assert source.hub_id is not None
    if isinstance(cached := try_to_load_from_cache(source.hub_id, name), str):
        return Path(cached)
    api = api or HfApi()
    with asking_for(source.hub_id):
        try:
            # One question first: a download asks a hub that does not answer seven times, half a minute in all.
            with patiently(source.hub_id):
                api.get_hf_file_metadata(
                    url=hf_hub_url(source.hub_id, name, endpoint=api.endpoint), timeout=ANSWER_TIMEOUT_S
                )
            return Path(api.hf_hub_download(source.hub_id, name))
        except LocalEntryNotFoundError:  # neither here nor, since the hub was not reached, known to be missing
            raise
        except EntryNotFoundError:
            return None


def _generation_object(path: Path) -> dict[str, Any] | None:
    """The content of a generation_config.json as from_pretrained takes it; None where there is none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IgnoredFile(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IgnoredFile("it is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise IgnoredFile(f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    if not isinstance(content, dict):
        raise ModelUnavailable("generation_config.json is not a JSON object; mend or remove it.")
    return content


def _object(path: Path, shown: str) -> dict[str, Any]:
    """A JSON object from a file; ModelUnavailable, one line, for anything else."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnavailable(f"{path.name} of {shown} cannot be read as JSON; get it again or mend it.") from error
    if not isinstance(content, dict):
        raise ModelUnavailable(f"{path.name} of {shown} is not a JSON object.")
    return content
