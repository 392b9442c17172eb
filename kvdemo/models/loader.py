"""A ModelSource into memory. Runs in the model's thread, says in words which step it is at, and fails in one line.

Never remote code, never pickle: a folder is checked before transformers sees it, and transformers is told so once more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvdemo.errors import KvdemoError, ModelUnavailable, is_out_of_memory
from kvdemo.facts.model import ModelFacts
from kvdemo.models.continuing import continues
from kvdemo.models.conversion import convert, converted_folder
from kvdemo.models.direction import looks_ahead, no_writer, other_purpose
from kvdemo.models.folder import check_folder
from kvdemo.models.gguf import SPECIAL_TOKENS, check_gguf
from kvdemo.models.hub import download
from kvdemo.models.loaded import ForwardGate, LoadedModel
from kvdemo.models.source import ModelSource
from kvdemo.models.thread import ModelThread
from kvdemo.models.weights import cache_bytes_per_token, weigh
from kvdemo.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    import torch

__all__ = [
    "SAFE",
    "chosen_device",
    "chosen_dtype",
    "forget_ends_that_nobody_named",
    "in_memory",
    "in_one_line",
    "keep_compiled_code",
    "load",
    "unpack_gguf",
]

log = logging.getLogger(__name__)
HEADS = ("lm_head.", "embed_out.")
SAFE = MappingProxyType({"local_files_only": True, "trust_remote_code": False})


def load(
    settings: Settings, source: ModelSource, *, thread: ModelThread, progress: Callable[[str], None]
) -> LoadedModel:
    """Load the model of `source`; to be called in `thread`, which will be its only one.

    `progress` is told each step ("weights, 2 of 3"). Raises ModelUnavailable, whatever went wrong.
    """
    try:
        return _load(settings, source, thread, progress)
    except KvdemoError:
        raise
    except Exception as error:  # whatever a model's files make transformers raise, a person gets one line
        log.error("loading %s failed: %s", source.name, _details(error))
        raise ModelUnavailable(f"{source.name} cannot be loaded: {in_one_line(error)}") from error


def unpack_gguf(gguf: Path, folder: Path, progress: Callable[[str], None]) -> None:
    """Write the weights of `gguf` as float32 safetensors, with config and tokenizer, into the empty `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # `folder`, not the GGUF's own, is searched for companions, so that no stray file beside the GGUF takes part.
    progress("unpacking the GGUF, once (about half a minute)")
    with _bars_as_words():
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            gguf_file=str(gguf.absolute()),
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            **SAFE,
        )
        _refuse_gaps(info, gguf.name)
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=str(gguf.absolute()), **SAFE)
        progress("writing the unpacked weights, once")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        _keep_what_was_said(folder, check_gguf(gguf, gguf.name).special_tokens)


def _keep_what_was_said(folder: Path, special_tokens: Mapping[str, Any], **decided: Any) -> None:
    """Leave only what the GGUF says about generating: transformers adds defaults of its own, which nobody decided."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.pop("use_cache", None)
    ids = {name: special_tokens.get(name) for name in SPECIAL_TOKENS}
    _replace_json(folder / "config.json", {**config, **ids})
    _replace_json(folder / "generation_config.json", {**special_tokens, **decided})


def _mend_earlier(folder: Path, gguf: Path) -> None:
    """The same for a folder that an earlier version unpacked; what a person has put into its file since then stays."""
    with contextlib.suppress(OSError, ValueError):  # a home that cannot be written is as good as before
        content = json.loads((folder / "generation_config.json").read_text("utf-8"))
        if isinstance(content, dict) and content.pop("_from_model_config", False):
            added = {*SPECIAL_TOKENS, "transformers_version", "output_attentions", "output_hidden_states"}
            decided = {key: value for key, value in content.items() if key not in added}
            if decided.get("use_cache") is True:
                del decided["use_cache"]
            _keep_what_was_said(folder, check_gguf(gguf, gguf.name).special_tokens, **decided)


def _replace_json(path: Path, content: Mapping[str, Any]) -> None:
    """Whoever reads it meanwhile sees the old file or the new one."""
    whole = path.with_name(f"{path.name}.{os.getpid()}")
    whole.write_text(json.dumps(content, indent=2), "utf-8")
    os.replace(whole, path)


def keep_compiled_code(home: Path) -> None:
    """What torch.compile makes is kept in `home`, so that a later start pays for little of it; an operator's own place
    (TORCHINDUCTOR_CACHE_DIR) stands. Where `home` cannot be written, torch keeps it in a temporary folder."""
    folder = home / "compiled"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


def _load(settings: Settings, source: ModelSource, thread: ModelThread, progress: Callable[[str], None]) -> LoadedModel:
    to_convert = source.kind in ("gguf", "embedded") and converted_folder(_path(source), settings.home) is None
    to_fetch = source.path is None
    num_steps = 4 if to_convert or to_fetch else 3

    def step(number: int) -> Callable[[str], None]:
        return lambda words: progress(f"{words}, {number} of {num_steps}")

    step(1)("importing torch")
    keep_compiled_code(settings.home)
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    device = chosen_device(settings.device)
    dtype = chosen_dtype(settings.dtype, device)
    folder = _folder(source, settings.home, step(2))
    _check_generation_config(folder, source.name)
    say = step(num_steps - 1)
    say("weights")
    config = AutoConfig.from_pretrained(folder, **SAFE)
    forget_ends_that_nobody_named(config, json.loads((folder / "config.json").read_text("utf-8")))
    _refuse(source.name, other_purpose(config.to_dict(), encoder_decoder=bool(type(config).is_encoder_decoder)))
    tokenizer = AutoTokenizer.from_pretrained(folder, **SAFE)
    with _bars_as_words(say, "weights"):
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            device_map=None if device == "cpu" else {"": device},
            output_loading_info=True,
            **SAFE,
        )
    _refuse_gaps(info, source.name)
    model.eval()
    step(num_steps)("first token")
    _refuse(source.name, looks_ahead(model))
    revision = folder.name if source.kind == "hub" else None
    return in_memory(model, tokenizer, source, thread=thread, revision=revision)


def in_memory(
    model: Any, tokenizer: Any, source: ModelSource, *, thread: ModelThread, revision: str | None = None
) -> LoadedModel:
    """The model as the rest of the program knows it; its first tokens are computed here, in its thread."""
    text_config = model.config.get_text_config()
    num_parameters, weight_bytes = weigh(model)
    facts = ModelFacts(
        name=source.name,
        source=source.sentence,
        model_type=model.config.model_type,
        num_parameters=num_parameters,
        weight_bytes=weight_bytes,
        dtype=str(model.dtype).removeprefix("torch."),
        device=model.device.type,
        context_limit=getattr(text_config, "max_position_embeddings", None),
        cache_bytes_per_token=cache_bytes_per_token(model),
        vocab_size=text_config.vocab_size,
        has_chat_template=bool(tokenizer.chat_template),
        attention=getattr(model.config, "_attn_implementation", None) or "none",
        revision=revision,
        hub_id=DEFAULT_MODEL if source.kind == "embedded" else source.hub_id,
    )
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        facts=facts,
        thread=thread,
        gate=ForwardGate(model),
        continues=continues(model),
    )


def forget_ends_that_nobody_named(config: Any, written: dict[str, Any]) -> None:
    """A config class has an end token by default, which in this model's vocabulary may be any word."""
    if "eos_token_id" not in written:
        config.eos_token_id = None
    if not any(isinstance(part, dict) and "eos_token_id" in part for part in (written, *written.values())):
        config.get_text_config(decoder=True).eos_token_id = None


def _path(source: ModelSource) -> Path:
    assert source.path is not None
    return source.path


def _check_generation_config(folder: Path, name: str) -> None:
    """from_pretrained reads generation_config.json last, and its error then says nothing of the file."""
    from transformers import GenerationConfig

    try:
        GenerationConfig.from_pretrained(folder, **SAFE)
    except OSError:  # none, or one that from_pretrained ignores
        return
    except (ValueError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())[:300]
        raise ModelUnavailable(
            f"{name} cannot be loaded: transformers refuses its generation_config.json: {why} Mend or remove that file."
        ) from error


def _folder(source: ModelSource, home: Path, progress: Callable[[str], None]) -> Path:
    """A folder of safetensors for any kind of source, checked."""
    if source.path is None:
        assert source.hub_id is not None
        try:
            return download(source.hub_id, progress)
        except ModelUnavailable as error:
            raise ModelUnavailable(f"{error} {source.otherwise}".rstrip()) from error
    if source.kind in ("gguf", "embedded"):
        folder = convert(source.path, home, unpack=unpack_gguf, progress=progress)
        _mend_earlier(folder, source.path)
        return folder
    check_folder(source.path, source.name)
    return source.path


def chosen_device(wanted: str) -> str:
    """cuda, mps or cpu: the best there is, or the one asked for."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(device for device, usable in there.items() if usable)
    if not there[wanted]:
        usable = " or ".join(device for device, is_there in there.items() if is_there)
        raise ModelUnavailable(
            f"KVDEMO_DEVICE asks for {wanted}, which torch does not find here; use auto or {usable}."
        )
    return wanted


def chosen_dtype(wanted: str, device: str) -> torch.dtype:
    """float32 on a CPU, where bfloat16 is slower, and bfloat16 on an accelerator, unless one was asked for."""
    import torch

    if wanted == "auto":
        wanted = "float32" if device == "cpu" else "bfloat16"
    dtype: torch.dtype = getattr(torch, wanted)
    return dtype


def _refuse(name: str, reason: str | None) -> None:
    if reason is not None:
        raise ModelUnavailable(f"{name} {reason}")


def _refuse_gaps(info: dict[str, Any], name: str) -> None:
    """transformers fills weights it does not find with random numbers and only warns."""
    missing = sorted(info["missing_keys"])
    if missing and all(key.startswith(HEADS) for key in missing):
        # The files are whole: they are those of a model that turns text into vectors.
        _refuse(name, no_writer(f"its files hold nothing that chooses the next token ({missing[0]})"))
    if missing:
        raise ModelUnavailable(
            f"{name} lacks {len(missing)} of the weights that its config calls for ({missing[0]}); get it again."
        )


@contextlib.contextmanager
def _bars_as_words(progress: Callable[[str], None] = lambda _: None, what: str = "") -> Iterator[None]:
    """Report transformers' own progress bars in words, in about ten pieces, instead of drawing them on the terminal."""
    from transformers.utils import logging as transformers_logging

    class Words(transformers_logging.EmptyTqdm):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            items = list(self._iterator)
            for done, item in enumerate(items):
                if done and done * 10 // len(items) > (done - 1) * 10 // len(items):
                    progress(f"{what} ({done} of {len(items)} tensors)")
                yield item

    previous = transformers_logging.set_tqdm_hook(lambda _factory, args, kwargs: Words(*args, **kwargs))
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(previous)


def _details(error: Exception) -> str:
    """The traceback as one line for the log, without the hub's token should a library have quoted it."""
    from huggingface_hub import get_token

    details = "".join(traceback.format_exception(error)).encode("unicode_escape").decode("ascii")
    token = get_token()
    return details.replace(token, "(token)") if token else details


def in_one_line(error: Exception) -> str:
    """What happened and what to do, without paths, class names or other words of the libraries, save a package's name."""
    text = str(error)
    if is_out_of_memory(error):
        return "there is not enough memory; use a smaller model, or set KVDEMO_DTYPE to bfloat16."
    if isinstance(error, ImportError):
        package = f" ({error.name})" if error.name else ""
        return f"a package it needs is not installed{package}; the log names it."
    if "does not recognize this architecture" in text or "is not supported yet" in text:
        return "the installed transformers does not know its architecture; use another model, or a newer transformers."
    if "Unrecognized configuration class" in text or "Unrecognized model" in text:
        return "it is not a model that continues text; use a causal language model."
    if isinstance(error, OSError | ValueError | RuntimeError | LookupError):
        return "its files do not fit together or are damaged; get it again. The log has the details."
    return "of an unexpected error; the log has the details."
