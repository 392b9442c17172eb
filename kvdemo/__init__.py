"""kvdemo: what a KV cache buys, and what it costs, on a real language model."""

TYPE_CHECKING = False  # as typing has it, which is not imported for that
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from kvdemo.watching.observer import Observer

__all__ = ["watch"]
__version__ = "0.1.0"


def watch(**options: "Any") -> "AbstractContextManager[Observer]":
    """What a block of a program of one's own does with a cache; nothing is imported before it is called.

        with kvdemo.watch() as seen:
            model.generate(...)
        print(seen)  # seen.record() has the figures

    options: see kvdemo.watching.observer.Observer.
    """
    from kvdemo.watching.observer import watch as observed

    return observed(**options)
