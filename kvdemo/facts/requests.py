"""What a person asks for. Every value is checked when the request is made, so that no room below checks it again.

Limits that depend on the model (context length, memory) are checked by the backend, before any work starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvdemo.errors import InvalidRequest

__all__ = [
    "MAX_NEW_TOKENS",
    "MAX_PROMPT_CHARS",
    "GenerationRequest",
    "MeasureSpec",
    "Message",
    "Prompt",
    "SamplingParams",
    "checked_choice",
    "checked_int",
    "checked_number",
    "checked_text",
    "keep_int",
]

MAX_NEW_TOKENS = 32_768
MAX_PROMPT_CHARS = 200_000
MAX_ROUNDS = 100
LEAST_TEMPERATURE = 1e-4  # logits are divided by it: in 16 bits a smaller one makes infinities of them
MAX_ARMS = 12
MAX_REQUEST_TOKENS = 10_000_000
ROLES = ("system", "user", "assistant")


def checked_int(name: str, value: object, low: int, high: int) -> int:
    """`value` as an int between low and high; InvalidRequest naming the field otherwise (floats only when whole)."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(name, "must be a whole number")
    if not low <= value <= high:
        shown = f"{value:,}" if abs(value) < 10**15 else "a number that long"
        raise InvalidRequest(name, f"must be between {low:,} and {high:,}, not {shown}")
    return value


def keep_int(request: object, name: str, low: int, high: int) -> None:
    """Check a field and keep it as an int: a form or JSON may send 64.0."""
    object.__setattr__(request, name, checked_int(name, getattr(request, name), low, high))


def checked_number(name: str, value: object, low: float, high: float) -> float:
    """`value` as a finite float between low and high; InvalidRequest naming the field otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(name, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidRequest(name, "must be a finite number")
    if not low <= number <= high:
        raise InvalidRequest(name, f"must be between {low:g} and {high:g}, not {number:g}")
    return number


def checked_text(name: str, value: object, *, max_chars: int = MAX_PROMPT_CHARS, empty: bool = False) -> str:
    """`value` as text that can be encoded; InvalidRequest naming the field when empty, too long or broken."""
    if not isinstance(value, str):
        raise InvalidRequest(name, "must be text")
    if len(value) > max_chars:
        raise InvalidRequest(name, f"is {len(value):,} characters long; the limit is {max_chars:,}")
    if not empty and not value.strip():
        raise InvalidRequest(name, "is empty")
    if "\x00" in value:
        raise InvalidRequest(name, "contains a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest(name, "contains half of a surrogate pair, which is not text") from error
    return value


def checked_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """`value` when it is one of `choices`; InvalidRequest that lists them otherwise."""
    if not isinstance(value, str) or value not in choices:
        shown = value[:40] if isinstance(value, str) else type(value).__name__
        raise InvalidRequest(name, f"{shown!r} is not one of {', '.join(choices)}")
    return value


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str

    def __post_init__(self) -> None:
        checked_choice("role", self.role, ROLES)
        checked_text("message", self.content, empty=self.role != "user")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. temperature 0 means greedy; top_k 0 means off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if 0 < checked_number("temperature", self.temperature, 0, 5) < LEAST_TEMPERATURE:
            raise InvalidRequest("temperature", f"must be 0 or at least {LEAST_TEMPERATURE:g}")
        if checked_number("top_p", self.top_p, 0, 1) == 0:
            raise InvalidRequest("top_p", "must be above 0")
        checked_int("top_k", self.top_k, 0, 1_000_000)
        checked_int("seed", self.seed, 0, 2**63 - 1)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


Prompt = str | tuple[Message, ...] | tuple[int, ...]
"""Text, the messages of a conversation, or token ids."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One run of the model.

    prompt            text as it is, the messages of a conversation (rendered with the chat template), or token ids
    strategy          a key of the strategies table
    fixed_length      no end token and no stop strings: exactly max_new_tokens
    prefill_chunk     prompt tokens per forward during prefill; None: one forward
    cache_slots       positions that a cache of fixed size reserves; None: just enough for this request
    timeout_s         wall-clock limit from acceptance; None: none
    """

    prompt: Prompt
    max_new_tokens: int
    strategy: str = "dynamic"
    sampling: SamplingParams = field(default_factory=SamplingParams)
    fixed_length: bool = False
    stop_strings: tuple[str, ...] = ()
    prefill_chunk: int | None = None
    cache_slots: int | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.prompt, str):
            checked_text("prompt", self.prompt)
        elif not self.prompt:
            raise InvalidRequest("messages", "there is no message")
        elif self.prompt_chars > MAX_PROMPT_CHARS:
            raise InvalidRequest("messages", f"are longer than {MAX_PROMPT_CHARS:,} characters together")
        keep_int(self, "max_new_tokens", 1, MAX_NEW_TOKENS)
        checked_text("strategy", self.strategy, max_chars=40)
        if len(self.stop_strings) > 16:
            raise InvalidRequest("stop_strings", "at most 16 are allowed")
        for stop in self.stop_strings:
            checked_text("stop_strings", stop, max_chars=100)
        if self.prefill_chunk is not None:
            checked_int("prefill_chunk", self.prefill_chunk, 1, 1_000_000)
        if self.cache_slots is not None:
            checked_int("cache_slots", self.cache_slots, 1, 100_000_000)
        if self.timeout_s is not None:
            checked_number("timeout_s", self.timeout_s, 0, 86_400)

    @property
    def prompt_chars(self) -> int:
        """Characters of the prompt, all messages together; token ids have none."""
        if isinstance(self.prompt, str):
            return len(self.prompt)
        return sum(len(part.content) for part in self.prompt if isinstance(part, Message))


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """Which caches of the loaded model to fill and weigh: every strategy at every length (tokens), one request."""

    lengths: tuple[int, ...]
    strategies: tuple[str, ...] = ("dynamic", "static")

    def __post_init__(self) -> None:
        if not 1 <= len(self.lengths) <= 16:
            raise InvalidRequest("lengths", "choose between one and 16")
        for length in self.lengths:
            checked_int("lengths", length, 2, 1_000_000)
        if not self.strategies:
            raise InvalidRequest("strategies", "choose at least one")
