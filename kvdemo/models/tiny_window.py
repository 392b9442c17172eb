"""tiny-window: six small layers with random weights, four of which see only the newest positions. Its text means nothing.

With it "keeps only recent tokens" can be seen where the models with windows are too large to load. Its shape is the entry of
that name among the known models; its tokenizer is the default model's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import (
    chosen_device,
    chosen_dtype,
    forget_ends_that_nobody_named,
    in_memory,
    keep_compiled_code,
)
from kvdemo.models.source import ModelSource
from kvdemo.models.thread import ModelThread
from kvdemo.models.tokenizer import load_tokenizer
from kvdemo.settings import TINY_WINDOW, Settings
from kvdemo.shipped import assets_folder

__all__ = ["load_tiny_window", "tiny_window_config", "tiny_window_model"]

SEED = 0


def tiny_window_config() -> dict[str, Any]:
    """Its config, as a config.json would say it."""
    entry = json.loads((assets_folder() / "models" / f"{TINY_WINDOW}.json").read_text("utf-8"))
    config: dict[str, Any] = entry["config"]
    return config


def tiny_window_model() -> Any:
    """The model, float32 on the CPU; the same weights every time, and the random numbers of others stay theirs."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    written = tiny_window_config()
    config = AutoConfig.for_model(**written)
    forget_ends_that_nobody_named(config, written)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def load_tiny_window(
    settings: Settings, source: ModelSource, *, thread: ModelThread, progress: Callable[[str], None]
) -> LoadedModel:
    """Build it with the tokenizer of `source.vocabulary`; to be called in `thread`, like load."""
    progress("importing torch, 1 of 3")
    keep_compiled_code(settings.home)
    device = chosen_device(settings.device)
    dtype = chosen_dtype(settings.dtype, device)
    progress("weights, 2 of 3")
    tokenizer = load_tokenizer(source, settings.home, progress).tokenizer
    model = tiny_window_model().to(device=device, dtype=dtype)
    progress("first token, 3 of 3")
    return in_memory(model, tokenizer, source, thread=thread)
