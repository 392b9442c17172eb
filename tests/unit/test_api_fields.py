"""Which field of a call is wrong, said before Gradio sees the call."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from kvdemo.web.api_fields import ApiFields, Field, mistake

FIELDS = (Field("message", required=True), Field("seed", required=False))


@pytest.mark.parametrize(
    ("body", "by_name", "words"),
    [
        (b'{"message": "hi"}', True, ""),
        (b'{"message": 7, "seed": null}', True, ""),  # values are the endpoint's own business
        (b'{"message": "hi", "max_tokens": 1}', True, "max_tokens: is no field of chat; it takes message, seed"),
        (b'{"seed": 1}', True, "message: is missing"),
        (b"[]", True, "The body must be a JSON object."),
        (b"\xff", True, "The body is not JSON."),
        (b"[" * 100_000, True, "The body is not JSON."),
        (b'{"data": ["hi", 1]}', False, ""),
        (b'{"data": ["hi"]}', False, "data: must be a list of 2 values: message, seed"),
        (b'{"message": "hi"}', False, "data: must be a list of 2 values: message, seed"),
    ],
)
def test_the_first_mistake_of_a_call_is_named(body: bytes, by_name: bool, words: str) -> None:
    assert mistake("chat", FIELDS, body, by_name=by_name) == words


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@pytest.mark.parametrize("root_path", ["", "/demo"])
def test_a_call_without_a_mistake_arrives_as_it_was_sent_and_another_does_not(root_path: str) -> None:
    app = Starlette(routes=[Route(f"{root_path}/gradio_api/{{rest:path}}", echo, methods=["GET", "POST"])])
    client = TestClient(ApiFields(app, lambda: {"chat": FIELDS}, root_path))
    here = f"{root_path}/gradio_api"
    assert client.post(f"{here}/call/v2/chat", content=b'{"message":  "hi"}').text == '{"message":  "hi"}'
    refused = client.post(f"{here}/call/v2/chat/", json={"messages": []})
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "messages: is no field of chat; it takes message, seed",
    )
    assert client.post(f"{here}/call/v2/complete", json={}).status_code == 404
    assert client.post(f"{here}/queue/join", content=b"anything").text == "anything"
    assert client.get(f"{here}/call/v2/chat/1").status_code == 200
