"""How long our own code runs inside the model's thread, step by step: a sum of microseconds, which noise cannot hide.

Timed from outside are the three places at which generate calls us: before every forward, at the logits of every step, and
with every step's token (clock, weight of the cache, queue, look at the memory). On an accelerator the clock waits for the
device there, and that wait, which is the model's time, is counted as ours.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from kvdemo.facts.records import RunRecord
from kvdemo.models.loaded import ForwardGate, LoadedModel

__all__ = ["OwnTime"]


class OwnTime:
    """Seconds that our code has taken in the model's thread since the last question."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    def share_of(self, record: RunRecord) -> float:
        """The share of the time of the run that has just ended, acceptance to last token; and begin again at 0."""
        spent_s, self._spent_s = self._spent_s, 0.0
        assert record.generation_s
        return spent_s / record.generation_s

    def timed(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return ours(*arguments, **named)
            finally:
                self._spent_s += time.perf_counter() - began_s

        return call

    def watch(self, loaded: LoadedModel) -> LoadedModel:
        """The same model, whose runs are timed; a plain generate beside them is not."""
        generate = loaded.model.generate

        def watched(*arguments: Any, **options: Any) -> Any:
            if "logits_processor" not in options:
                return generate(*arguments, **options)
            options["streamer"] = _Streamer(options["streamer"], self)
            options["logits_processor"] = [self.timed(ours) for ours in options["logits_processor"]]
            return generate(*arguments, **options)

        loaded.model.generate = watched
        return dataclasses.replace(loaded, gate=_Gate(loaded.gate, self))


class _Streamer:
    def __init__(self, streamer: Any, own: OwnTime) -> None:
        self.put, self.end = own.timed(streamer.put), streamer.end


class _Gate(ForwardGate):
    """Stands before the real gate, which is in its place already, and times who listens there."""

    def __init__(self, gate: ForwardGate, own: OwnTime) -> None:
        self._gate, self._own = gate, own

    @property
    def listener(self) -> Any:
        return self._gate.listener

    @listener.setter
    def listener(self, listener: Any) -> None:
        self._gate.listener = None if listener is None else self._own.timed(listener)
