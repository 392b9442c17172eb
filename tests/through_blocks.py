"""Events of a built page run as Gradio runs them, without a server: values in, what each output is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.state_holder import SessionState
from starlette.requests import Request

__all__ = ["Visit"]


@dataclass
class Visit:
    """One visitor's session with a page."""

    demo: gr.Blocks
    session: str = "abc"
    query: str = ""

    def __post_init__(self) -> None:
        self.state = SessionState(self.demo)

    def event(self, name: str, place: str = "") -> Any:
        """The first event whose handler has this name and, where a place is given, is triggered by a part of this id."""
        ids = {number for number, block in self.demo.blocks.items() if getattr(block, "elem_id", None) == place}
        return next(
            fn
            for fn in self.demo.fns.values()
            if fn.name == name and (not place or ids & {target for target, _ in fn.targets})
        )

    def values(self, fn: Any) -> list[Any]:
        """What the parts that the event reads hold when the page opens."""
        return [None if isinstance(block, gr.State) else getattr(block, "value", None) for block in fn.inputs]

    def run(self, fn: Any, values: list[Any] | None = None) -> list[dict[Any, Any]]:
        """Each time the handler gives something back: the outputs that are told something, with what they are told.

        States are not among them: they are in `state`.
        """
        return asyncio.run(self._run(fn, self.values(fn) if values is None else values))

    async def _run(self, fn: Any, values: list[Any]) -> list[dict[Any, Any]]:
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": self.query.encode()}
        told, iterator = [], None
        while True:
            answer = await self.demo.process_api(
                fn,
                values,
                state=self.state,
                request=gr.Request(Request(scope), session_hash=self.session),
                iterator=iterator,
                session_hash=self.session,
            )
            if iterator is None or answer["is_generating"]:
                assert len(answer["data"]) == len(fn.outputs)
                said = zip(fn.outputs, answer["data"], strict=True)
                seen = ((block, value) for block, value in said if not isinstance(block, gr.State))
                told.append({block: value for block, value in seen if value != {"__type__": "update"}})
            iterator = answer["iterator"]
            if not answer["is_generating"]:
                return told
