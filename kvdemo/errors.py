"""The errors a person can act on. Anything else that is raised is a bug.

KvdemoError
├── InvalidRequest       a value is wrong; names the field              (command line: exit 2)
│   └── ContextFull      prompt and answer do not fit the model; says how many tokens there are and may be
├── ModelUnavailable     the model cannot be found or loaded            (exit 2 for a bad name)
├── ModelNotReady        the model is still loading                     (try again)
├── TooBusy              the waiting line is full                       (try again)
├── Unanswered           an engine behind a URL could not be reached, refused, or broke off (exit 1)
└── RunFailed            a run ended by an exception; carries its record (exit 1)
    └── OutOfMemory      the same, for want of memory
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvdemo.facts.records import RunRecord

__all__ = [
    "ContextFull",
    "InvalidRequest",
    "KvdemoError",
    "ModelNotReady",
    "ModelUnavailable",
    "OutOfMemory",
    "RunFailed",
    "TooBusy",
    "Unanswered",
    "is_out_of_memory",
]

# What Linux, macOS, Windows, CUDA and MPS say, by way of torch, numpy, safetensors and Python.
NO_MEMORY = re.compile(
    r"out of memory|not enough memory|(can't|cannot|unable to|failed to) allocate|bad_alloc|STATUS_ALLOC_FAILED"
    r"|cudaErrorMemoryAllocation|Invalid buffer size|paging file is too small|\(os error (12|8|14|1455)\)",
    re.IGNORECASE,
)
NO_MEMORY_ON_WINDOWS = (8, 14, 1455)  # ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY, ERROR_COMMITMENT_LIMIT


class KvdemoError(Exception):
    """Base of every error that says what happened and what to do; its text may be shown to anybody."""


class InvalidRequest(KvdemoError):
    """A value that cannot be used. `field` is its name on the form or the command line."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class ContextFull(InvalidRequest):
    """Prompt and answer together are longer than the model's context.

    drop_turns   how many of the oldest turns of the conversation would have to go; 0 where that does not help
    """

    def __init__(self, message: str, *, needed_tokens: int, limit_tokens: int, drop_turns: int = 0) -> None:
        super().__init__("max_new_tokens", message)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens
        self.drop_turns = drop_turns


class ModelUnavailable(KvdemoError):
    """The model cannot be found, read or allowed; one line that says why and what to do."""


class ModelNotReady(KvdemoError):
    """The model is still loading, or failed to load."""


class TooBusy(KvdemoError):
    """The line in front of the model is full."""


class Unanswered(KvdemoError):
    """An engine behind a URL could not be reached, refused, or broke off; one sentence that names it and never the key."""


class RunFailed(KvdemoError):
    """A run ended by an exception. `record` holds what was produced, with status "failed"."""

    def __init__(self, message: str, record: RunRecord) -> None:
        super().__init__(message)
        self.record = record


class OutOfMemory(RunFailed):
    """A run ended for want of memory; its caches were dropped."""


def is_out_of_memory(error: BaseException) -> bool:
    """Did something fail for want of memory, on whatever system and device?"""
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    if isinstance(error, OSError) and (
        error.errno == errno.ENOMEM or getattr(error, "winerror", None) in NO_MEMORY_ON_WINDOWS
    ):
        return True
    return not isinstance(error, KvdemoError) and NO_MEMORY.search(str(error)) is not None
