"""Who reads what runs tell: how often he wants to hear, and where he reads."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AT_ONCE", "Reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader who wakes up takes the interpreter's lock from the thread that runs the model, so he wakes up seldom.

    every_s   seconds between two wake-ups; what happened meanwhile comes in one go, each fact with its own time, and the
              end of a run is told at once. 0: every fact is told at once
    on_page   he reads on the page or through its API: a web server shares the process with the model
    """

    every_s: float = 0.0
    on_page: bool = False


AT_ONCE = Reader()
