"""Is a folder a model that may be loaded? Judged by its small files and the headers of its weights, in milliseconds.

Remote code (auto_map) and pickle are refused. Knows nothing of torch, of the hub, or of what the config means.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from kvdemo.errors import ModelUnavailable

__all__ = ["check_folder", "missing_part", "read_json", "refusal"]

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
NO_TOKENIZER = "has no tokenizer (tokenizer.json); save the tokenizer into the same folder."
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def check_folder(folder: Path, shown: str, *, weights: bool = True) -> None:
    """Raise ModelUnavailable, one line about the folder that people know as `shown`, unless it can be loaded safely.

    weights: False where the tokenizer alone is wanted
    """
    problem = refusal(folder) or missing_part(folder, weights=weights)
    if problem is not None:
        raise ModelUnavailable(f"{shown} {problem}")


def refusal(folder: Path) -> str | None:
    """Why this folder must not be loaded although it may be complete; None when nothing speaks against it."""
    for name in ("config.json", "tokenizer_config.json"):
        content = read_json(folder / name)
        if isinstance(content, dict) and content.get("auto_map"):
            return (
                f"asks to run code of its own (auto_map in {name}), which is never done here; use a model without it."
            )
    if (folder / "adapter_config.json").is_file():
        return "is an adapter, not a whole model; merge it into its base model and give the merged folder."
    return None


def missing_part(folder: Path, *, weights: bool = True) -> str | None:
    """What keeps this folder from being a complete model; None when config, tokenizer and weights are all there.

    weights: False where the tokenizer alone is wanted
    """
    if not weights:
        return None if _has_tokenizer(folder) else NO_TOKENIZER
    if not (folder / "config.json").is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        if ggufs:
            return f"has no config.json; to use a GGUF in it, give the file itself, such as {ggufs[0].name}."
        return "has no config.json, so it is not a model folder; give one written by save_pretrained, or a .gguf file."
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        return "has a config.json that is not a JSON object; get the model again."
    if not _has_tokenizer(folder):
        return NO_TOKENIZER
    files = _weight_files(folder)
    if isinstance(files, str):
        return files
    for file in files:
        if not file.is_file():
            return f"lacks {file.name}, which its index names; get the model again."
        if not _is_whole_safetensors(file):
            return f"has weights that are cut short or damaged ({file.name}); get the model again."
    return None


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def _weight_files(folder: Path) -> list[Path] | str:
    """The safetensors files that make up the weights, or a sentence saying why there are none."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        index = read_json(folder / WEIGHTS_INDEX)
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict) or not names or not all(_is_plain_name(name) for name in names.values()):
            return f"has a {WEIGHTS_INDEX} that cannot be used; get the model again."
        return [folder / name for name in sorted(set(names.values()))]
    pickles = sorted(file.name for file in folder.iterdir() if file.suffix in PICKLE_SUFFIXES)
    if pickles:
        return f"holds only pickle weights ({pickles[0]}), which can run code; convert them to safetensors."
    return f"has no {WEIGHTS}; get the model again."


def _is_plain_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")


def _is_whole_safetensors(file: Path) -> bool:
    """Does the file end exactly where its header says the last tensor ends?"""
    try:
        with safe_open(file, "numpy"):
            return True
    except SafetensorError:
        return False


def read_json(file: Path) -> Any:
    """The content of a JSON file; None when it is not there or not JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
