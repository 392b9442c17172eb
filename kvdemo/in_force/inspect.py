"""Which cache will `generate` use, and who decided? Asked of transformers' own code, on a model without weights.

The order it follows: the call, generation_config.json, config.json (only where there is no generation_config.json), the
library's default; some models keep no cache whatever is said. It runs no weights and changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.decision import CacheDecision, Source

__all__ = ["decide", "written_out"]

KeepsCache = Callable[[Any], bool]
"""Does the forward of this model (on meta) leave anything in a cache?"""

LENGTH = 64  # of the cache that is made to see its class; any number would do
COMPILING_DEVICES = ("cuda", "xpu", "neuron", "tpu")  # as GenerationMixin._valid_auto_compile_criteria


def decide(
    model: Any,
    *,
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None,
    call: Mapping[str, Any],
    device: str,
    keeps_cache: KeepsCache,
) -> CacheDecision:
    """The decision for one call of generate.

    model              of the right class, on meta; its generation_config is replaced by what the files give
    config             config.json as written; generation_config: that file as written, None when there is none
    call               keyword arguments of generate
    """
    conflicts: list[str] = []
    settings = {
        "call": call.get("use_cache"),
        "generation_config.json": None if generation_config is None else generation_config.get("use_cache"),
        "config.json": config.get("use_cache"),
    }
    model.generation_config = _generation_config(config, generation_config)
    in_force, rest = _in_force(model, call, conflicts)
    value = bool(in_force.use_cache) if in_force is not None else None
    source = _source(settings, generation_config, call)
    cache = None
    if in_force is not None:
        _note_ignored(settings, generation_config, in_force, call, conflicts)
        if value and not keeps_cache(model):
            value, source = False, "model"
            conflicts.append("This model's own code keeps no cache, whatever the settings say.")
        elif value:
            cache = _cache(model, in_force, rest, device, conflicts)
            value = None if cache is _REFUSED else value
    return CacheDecision(
        value=value,
        source=source,
        cache_implementation=in_force.cache_implementation if in_force is not None else None,
        cache_class=type(cache).__name__ if cache is not None and cache is not _REFUSED else None,
        attention=_attention(model, config),
        compiles=in_force is not None and cache is not _REFUSED and _compiles(cache, in_force, device),
        conflicts=tuple(dict.fromkeys(conflicts)),
        settings=settings,
        has_generation_config=generation_config is not None,
    )


def written_out(config: Mapping[str, Any]) -> dict[str, Any]:
    """What generate takes from config.json where there is no generation_config.json, as that file would say it."""
    written: dict[str, Any] = _generation_config(config, None).to_diff_dict()
    return {key: value for key, value in written.items() if key not in ("transformers_version", "_from_model_config")}


_REFUSED = object()


def _generation_config(config: Mapping[str, Any], generation_config: Mapping[str, Any] | None) -> Any:
    """As from_pretrained makes it: of generation_config.json, and of config.json only where that is missing."""
    from transformers import GenerationConfig

    with tempfile.TemporaryDirectory() as folder:
        if generation_config is not None:
            _write(Path(folder, "generation_config.json"), generation_config, "generation_config")
            try:
                return GenerationConfig.from_pretrained(folder)
            except (ValueError, TypeError, AttributeError) as error:
                raise InvalidRequest(
                    "generation_config.json", f"transformers refuses it: {_sentence(error)}"
                ) from error
        _write(Path(folder, "config.json"), config, "config")
        return GenerationConfig.from_pretrained(folder, config_file_name="config.json", _from_model_config=True)


def _write(path: Path, content: Mapping[str, Any], field: str) -> None:
    try:
        path.write_text(json.dumps(content), encoding="utf-8")
    except (TypeError, ValueError) as error:
        raise InvalidRequest(field, f"is not JSON: {error}") from error


def _in_force(model: Any, call: Mapping[str, Any], conflicts: list[str]) -> tuple[Any, dict[str, Any]]:
    """The generation config of the call, and what of the call is meant for the model; None where generate raises."""
    from transformers import CompileConfig

    passed = dict(call)
    given = passed.pop("cache", None) or passed.pop("past_key_values", None)
    try:
        if isinstance(passed.get("compile_config"), dict):  # the only way to write one in JSON
            passed["compile_config"] = CompileConfig(**passed["compile_config"])
        with _warnings_into(conflicts):
            in_force, rest = model._prepare_generation_config(None, **passed)
            in_force.validate(user_set_attributes=set(passed))
            # as generate checks them, with ids instead of a prompt
            model._validate_model_kwargs({**rest, "attention_mask": None} if rest else {})
    except (ValueError, TypeError, AttributeError) as error:
        conflicts.append(f"generate refuses: {_sentence(error)}")
        return None, {}
    if given is not None and in_force.cache_implementation is not None:
        conflicts.append(
            f"generate refuses: the call passes a cache and cache_implementation={in_force.cache_implementation!r}; give one."
        )
        return None, {}
    if in_force.prefill_chunk_size is not None and in_force.use_cache is False:
        conflicts.append("generate refuses: prefill_chunk_size needs a cache, and use_cache is false.")
        return None, {}
    return in_force, rest


def _source(
    settings: Mapping[str, Any], generation_config: Mapping[str, Any] | None, call: Mapping[str, Any]
) -> Source:
    if "use_cache" in call:  # None counts, too: it takes the place of what the files say, and is no cache
        return "call"
    if settings["generation_config.json"] is not None:
        return "generation_config.json"
    if generation_config is None and settings["config.json"] is not None:
        return "config.json"
    return "library default"


def _note_ignored(
    settings: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None,
    in_force: Any,
    call: Mapping[str, Any],
    conflicts: list[str],
) -> None:
    """Say what stands in a file and has no effect, and what cannot stream."""
    in_config = settings["config.json"]
    if generation_config is not None and in_config is False and in_force.use_cache:
        conflicts.append("config.json says use_cache: false, but generation_config.json exists, so that is not read.")
    if settings["call"] is not None and settings["generation_config.json"] not in (None, settings["call"]):
        conflicts.append("The call overrides use_cache of generation_config.json.")
    if not in_force.use_cache and in_force.cache_implementation is not None:
        conflicts.append(f"cache_implementation={in_force.cache_implementation!r} has no effect: the cache is off.")
    if in_force.cache_implementation == "paged":
        conflicts.append("cache_implementation='paged' switches generate to continuous batching.")


def _cache(model: Any, in_force: Any, rest: dict[str, Any], device: str, conflicts: list[str]) -> Any:
    """The cache that generate would make; None where the model makes its own, _REFUSED where making it raises."""
    from transformers.generation.configuration_utils import GenerationMode

    if str(in_force.cache_implementation).startswith("offloaded") and device not in COMPILING_DEVICES:
        conflicts.append(
            f"generate refuses: cache_implementation={in_force.cache_implementation!r} needs an accelerator, "
            f"and this model runs on {device}."
        )
        return _REFUSED
    if in_force.cache_implementation == "paged":
        return None
    made: dict[str, Any] = {}
    try:
        with _warnings_into(conflicts):
            model._prepare_cache_for_generation(in_force, made, GenerationMode.GREEDY_SEARCH, 1, LENGTH)
    except (ValueError, ImportError, TypeError, KeyError, AssertionError, RuntimeError) as error:
        conflicts.append(f"generate refuses: {_sentence(error)}")
        return _REFUSED
    return made.get("cache")


def _compiles(cache: Any, in_force: Any, device: str) -> bool:
    """As GenerationMixin._valid_auto_compile_criteria, which would ask a model in memory."""
    from transformers import DynamicCache

    if in_force.disable_compile or cache is None:
        return False
    asked = in_force.compile_config is not None and in_force.compile_config._compile_all_devices
    return (device in COMPILING_DEVICES or bool(asked)) and cache.is_compileable and type(cache) is not DynamicCache


def _attention(model: Any, config: Mapping[str, Any]) -> str:
    """The attention code a plain from_pretrained would choose."""
    asked = config.get("attn_implementation") or config.get("_attn_implementation")
    return str(asked or ("sdpa" if getattr(model, "_supports_sdpa", False) else "eager"))


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:300] if text else type(error).__name__


_taking = threading.Lock()  # one logger for the whole process: what is changed of it is put back before the next one


@contextlib.contextmanager
def _warnings_into(conflicts: list[str]) -> Iterator[None]:
    """Take what transformers' generation code warns of in this thread as conflicts, instead of printing it.

    A run in another thread warns at the same time: its warnings go where they always go.
    """
    from transformers.utils import logging as of_transformers

    logger, this_thread = logging.getLogger("transformers.generation"), threading.get_ident()

    class Take(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread != this_thread:
                if logger.parent is not None:
                    logger.parent.callHandlers(record)
                return
            text = " ".join(record.getMessage().split())
            # Flags without effect are told in our own words; what is not about caches is not asked here.
            if ("cache" in text or "compile" in text) and not text.startswith("The following generation flags"):
                conflicts.append(text)

    handler = Take(level=logging.WARNING)
    with _taking:
        # What was warned of once in this process is part of this answer, too.
        of_transformers.warning_once.cache_clear()
        propagate = logger.propagate
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate
