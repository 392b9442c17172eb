"""A tokenizer alone: a second or less, no weights. Never remote code."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvdemo.errors import KvdemoError, ModelUnavailable
from kvdemo.facts.model import NOT_LOADED, ModelFacts
from kvdemo.models.conversion import converted_folder
from kvdemo.models.folder import read_json
from kvdemo.models.hub import download
from kvdemo.models.loader import SAFE, in_one_line
from kvdemo.models.source import ModelSource
from kvdemo.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["LoadedTokenizer", "load_tokenizer"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """facts: without what only weights tell; encoding: held while it encodes."""

    tokenizer: PreTrainedTokenizerBase
    facts: ModelFacts
    encoding: threading.Lock = field(default_factory=threading.Lock)


def load_tokenizer(
    source: ModelSource, home: Path, progress: Callable[[str], None] = lambda _: None
) -> LoadedTokenizer:
    """The tokenizer of `source`; ModelUnavailable, one line, whatever went wrong."""
    try:
        return _load(source, home, progress)
    except KvdemoError:
        raise
    except Exception as error:  # whatever a tokenizer's files make transformers raise, a person gets one line
        log.error("loading the tokenizer of %s failed: %s", source.name, type(error).__name__)
        raise ModelUnavailable(f"The tokenizer of {source.name} cannot be loaded: {in_one_line(error)}") from error


def _load(source: ModelSource, home: Path, progress: Callable[[str], None]) -> LoadedTokenizer:
    from transformers import AutoTokenizer

    if source.vocabulary is not None:
        found = _load(source.vocabulary, home, progress)
        return replace(found, facts=replace(found.facts, name=source.name, revision=None, hub_id=None))
    folder = source.path
    if folder is None:
        assert source.hub_id is not None
        folder = download(source.hub_id, progress, weights=False)
    gguf = source.kind in ("gguf", "embedded")
    if gguf:
        converted = converted_folder(folder, home)
        if converted is None:
            # An empty folder is searched for companions, so that no stray file beside the GGUF takes part.
            with tempfile.TemporaryDirectory(prefix="kvdemo-") as empty:
                tokenizer = AutoTokenizer.from_pretrained(empty, gguf_file=str(folder.absolute()), **SAFE)
            return LoadedTokenizer(tokenizer, _facts(source, tokenizer, {}, None))
        folder = converted
    tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE)
    config = read_json(folder / "config.json")
    revision = folder.name if source.kind == "hub" else None
    return LoadedTokenizer(tokenizer, _facts(source, tokenizer, config if isinstance(config, dict) else {}, revision))


def _facts(source: ModelSource, tokenizer: Any, config: dict[str, Any], revision: str | None) -> ModelFacts:
    limit = config.get("max_position_embeddings")
    return ModelFacts(
        name=source.name,
        source=f"{source.sentence.split(', unpacked')[0].rstrip('.')}.".replace("Weights", "Tokenizer alone,", 1),
        model_type=str(config.get("model_type") or ""),
        num_parameters=None,
        weight_bytes=None,
        dtype=NOT_LOADED,
        device=NOT_LOADED,
        context_limit=limit if type(limit) is int else None,
        cache_bytes_per_token=None,
        vocab_size=len(tokenizer),
        has_chat_template=bool(tokenizer.chat_template),
        attention=NOT_LOADED,
        revision=revision,
        hub_id=DEFAULT_MODEL if source.kind == "embedded" else source.hub_id,
    )
