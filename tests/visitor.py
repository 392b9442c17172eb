"""A visitor over bare HTTP: a session that calls the page's events as the browser does, and can leave at any moment."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.served import Served

__all__ = ["Visitor", "api_events", "api_result", "event_id_of"]

PATIENCE_S = 60.0
# NaN and lone surrogates travel in it as Python writes them.
JSON = {"Content-Type": "application/json"}


class Visitor:
    """One session. An event is named by its function, or by function@element where several share a function.

    What it is sent are the page's first values, with those of the elements named in the call in their place; dashes of
    an element's id are underscores there. What it answers is told by the elements' ids.
    """

    def __init__(self, page: Served) -> None:
        self.page = page
        self.session = uuid.uuid4().hex[:12]
        self.http = httpx.Client(base_url=page.url, timeout=PATIENCE_S)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def light(self, event: str, **elements: Any) -> dict[str, Any]:
        """What an event that needs no queue answers."""
        answer = self.post_light(event, **elements)
        answer.raise_for_status()
        return self._told(event, answer.json()["data"])

    def post_light(self, event: str, **elements: Any) -> httpx.Response:
        return self.http.post("/gradio_api/run/predict", content=self._body(event, elements), headers=JSON)

    def join(self, event: str, **elements: Any) -> str:
        """Put a queued event in line; its id."""
        answer = self.http.post("/gradio_api/queue/join", content=self._body(event, elements), headers=JSON)
        answer.raise_for_status()
        return str(answer.json()["event_id"])

    @contextmanager
    def listening(self) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of this session's queued events; leaving the block drops the connection."""
        query = {"session_hash": self.session}
        with self.http.stream("GET", "/gradio_api/queue/data", params=query) as stream:
            yield (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))

    def views(self, event: str, messages: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """What a queued event shows, view after view, to its end; AssertionError when it fails."""
        for message in messages:
            if message["msg"] == "process_generating":
                assert message["success"], message
                yield self._told(event, message["output"]["data"])
            if message["msg"] == "process_completed":
                assert message["success"], message
                return

    def run(self, event: str, **elements: Any) -> list[dict[str, Any]]:
        """Everything that a queued event shows."""
        self.join(event, **elements)
        with self.listening() as messages:
            return list(self.views(event, messages))

    def ask(self, question: str, **elements: Any) -> dict[str, Any]:
        """Send a question on the page; what is shown when it is answered."""
        refused = self.light("take", chat_box=question)["chat-notice"]
        assert not refused, refused
        return self.run("answer", **elements)[-1]

    @contextmanager
    def open_page(self) -> Iterator[None]:
        """The page is open in a tab of this visitor's browser; leaving the block closes the tab."""
        with self.http.stream("GET", f"/gradio_api/heartbeat/{self.session}") as stream:
            lines = stream.iter_lines()  # dropped, it would close the connection
            next(lines)
            yield
            del lines

    def owner(self, place: str) -> str:
        return f"{self.session}/{place}"

    def _body(self, event: str, elements: dict[str, Any]) -> str:
        number, fn = self._event(event)
        given = {name.replace("_", "-"): value for name, value in elements.items()}
        data = [
            given.pop(block.elem_id) if block.elem_id in given else None if is_state(block) else block.value
            for block in fn.inputs
        ]
        assert not given, f"{event} does not take {sorted(given)}"
        asked = {"fn_index": number, "data": data, "session_hash": self.session, "simple_format": True}
        return json.dumps({**asked, "event_data": None, "trigger_id": None})

    def _told(self, event: str, data: list[Any]) -> dict[str, Any]:
        return {
            block.elem_id: value
            for block, value in zip(self._event(event)[1].outputs, data, strict=True)
            if not is_state(block)
        }

    def _event(self, event: str) -> tuple[int, Any]:
        name, _, element = event.partition("@")
        blocks = self.page.demo.blocks
        found = [
            (number, fn)
            for number, fn in self.page.demo.fns.items()
            if fn.name == name and (not element or any(blocks[one].elem_id == element for one, _ in fn.targets if one))
        ]
        assert found, f"the page has no event {event}"
        return found[0]


def is_state(block: Any) -> bool:
    return type(block).__name__ == "State"


def event_id_of(http: httpx.Client, endpoint: str, **values: Any) -> str:
    """Start an endpoint of the API; the id to read its events by."""
    answer = http.post(f"/gradio_api/call/v2/{endpoint}", content=json.dumps(values), headers=JSON)
    answer.raise_for_status()
    return str(answer.json()["event_id"])


def api_events(http: httpx.Client, endpoint: str, **values: Any) -> Iterator[tuple[str, Any]]:
    """(event, data) pairs of an endpoint of the API, as curl -N shows them."""
    number = event_id_of(http, endpoint, **values)
    with http.stream("GET", f"/gradio_api/call/v2/{endpoint}/{number}") as stream:
        event = ""
        for line in stream.iter_lines():
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("data:") and event != "heartbeat":
                yield event, json.loads(line[5:])


def api_result(http: httpx.Client, endpoint: str, **values: Any) -> tuple[str, Any]:
    """The last (event, data) of an endpoint."""
    return list(api_events(http, endpoint, **values))[-1]
