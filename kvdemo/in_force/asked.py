"""Which cache is in force for a call and its files, how to keep another, and how to go back: what inspect and advice answer.

It reads files and looks at a model without weights; nothing is run and nothing is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from kvdemo.caches import strategies as table
from kvdemo.errors import InvalidRequest
from kvdemo.facts.decision import CacheAdvice, CacheDecision, InspectSpec
from kvdemo.facts.requests import checked_int
from kvdemo.in_force.advice import advise
from kvdemo.in_force.inspect import decide, written_out
from kvdemo.models.config import IgnoredFile, device_when_loaded, read_config, read_generation_config
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.source import resolve
from kvdemo.planner import architecture
from kvdemo.settings import Settings

__all__ = ["Asked", "advice", "decision", "read"]

MAX_TOKENS = 100_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of generate and the files beside it, as written. generation_config None: there is none, or `ignored` says
    why the one there is counts for nothing."""

    call: dict[str, Any]
    config: dict[str, Any]
    generation_config: dict[str, Any] | None
    ignored: str = ""


def read(spec: InspectSpec, settings: Settings) -> Asked:
    """The call and the files that a spec names; InvalidRequest that names what is not JSON."""
    call = _json_object("generate_kwargs", spec.generate_kwargs)
    given = spec.generation_config
    generation_config = _json_object("generation_config", given) if given else None
    if spec.config is not None:
        return Asked(call, architecture.parse_config(spec.config), generation_config)
    source = resolve(settings.model, settings.home, mode=settings.mode)
    config = read_config(source, settings)
    if given is None:
        try:
            generation_config = read_generation_config(source, settings)
        except IgnoredFile as error:
            return Asked(call, config, None, str(error))
    return Asked(call, config, generation_config)


def decision(asked: Asked, settings: Settings) -> CacheDecision:
    """Which cache will generate use, and who decided? The model is built on meta: one at a time."""
    found = decide(
        architecture.on_meta(asked.config),
        config=asked.config,
        generation_config=asked.generation_config,
        call=asked.call,
        device=device_when_loaded(settings),
        keeps_cache=architecture.keeps_cache,
    )
    if not asked.ignored:
        return found
    words = f"transformers ignores generation_config.json, as if there were none: {asked.ignored}."
    return replace(found, conflicts=(words, *found.conflicts))


def advice(loaded: LoadedModel, strategy: str, num_tokens: int, asked: Asked, before: CacheDecision) -> CacheAdvice:
    """How to keep a strategy on this model, and how to go back to `before`; InvalidRequest where it cannot be used here."""
    chosen = table.available_strategy(strategy, loaded.model)
    return advise(
        chosen.row(loaded.model),
        before,
        call=asked.call,
        generation_config=asked.generation_config,
        from_config=written_out(asked.config),
        slots=table.slots_for(chosen, checked_int("num_tokens", num_tokens, 1, MAX_TOKENS)),
    )


def _json_object(field: str, text: str) -> dict[str, Any]:
    """Text as a JSON object; InvalidRequest that names the place otherwise."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(field, f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise InvalidRequest(field, "is nested too deeply") from error
    except ValueError as error:
        raise InvalidRequest(field, "holds a number with thousands of digits") from error
    if not isinstance(value, dict):
        raise InvalidRequest(field, "must be a JSON object")
    return value
