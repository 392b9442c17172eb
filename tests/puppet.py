"""The tiny model on strings: it says what a test tells it, and moves only as far as the test lets it.

Forwards, caches and generate are the real ones. Tests hold it where others would have to sleep.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.tiny import EOS_ID, tiny_model

__all__ = ["Puppet"]

PATIENCE_S = 60.0


class Puppet:
    """Give its `model` to tiny_backend.

    answer          what every run says from now on, then the end token; None: the tiny model's own words
    fault           raised instead of the next forward, once
    forwards        how many forwards have begun to compute
    most_at_once    how many runs were ever inside generate together
    """

    def __init__(self, **changes: Any) -> None:
        self.answer: bytes | None = None
        self.fault: Exception | None = None
        self.forwards = 0
        self.most_at_once = 0
        self._changes = {"max_position_embeddings": 8192, **changes}
        self._moved = threading.Condition()
        self._allowed: int | None = None
        self._held = False
        self._inside = 0
        self._prompt_tokens = 0

    def model(self) -> Any:
        """The model, to be made once."""
        model = tiny_model(**self._changes)
        model.register_forward_pre_hook(self._before_forward)
        forward, generate = model.forward, model.generate

        def overruled(*args: Any, **kwargs: Any) -> Any:
            cache = kwargs.get("cache")
            before = 0 if cache is None else int(cache.get_seq_length())
            outputs = forward(*args, **kwargs)
            answer = self.answer
            if answer is not None:
                said = before + kwargs["input_ids"].shape[1] - self._prompt_tokens
                outputs.logits = outputs.logits * 0
                outputs.logits[:, -1, answer[said] if 0 <= said < len(answer) else EOS_ID] = 1.0
            return outputs

        def counted(inputs: Any, **kwargs: Any) -> Any:
            with self._moved:
                self._inside += 1
                self.most_at_once = max(self.most_at_once, self._inside)
            self._prompt_tokens = int(inputs.shape[1])
            try:
                return generate(inputs, **kwargs)
            finally:
                with self._moved:
                    self._inside -= 1
                    self._moved.notify_all()

        model.forward, model.generate = overruled, counted
        return model

    @contextmanager
    def held(self, after: int = 0) -> Iterator[None]:
        """Inside the block the model makes `after` more forwards and then stands still."""
        self._allow(after)
        try:
            yield
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Run on, as far as it goes."""
        self._allow(None)

    def allow(self, forwards: int) -> None:
        """So many more forwards, then stand still again."""
        self._allow(forwards)

    def wait_until_held(self) -> None:
        """Until a forward stands still."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._held, PATIENCE_S), "the model was never held"

    def wait_until_idle(self) -> None:
        """Until no run is inside generate."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._inside == 0, PATIENCE_S), "a run goes on and on"

    def _allow(self, forwards: int | None) -> None:
        with self._moved:
            self._allowed = forwards
            self._held = False if forwards != 0 else self._held
            self._moved.notify_all()

    def _before_forward(self, module: object, args: object) -> None:
        with self._moved:
            if self._allowed == 0:
                self._held = True
                self._moved.notify_all()
                self._moved.wait_for(lambda: self._allowed != 0, PATIENCE_S)
                self._held = False
            if self._allowed:
                self._allowed -= 1
            fault, self.fault = self.fault, None
            if fault is not None:
                raise fault
            self.forwards += 1
