"""What the server answers to whom: raw requests against the page as it is served."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from kvdemo.web.guard import content_policy
from tests.served import Served

LIMIT_BYTES = 5 * 1024 * 1024 + 512 * 1024


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/?__theme=dark",
        "/?tab=memory",
        "/config",
        "/theme.css",
        "/gradio_api/info",
        "/gradio_api/openapi.json",
        "/gradio_api/startup-events",
    ],
)
def test_what_the_page_needs_is_answered_with_safe_headers(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == content_policy("local")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/deep_link"),
        ("GET", "/?deep_link=x"),
        ("GET", "/gradio_api/proxy=http://evil.test/"),
        ("GET", "/gradio_api/file=http://evil.test/"),
        ("GET", "/gradio_api/file=//evil.test/share"),
        ("GET", "/gradio_api/run_history"),
        ("GET", "/monitoring"),
        ("GET", "/gradio_api/monitoring"),
        ("GET", "/gradio_api/token"),
        ("POST", "/login"),
        ("GET", "/gradio_api/mcp/"),
        ("POST", "/gradio_api/component_server"),
        ("GET", "/docs"),
    ],
)
def test_what_the_page_does_not_need_is_not_there_and_says_so_with_safe_headers(
    http: httpx.Client, method: str, path: str
) -> None:
    answer = http.request(method, path)
    assert answer.status_code == 404
    assert answer.headers["content-security-policy"] == content_policy("local")
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "app.py", "../app.py"])
def test_no_file_of_this_machine_is_served(http: httpx.Client, path: str) -> None:
    assert http.get(f"/gradio_api/file={path}").status_code in (403, 404)


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1.evil.test", "192.168.1.7:7860"])
def test_another_host_name_is_refused(http: httpx.Client, host: str) -> None:
    for method, path in (("GET", "/"), ("POST", "/gradio_api/queue/join"), ("GET", "/gradio_api/info")):
        assert http.request(method, path, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("origin", ["http://evil.test", "null", "https://127.0.0.1", "http://localhost:1"])
def test_a_post_from_another_site_is_refused_and_runs_nothing(page: Served, http: httpx.Client, origin: str) -> None:
    before = page.puppet.forwards
    for path in ("queue/join", "call/v2/chat", "run/predict", "cancel", "upload"):
        answer = http.post(f"/gradio_api/{path}", json={"message": "hello"}, headers={"Origin": origin})
        assert answer.status_code == 403, path
    assert page.puppet.forwards == before


def test_a_preflight_from_another_site_is_not_answered(http: httpx.Client) -> None:
    asked = {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"}
    answer = http.options("/gradio_api/queue/join", headers=asked)
    assert answer.status_code >= 400
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_body_over_the_limit_is_refused_by_its_header_and_by_counting(page: Served, http: httpx.Client) -> None:
    before = page.puppet.forwards
    body = b'{"message": "' + b"x" * LIMIT_BYTES + b'"}'

    def in_pieces() -> Iterator[bytes]:
        for at in range(0, len(body), 2**20):
            yield body[at : at + 2**20]

    assert http.post("/gradio_api/call/v2/chat", content=body).status_code == 413
    assert http.post("/gradio_api/call/v2/chat", content=in_pieces()).status_code == 413
    assert page.puppet.forwards == before


def test_no_queued_event_can_be_called_past_the_queue(page: Served, http: httpx.Client) -> None:
    before = page.puppet.forwards
    queued = {number: fn for number, fn in page.demo.fns.items() if fn.queue}
    assert queued
    for number, fn in queued.items():
        asked = {"data": [None] * len(fn.inputs), "session_hash": "direct"}
        for prefix in ("run", "api"):
            named = http.post(f"/gradio_api/{prefix}/{fn.api_name}", json=asked)
            numbered = http.post(f"/gradio_api/{prefix}/predict", json={**asked, "fn_index": number})
            assert {named.status_code, numbered.status_code} <= {404, 422}, fn.name
    assert page.puppet.forwards == before
