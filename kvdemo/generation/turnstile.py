"""Admission to the model: first come, first served, own place visible, length limited.

It knows nothing of models. Whoever stands first in line may run, and leaves when the run has really ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from kvdemo.errors import TooBusy
from kvdemo.facts.events import Waiting

__all__ = ["HEARTBEAT_S", "Ticket", "Turnstile", "until_turn"]

HEARTBEAT_S = 0.5
"""Nobody who reads what goes on is left without a sign of life for longer."""


class Ticket:
    """A place in the line of a turnstile."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile

    @property
    def place(self) -> int:
        """0: it is this one's turn; 1: next. ValueError when it has left."""
        return self._turnstile._place(self)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is this one's turn, at most `timeout_s`; is it?"""
        return self._turnstile._wait(self, timeout_s)

    def leave(self) -> None:
        """Give the place up, or end the turn; a second call does nothing."""
        self._turnstile._leave(self)


def until_turn(ticket: Ticket, stop: threading.Event) -> Iterator[Waiting]:
    """Wait for one's turn, or until `stop` is set; one's place meanwhile, at least every half second."""
    while not ticket.wait(0) and not stop.is_set():
        if (place := ticket.place) > 0:
            yield Waiting(place)
        if ticket.wait(HEARTBEAT_S):
            return


class Turnstile:
    """One run at a time. At most `max_waiting` stand behind the one who runs, and whoever is patient."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._line: deque[Ticket] = deque()
        self._moved = threading.Condition()

    def join(self, *, patient: bool = False) -> Ticket:
        """Take the last place in line; TooBusy when the line is full, unless one is `patient`.

        patient   one of several runs that belong together: a refusal would spoil what the others have measured
        """
        with self._moved:
            if len(self._line) > self._max_waiting and not patient:
                raise TooBusy(f"{self._max_waiting} requests wait already, which is the limit. Try again in a minute.")
            ticket = Ticket(self)
            self._line.append(ticket)
            return ticket

    @property
    def length(self) -> int:
        """How many stand in line, the one who runs included."""
        with self._moved:
            return len(self._line)

    def _place(self, ticket: Ticket) -> int:
        with self._moved:
            return self._line.index(ticket)

    def _wait(self, ticket: Ticket, timeout_s: float) -> bool:
        with self._moved:
            return self._moved.wait_for(lambda: self._line[0] is ticket, timeout_s)

    def _leave(self, ticket: Ticket) -> None:
        with self._moved:
            if ticket in self._line:
                self._line.remove(ticket)
                self._moved.notify_all()
