"""Names the field that is wrong in a call of the API: Gradio itself answers such a call with a bare 500.

An ASGI middleware inside the guard, for the two routes that start an endpoint: by names (call/v2) and by position (call).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kvdemo.web.guard import API, replayed

__all__ = ["ApiFields", "Field", "endpoints_of", "mistake"]

BY_NAME, BY_POSITION = f"{API}/call/v2/", f"{API}/call/"


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of an endpoint."""

    name: str
    required: bool


Endpoints = Mapping[str, Sequence[Field]]
"""An endpoint's name -> its parameters, in order."""


class ApiFields:
    """`endpoints` is asked at each call: by then the page is built. root_path: as for the guard."""

    def __init__(self, app: ASGIApp, endpoints: Callable[[], Endpoints], root_path: str = "") -> None:
        self._app = app
        self._root_path = root_path
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(self._root_path)
        if scope["type"] != "http" or scope["method"] != "POST" or not path.startswith(BY_POSITION):
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        by_name = path.startswith(BY_NAME)
        name = path.removeprefix(BY_NAME if by_name else BY_POSITION).rstrip("/")
        endpoints = self._endpoints()
        if name not in endpoints:
            words, status = f"There is no endpoint {name[:40]!r}; there are {', '.join(endpoints)}.", 404
        else:
            words, status = mistake(name, endpoints[name], body, by_name=by_name), 422
        if words:
            await JSONResponse({"detail": words}, status)(scope, receive, send)
            return
        await self._app(scope, replayed(body, receive), send)


def mistake(endpoint: str, fields: Sequence[Field], body: bytes, *, by_name: bool) -> str:
    """What is wrong with the fields of a call, "" when nothing is; their values are the endpoint's own business."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return "The body is not JSON."
    if not isinstance(given, dict):
        return "The body must be a JSON object."
    if not by_name:
        values = given.get("data")
        if not isinstance(values, list) or len(values) != len(fields):
            return f"data: must be a list of {len(fields)} values: {', '.join(field.name for field in fields)}"
        return ""
    known = [field.name for field in fields]
    if unknown := [name for name in given if name not in known]:
        return f"{unknown[0][:40]}: is no field of {endpoint}; it takes {', '.join(known)}"
    if missing := [field.name for field in fields if field.required and field.name not in given]:
        return f"{missing[0]}: is missing"
    return ""


def endpoints_of(app: Any) -> Endpoints:
    """The public endpoints of a Gradio app."""
    named = app.get_blocks().get_api_info()["named_endpoints"]
    return {
        name.removeprefix("/"): [
            Field(one["parameter_name"], not one["parameter_has_default"]) for one in endpoint["parameters"]
        ]
        for name, endpoint in named.items()
    }
