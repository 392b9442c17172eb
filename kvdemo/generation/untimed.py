"""A pass of the model that is not timed, in its turn: what an experiment wants to know beside its runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future, wait
from typing import TypeVar

from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Waiting, Working
from kvdemo.generation.turnstile import HEARTBEAT_S, Turnstile, until_turn
from kvdemo.models.loaded import LoadedModel

__all__ = ["Stopped", "untimed"]

T = TypeVar("T")

log = logging.getLogger(__name__)


class Stopped(Exception):
    """Raised in a forward when somebody has asked for its end."""


def untimed(
    loaded: LoadedModel,
    turnstile: Turnstile,
    measure: Callable[[Sequence[threading.Event]], T],
    stop: threading.Event | None,
) -> Generator[Waiting | Working, None, T | None]:
    """What `measure` gives, in the model's thread; None when it was stopped or failed: it is a supplement.

    measure   is given the flags that end it, and raises Stopped when it sees one set. Its InvalidRequest is passed on
    """
    stop, closed = stop or threading.Event(), threading.Event()
    begin_s = time.perf_counter()
    ticket = turnstile.join(patient=True)
    future: Future[T] | None = None
    try:
        yield from until_turn(ticket, stop)
        if stop.is_set():
            return None
        future = loaded.thread.submit(lambda: measure((stop, closed)))
        while wait([future], HEARTBEAT_S).not_done:
            yield Working(time.perf_counter() - begin_s)
        return future.result()
    except (Stopped, CancelledError):
        return None
    except InvalidRequest:
        raise
    except Exception as error:
        log.warning("an untimed pass failed: %s", type(error).__name__, exc_info=error)
        return None
    finally:
        closed.set()
        if future is not None:
            wait([future])  # the turn ends when the model has really ended
        ticket.leave()
