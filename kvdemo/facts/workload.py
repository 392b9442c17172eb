"""What somebody wants to use a model for: six numbers, asked once and used by every panel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import MAX_BATCH
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_REQUEST_TOKENS, checked_number, keep_int

__all__ = ["Workload"]

LIMITS_S = (0.001, 86_400.0)


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the model at most. None: nobody has said.

    at_once      requests at the same time
    memory_gib   for weights and caches together
    target_s     for a complete request; other_s: of it, spent on anything but generation
    """

    longest_prompt_tokens: int | None = None
    longest_answer_tokens: int | None = None
    at_once: int | None = None
    memory_gib: float | None = None
    target_s: float | None = None
    other_s: float | None = None

    def __post_init__(self) -> None:
        for name, most in (
            ("longest_prompt_tokens", MAX_REQUEST_TOKENS),
            ("longest_answer_tokens", MAX_NEW_TOKENS),
            ("at_once", MAX_BATCH),
        ):
            if getattr(self, name) is not None:
                keep_int(self, name, 1, most)
        for name, least, most_s in (
            ("memory_gib", 0.001, 1_000_000.0),
            ("target_s", *LIMITS_S),
            ("other_s", 0.0, LIMITS_S[1]),
        ):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_number(name, getattr(self, name), least, most_s))

    @property
    def longest_tokens(self) -> int | None:
        """Prompt and answer together; None where one of the two is not known."""
        if self.longest_prompt_tokens is None or self.longest_answer_tokens is None:
            return None
        return self.longest_prompt_tokens + self.longest_answer_tokens

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    @classmethod
    def kept(cls, value: object) -> Workload:
        """What a browser has kept, as far as it is right: anybody can write there, so what is broken is dropped."""
        known: dict[str, Any] = {}
        if isinstance(value, dict):
            for name in cls.names():
                try:
                    known[name] = getattr(cls(**{name: value.get(name)}), name)
                except InvalidRequest:
                    continue
        return cls(**known)
