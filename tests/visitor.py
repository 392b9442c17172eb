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
    """One session. Events of the page are named by their function and, where several share it, by their order."""

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

    def light(self, name: str, *values: Any, nth: int = 0) -> list[Any]:
        """What an event that needs no queue answers."""
        answer = self.http.post("/gradio_api/run/predict", json=self._body(name, values, nth))
        answer.raise_for_status()
        return answer.json()["data"]

    def join(self, name: str, *values: Any, nth: int = 0) -> str:
        """Put a queued event in line; its id."""
        answer = self.http.post("/gradio_api/queue/join", json=self._body(name, values, nth))
        answer.raise_for_status()
        return answer.json()["event_id"]

    @contextmanager
    def listening(self) -> Iterator[Iterator[dict[str, Any]]]:
        """The messages of this session's queued events; leaving the block drops the connection."""
        query = {"session_hash": self.session}
        with self.http.stream("GET", "/gradio_api/queue/data", params=query) as stream:
            yield (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))

    def run(self, name: str, *values: Any, nth: int = 0) -> list[list[Any]]:
        """Everything that a queued event yields, to its end."""
        self.join(name, *values, nth=nth)
        told = []
        with self.listening() as messages:
            for message in messages:
                if message["msg"] in ("process_generating", "process_completed"):
                    assert message["success"], message
                    told.append(message["output"]["data"])
                if message["msg"] == "process_completed":
                    break
        return told

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

    def _body(self, name: str, values: tuple[Any, ...], nth: int) -> dict[str, Any]:
        found = [index for index, fn in self.page.demo.fns.items() if fn.name == name]
        return {
            "fn_index": found[nth],
            "data": list(values),
            "session_hash": self.session,
            "event_data": None,
            "trigger_id": None,
            "simple_format": True,
        }


def event_id_of(http: httpx.Client, endpoint: str, **values: Any) -> str:
    """Start an endpoint of the API; the id to read its events by."""
    answer = http.post(f"/gradio_api/call/v2/{endpoint}", content=json.dumps(values), headers=JSON)
    answer.raise_for_status()
    return answer.json()["event_id"]


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
