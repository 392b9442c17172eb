"""Keep this, and Go back: a strategy as a call of generate and as generation_config.json, beside what was there before.

Pure: rows of the strategies table, a decision and the contents of files in, text out. Only what concerns the cache changes.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from kvdemo.facts.decision import CacheAdvice, CacheDecision, FileChange
from kvdemo.facts.model import StrategyRow

__all__ = ["CACHE_KEYS", "COMPILE_LINES", "advise"]

CACHE_KEYS = (
    "use_cache",
    "cache_implementation",
    "cache_config",
    "max_cache_len",
    "compile_config",
    "disable_compile",
)
"""What of a call, and of generation_config.json, decides about the cache."""

IN_CALL_ONLY = ("cache", "past_key_values")
BY_DEFAULT = '{"use_cache": true}'
"""The settings of the cache that generate makes by itself."""

COMPILE_LINES = (
    "compile_config = CompileConfig()",
    "compile_config._compile_all_devices = True  # a CPU is left out otherwise",
)


def advise(
    row: StrategyRow,
    before: CacheDecision,
    *,
    call: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None,
    from_config: Mapping[str, Any],
    slots: int,
) -> CacheAdvice:
    """How is this strategy kept, and how does one go back to what was in force before?

    row                as of the loaded model, with its code and settings
    call               arguments of generate as they are now
    generation_config  the file as it is now, None: there is none
    from_config        what generate takes from config.json while there is no such file; a new file has to repeat it, or
                       end tokens get lost
    slots              of a cache of fixed size
    """
    named = (generation_config or from_config).get("cache_implementation")
    arguments, imports, lines = _arguments(row, slots, named)
    others = {key: value for key, value in call.items() if key not in (*CACHE_KEYS, *IN_CALL_ONLY)}
    keep_call = _code([*_written(others), *arguments], imports, lines)
    back_call = _code(_written(call), _imports_of(call), [])
    diff = difflib.unified_diff(
        back_call.splitlines(), keep_call.splitlines(), "before", "after", lineterm="", n=len(call) + 9
    )
    keep_file, back_file = _file_changes(row, generation_config, from_config)
    return CacheAdvice(
        strategy=row.key,
        before=before,
        keep_call=keep_call,
        back_call=back_call,
        diff="\n".join(diff),
        keep_file=keep_file,
        back_file=back_file,
        notes=tuple(_notes(row, before, call, generation_config)),
    )


def _arguments(row: StrategyRow, slots: int, named: object) -> tuple[list[str], list[str], list[str]]:
    """(arguments of generate, names to import, lines before the call)."""
    if not row.code:
        return ["use_cache=False"], [], []
    if row.settings == BY_DEFAULT:
        # generate makes this cache by itself, unless the file names another.
        return ["use_cache=True", *(['cache_implementation="dynamic"'] if named else [])], [], []
    imports = [row.code.split("(")[0]]
    arguments = ["use_cache=True", f"cache={row.code.replace('{slots}', str(slots))}"]
    if named:
        arguments.append("cache_implementation=None")  # generate takes either the file's word or a cache
    if row.compiles:
        return [*arguments, "compile_config=compile_config"], ["CompileConfig", *imports], list(COMPILE_LINES)
    if row.fixed_size:
        arguments.append("disable_compile=True")  # on an accelerator generate would compile
    return arguments, imports, []


def _written(call: Mapping[str, Any]) -> list[str]:
    """Arguments of a call as Python code; ASCII, so that nothing in a name or value can look like something else."""
    return [_argument(name, value) for name, value in call.items()]


def _argument(name: str, value: object) -> str:
    if not name.isidentifier() or not name.isascii():
        return f"**{ {name: value}!a}"
    if name == "compile_config" and isinstance(value, dict):
        return f"{name}=CompileConfig(**{value!a})"
    return f"{name}={value!a}"


def _imports_of(call: Mapping[str, Any]) -> list[str]:
    return ["CompileConfig"] if isinstance(call.get("compile_config"), dict) else []


def _code(arguments: list[str], imports: list[str], lines: list[str]) -> str:
    before = [f"from transformers import {', '.join(sorted(imports))}", ""] if imports else []
    before += [*lines, ""] if lines else []
    given = "".join(f"    {argument},\n" for argument in ["**inputs", *arguments])
    return "\n".join([*before, f"output = model.generate(\n{given})"])


def _file_changes(
    row: StrategyRow, generation_config: Mapping[str, Any] | None, from_config: Mapping[str, Any]
) -> tuple[FileChange | None, FileChange | None]:
    wanted = json.loads(row.settings) if row.settings else None
    if wanted is None:
        return None, None
    if generation_config is None:
        kept = {key: value for key, value in from_config.items() if key not in CACHE_KEYS}
        return FileChange({**kept, **wanted}), FileChange(delete_file=True)
    there = {key: generation_config[key] for key in CACHE_KEYS if key in generation_config}
    keep = FileChange(
        {key: value for key, value in wanted.items() if key not in there or there[key] != value},
        tuple(key for key in there if key not in wanted),
    )
    back = FileChange(
        {key: value for key, value in there.items() if key not in wanted or wanted[key] != value},
        tuple(key for key in wanted if key not in there),
    )
    return keep, back


def _notes(
    row: StrategyRow, before: CacheDecision, call: Mapping[str, Any], generation_config: Mapping[str, Any] | None
) -> list[str]:
    """What to know before one does it."""
    notes = []
    if before.value is None:
        notes.append("What was there before is refused by generate; going back brings that back.")
    if row.fixed_size:
        notes.append("Make a new cache for every call, at least as long as prompt and answer together.")
    elif row.code and row.settings != BY_DEFAULT:
        notes.append("Make a new cache for every call.")
    if row.settings == "null":
        notes.append("generation_config.json cannot ask for compiling on a CPU: change the call.")
        return notes
    overridden = [key for key in CACHE_KEYS if key in call]
    if overridden:
        notes.append(f"Through the file it works once {', '.join(overridden)} is gone from the call.")
    if generation_config is None:
        notes.append(
            "There is no generation_config.json: a new one repeats what config.json says about ends and sampling."
        )
    if row.fixed_size:
        notes.append("Through the file, generate keeps a cache as long as the longest request it has had.")
    return notes
