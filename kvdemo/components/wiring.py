"""How events are wired: which are private, which wait in a queue, and which reach the model.

Light events skip Gradio's queue, so that they answer at once while a run is going. Events that reach the model share one
group with room for many: the backend's turnstile does the waiting, not the queue.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import gradio as gr

from kvdemo.facts.reader import Reader

__all__ = [
    "CHATTING",
    "LIGHT",
    "MEASURING",
    "MODEL",
    "SLOW",
    "Updates",
    "bound",
    "owner_of",
    "stopping",
    "unhurried",
    "updates",
]

T = TypeVar("T")

Updates = dict[Any, Any]
"""What a handler gives back: a value or a gr.update for each component that changes; the others stay as they are."""

LIGHT: dict[str, Any] = {"queue": False, "api_visibility": "private", "show_progress": "hidden"}
MODEL: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "concurrency_id": "model",
    "concurrency_limit": 20,
}
# Seconds of a core, but not the model: reading a pasted config, asking which cache is in force.
SLOW: dict[str, Any] = {
    "api_visibility": "private",
    "show_progress": "hidden",
    "concurrency_id": "config",
    "concurrency_limit": 2,
}
CHATTING = Reader(every_s=0.1, on_page=True)
MEASURING = Reader(every_s=0.5, on_page=True)


def owner_of(request: gr.Request | None, place: str) -> str:
    """Whose run this is: the page's session and the place on the page, so that Stop in one tab leaves the other alone."""
    session = request.session_hash if request is not None else None
    return f"{session or 'nobody'}/{place}"


def updates(changes: Updates) -> Updates:
    """The changes as Gradio takes them: an empty dict would be a value, nothing to change is gr.skip()."""
    return changes or gr.skip()


class Stoppable(Protocol):
    """What Stop needs of the backend; it lies above."""

    def stop(self, owner: str) -> None: ...


def stopping(backend: Stoppable, place: str) -> Callable[..., None]:
    """What a Stop button does: end what the visitor runs at this place."""

    def stop(request: gr.Request) -> None:
        backend.stop(owner_of(request, place))

    return stop


def unhurried(views: Iterator[T]) -> Iterator[T]:
    """`views`, for a handler to pass on: whoever stops reading does not wait for the run to end.

    Gradio closes a handler in the thread that serves everybody, and a forward may take long. The run is told to end all
    the same, and the turnstile lets nobody in before it has.
    """
    try:
        for view in views:  # noqa: UP028 - "yield from" would close `views` here and now
            yield view
    except GeneratorExit:
        threading.Thread(target=getattr(views, "close", lambda: None), name="kvdemo-leaving", daemon=True).start()
        raise


def bound(handler: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """A handler with its first arguments given, as Gradio wants it.

    Gradio reads a handler's signature: for gr.Request, and for whether it is a generator. A bare functools.partial loses
    both, and so do annotations that stay text.
    """
    signature = inspect.signature(handler, eval_str=True)
    parameters = list(signature.parameters.values())[len(given) :]

    if inspect.isgeneratorfunction(handler):

        @functools.wraps(handler)
        def call(*values: Any, **named: Any) -> Any:
            yield from handler(*given, *values, **named)

    else:

        @functools.wraps(handler)
        def call(*values: Any, **named: Any) -> Any:
            return handler(*given, *values, **named)

    del call.__wrapped__
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call
