"""The errors a person can act on. Anything else that is raised is a bug.

KvdemoError
├── InvalidRequest       a value is wrong; names the field              (command line: exit 2)
├── ModelUnavailable     the model cannot be found or loaded            (exit 2 for a bad name)
├── ModelNotReady        the model is still loading                     (try again)
├── TooBusy              the waiting line is full                       (try again)
└── RunFailed            a run ended by an exception; carries its record (exit 1)
    └── OutOfMemory      the same, for want of memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvdemo.facts.records import RunRecord

__all__ = [
    "InvalidRequest",
    "KvdemoError",
    "ModelNotReady",
    "ModelUnavailable",
    "OutOfMemory",
    "RunFailed",
    "TooBusy",
]


class KvdemoError(Exception):
    """Base of every error that says what happened and what to do; its text may be shown to anybody."""


class InvalidRequest(KvdemoError):
    """A value that cannot be used. `field` is its name on the form or the command line."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class ModelUnavailable(KvdemoError):
    """The model cannot be found, read or allowed; one line that says why and what to do."""


class ModelNotReady(KvdemoError):
    """The model is still loading, or failed to load."""


class TooBusy(KvdemoError):
    """The line in front of the model is full."""


class RunFailed(KvdemoError):
    """A run ended by an exception. `record` holds what was produced, with status "failed"."""

    def __init__(self, message: str, record: RunRecord) -> None:
        super().__init__(message)
        self.record = record


class OutOfMemory(RunFailed):
    """A run ended for want of memory; its caches were dropped."""
