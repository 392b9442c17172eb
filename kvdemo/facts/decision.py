"""Which cache a call of generate will use, and who decided; how to choose another, and how to go back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["CacheAdvice", "CacheDecision", "FileChange", "InspectSpec", "Source"]

Source = Literal["call", "generation_config.json", "config.json", "library default", "model"]
"""Who decides: the call of generate, a file, transformers, or the model's own code."""


@dataclass(frozen=True, slots=True)
class InspectSpec:
    """What to look at: arguments of a call, and files as text. None: the file of the loaded (or named) model.

    generation_config   "" says that there is none; None together with a config means the same
    """

    generate_kwargs: str = "{}"
    config: str | None = None
    generation_config: str | None = None


@dataclass(frozen=True, slots=True)
class CacheDecision:
    """Is a cache used (value), who decided (source), which one, and what contradicts itself.

    value                None: the arguments contradict each other and generate would raise (conflicts say why)
    cache_class          None without a cache, or where the model makes one of its own
    conflicts            sentences: settings that cannot stand together, are ignored, or will be refused
    settings             what was found where: {"config.json": False, "generation_config.json": None, ...}
    has_generation_config   is there a generation_config.json?
    """

    value: bool | None
    source: Source
    cache_implementation: str | None
    cache_class: str | None
    attention: str
    compiles: bool
    conflicts: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_generation_config: bool = True

    def document(self) -> dict[str, Any]:
        """The JSON of the command line."""
        return {
            "use_cache": {"value": self.value, "source": self.source},
            "cache_implementation": self.cache_implementation,
            "cache_class": self.cache_class,
            "attention": self.attention,
            "compiles": self.compiles,
            "conflicts": list(self.conflicts),
        }

    def sentence(self) -> str:
        """One line for a person: what is in force now, and from where."""
        compiled = "compiled" if self.compiles else "not compiled"
        if self.value:
            return (
                f"cache on ({self._from()}), {self.cache_class or 'a cache of its own'}, {self.attention}, {compiled}."
            )
        if self.value is None:
            return "nothing: generate would refuse this."
        return f"cache off: {self._why_off()}"

    def _from(self) -> str:
        return {"call": "set in the call", "model": "the model insists"}.get(self.source, self.source)

    def _why_off(self) -> str:
        if self.source == "config.json":
            return "config.json says use_cache: false and there is no generation_config.json."
        return {
            "call": f"the call says use_cache={self.settings.get('call', False)}.",
            "generation_config.json": "generation_config.json says use_cache: false.",
            "model": "this model's own code keeps none.",
        }.get(self.source, f"{self.source}.")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What to do with generation_config.json: set `values`, remove the keys of `remove`, or delete the file."""

    values: Mapping[str, Any] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    delete_file: bool = False

    def apply(self, content: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The file's content afterwards; None: there is no file."""
        if self.delete_file:
            return None
        kept = {key: value for key, value in (content or {}).items() if key not in self.remove}
        return {**kept, **self.values}

    def text(self) -> str:
        """The keys to set as JSON, and in words what else to do."""
        if self.delete_file:
            return "Delete generation_config.json: there was none before."
        parts = [json.dumps(dict(self.values), indent=2)] if self.values else []
        parts += [f"Remove {', '.join(self.remove)} from generation_config.json."] if self.remove else []
        return "\n".join(parts) or "Leave generation_config.json as it is."


@dataclass(frozen=True, slots=True)
class CacheAdvice:
    """Keep this, and Go back: the call of generate, or the file, for one strategy and for what was in force before.

    keep_call, back_call   calls of generate, Python; `diff` is the unified diff from the second to the first
    keep_file, back_file   the same by generation_config.json, with the call left alone; both None where a file cannot
                           say it (`notes` say why)
    """

    strategy: str
    before: CacheDecision
    keep_call: str
    back_call: str
    diff: str
    keep_file: FileChange | None
    back_file: FileChange | None
    notes: tuple[str, ...] = ()

    @property
    def keep_file_text(self) -> str:
        return self.keep_file.text() if self.keep_file is not None else "A file cannot ask for this: change the call."

    @property
    def back_file_text(self) -> str:
        return self.back_file.text() if self.back_file is not None else "Leave generation_config.json as it is."
