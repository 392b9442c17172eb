"""The config of a model that is not in memory: its config.json, or what its GGUF says. No weights are read."""

from __future__ import annotations

import json
from typing import Any

from kvdemo.errors import ModelUnavailable
from kvdemo.models.conversion import converted_folder
from kvdemo.models.loader import SAFE, chosen_device, chosen_dtype
from kvdemo.models.source import ModelSource
from kvdemo.settings import Settings

__all__ = ["IgnoredFile", "device_when_loaded", "dtype_when_loaded", "read_config", "read_generation_config"]


class IgnoredFile(Exception):
    """There is a generation_config.json, and transformers goes on as if there were none; the text says why."""


def device_when_loaded(settings: Settings) -> str:
    """The device that these settings would load a model on, on this machine."""
    return chosen_device(settings.device)


def dtype_when_loaded(settings: Settings) -> str:
    """The dtype that these settings would load a model in, on this machine."""
    return str(chosen_dtype(settings.dtype, chosen_device(settings.device))).removeprefix("torch.")


def read_config(source: ModelSource, settings: Settings) -> dict[str, Any]:
    """The config of `source` as a dict; of a hub model that is not here yet only config.json is fetched."""
    if source.path is None:
        return _from_hub(source)
    folder = source.path
    if source.kind in ("gguf", "embedded"):
        converted = converted_folder(source.path, settings.home)
        if converted is None:
            from transformers import AutoConfig

            found = AutoConfig.from_pretrained(source.path.parent, gguf_file=str(source.path.absolute()), **SAFE)
            return dict(found.to_dict())
        folder = converted
    return dict(json.loads((folder / "config.json").read_text("utf-8")))


def read_generation_config(source: ModelSource, settings: Settings) -> dict[str, Any] | None:
    """generation_config.json of `source` as a dict; None when it has none (a GGUF has one once it is unpacked).

    IgnoredFile where from_pretrained ignores the file, ModelUnavailable where it would raise.
    """
    if source.path is None:
        return None
    folder = source.path
    if source.kind in ("gguf", "embedded"):
        converted = converted_folder(source.path, settings.home)
        if converted is None:
            return {}
        folder = converted
    try:
        content = json.loads((folder / "generation_config.json").read_text("utf-8"))
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


def _from_hub(source: ModelSource) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = hf_hub_download(source.hub_id, "config.json")
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise ModelUnavailable(
            f"The config of {source.hub_id} could not be fetched from the hub; check the name and the network, "
            "or give a config.json file."
        ) from error
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (TypeError, ValueError) as error:
        raise ModelUnavailable(f"The config.json of {source.hub_id} is not a JSON object.") from error
