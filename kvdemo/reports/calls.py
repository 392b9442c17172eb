"""A cache setting as people write it: arguments of generate, keys of generation_config.json, and the way back.

"Keep this" is the call for the chosen arm, "Go back" the call and file that were in force before. Text only.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvdemo.caches.strategies import slots_for, strategy_of
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.results import ComparisonResult

__all__ = ["CALLS", "CacheCall", "CacheChange", "call_of", "keep_or_go_back"]


@dataclass(frozen=True, slots=True)
class CacheCall:
    """How a strategy is asked for.

    cache    expression that makes the Cache object, "" for none; {slots} stands for its length
    imports  names it needs from transformers
    extra    further arguments of generate
    file     the same in generation_config.json, for calls that one does not write oneself
    """

    cache: str
    imports: tuple[str, ...]
    file: dict[str, Any]
    extra: tuple[str, ...] = ()

    def arguments(self, slots: int | str) -> list[str]:
        """The arguments of generate, each as one piece of code; `slots` may be an expression."""
        if not self.cache:
            return ["use_cache=False"]
        return ["use_cache=True", f"cache={self.cache.format(slots=slots)}", *self.extra]


def _quantised(backend: str, **options: int) -> CacheCall:
    named = "".join(f", {name}={value}" for name, value in options.items())
    settings = {"use_cache": True, "cache_implementation": "quantized", "cache_config": {"backend": backend, **options}}
    return CacheCall(f'QuantizedCache(backend="{backend}", config=model.config{named})', ("QuantizedCache",), settings)


_STATIC = "StaticCache(config=model.config, max_cache_len={slots})"
CALLS = {
    "none": CacheCall("", (), {"use_cache": False}),
    "dynamic": CacheCall("DynamicCache(config=model.config)", ("DynamicCache",), {"use_cache": True}),
    "static": CacheCall(
        _STATIC, ("StaticCache",), {"use_cache": True, "cache_implementation": "static"}, ("disable_compile=True",)
    ),
    "static-compiled": CacheCall(
        _STATIC,
        ("CompileConfig", "StaticCache"),
        {"use_cache": True, "cache_implementation": "static"},
        ("compile_config=compile_config",),
    ),
    "offloaded": CacheCall(
        "DynamicCache(config=model.config, offloading=True)",
        ("DynamicCache",),
        {"use_cache": True, "cache_implementation": "offloaded"},
    ),
    "offloaded-static": CacheCall(
        "StaticCache(config=model.config, max_cache_len={slots}, offloading=True)",
        ("StaticCache",),
        {"use_cache": True, "cache_implementation": "offloaded_static"},
        ("disable_compile=True",),
    ),
    "fp8": _quantised("fp8"),
    "quanto-4bit": _quantised("quanto", nbits=4),
    "quanto-2bit": _quantised("quanto", nbits=2),
    "hqq-8bit": _quantised("hqq", nbits=8, axis_key=1, axis_value=1),
    "hqq-4bit": _quantised("hqq", nbits=4, axis_key=1, axis_value=1),
}
COMPILE_LINES = (
    "compile_config = CompileConfig()",
    "compile_config._compile_all_devices = True  # a CPU is left out otherwise",
)


def call_of(strategy: str) -> CacheCall:
    """How the strategy with this key is asked for; InvalidRequest for a key that is not in the table."""
    return CALLS[strategy_of(strategy).key]


@dataclass(frozen=True, slots=True)
class CacheChange:
    """From what was in force to the chosen arm, and back.

    keep_call, back_call   the calls of generate, complete
    diff                   from the second to the first, unified
    keep_file              keys to set in generation_config.json instead of changing the call
    back_file              the values those keys had (None: remove the key); None: there was no such file, delete it
    """

    chosen: str
    keep_call: str
    back_call: str
    diff: str
    keep_file: dict[str, Any]
    back_file: dict[str, Any] | None

    @property
    def keep_file_text(self) -> str:
        return json.dumps(self.keep_file, indent=2)

    @property
    def back_file_text(self) -> str:
        """What to do with generation_config.json to go back, in words and JSON."""
        if self.back_file is None:
            return "There was no generation_config.json: delete it."
        gone = [key for key, value in self.back_file.items() if value is None]
        kept = {key: value for key, value in self.back_file.items() if value is not None}
        removed = f"Remove {', '.join(gone)} from generation_config.json." if gone else ""
        return "\n".join(part for part in (json.dumps(kept, indent=2) if kept else "", removed) if part)


def keep_or_go_back(result: ComparisonResult, chosen: str, decision: CacheDecision | None) -> CacheChange:
    """The exact arguments for `chosen`, and for what was in force before; decision None: nothing was set before."""
    call = call_of(chosen)
    slots = slots_for(strategy_of(chosen), slots_needed(result))
    before = before_arguments(decision)
    keep_call = call_text(result, call.arguments(slots), call)
    back_call = call_text(result, before, None)
    diff = difflib.unified_diff(back_call.splitlines(), keep_call.splitlines(), "before", "after", lineterm="", n=9)
    return CacheChange(
        chosen=chosen,
        keep_call=keep_call,
        back_call=back_call,
        diff="\n".join(diff),
        keep_file=dict(call.file),
        back_file=before_file(decision, call.file),
    )


def slots_needed(result: ComparisonResult) -> int:
    """Positions that the measured request needs."""
    prompt_tokens = max((run.prompt_tokens for run in result.runs), default=0)
    return prompt_tokens + result.spec.max_new_tokens


def before_arguments(decision: CacheDecision | None) -> list[str]:
    """The cache's arguments in the call before: only those that were really given."""
    given = decision.settings.get("call") if decision is not None else None
    arguments = [] if given is None else [f"use_cache={bool(given)}"]
    if given is not None and decision is not None and decision.cache_implementation:
        arguments.append(f"cache_implementation={decision.cache_implementation!r}")
    return arguments


def before_file(decision: CacheDecision | None, changed: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of the changed keys in generation_config.json before; None when there was no such file."""
    if decision is None or not decision.has_generation_config:
        return None
    before: dict[str, Any] = dict.fromkeys(changed)
    before["use_cache"] = decision.settings.get("generation_config.json")
    if decision.settings.get("call") is None and "cache_implementation" in before:
        before["cache_implementation"] = decision.cache_implementation
    return before


def call_text(result: ComparisonResult, arguments: list[str], call: CacheCall | None) -> str:
    """A call of generate with one argument a line, and what it needs before it."""
    lines = [f"from transformers import {', '.join(call.imports)}", ""] if call is not None and call.imports else []
    if call is not None and "CompileConfig" in call.imports:
        lines += [*COMPILE_LINES, ""]
    given = ["**inputs", f"max_new_tokens={result.spec.max_new_tokens}", *sampling_arguments(result), *arguments]
    return "\n".join([*lines, "output = model.generate(", *(f"    {argument}," for argument in given), ")"])


def sampling_arguments(result: ComparisonResult) -> list[str]:
    sampling = result.spec.sampling
    if sampling.greedy:
        return ["do_sample=False"]
    return [
        "do_sample=True",
        f"temperature={sampling.temperature!r}",
        f"top_p={sampling.top_p!r}",
        f"top_k={sampling.top_k}",
    ]
