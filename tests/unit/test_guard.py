"""The guard: raw requests against the middleware alone, then against a real Gradio app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kvdemo.settings import Settings
from kvdemo.web.guard import Guard, GuardRules, content_policy, is_used_route
from kvdemo.web.launch import launch_settings
from tests.served import free_port

LIMIT = 1000
HOST = "127.0.0.1:7860"


def rules(mode: str = "local", host: str = "127.0.0.1") -> GuardRules:
    return GuardRules(mode, host, LIMIT)


class App:
    """An ASGI app that answers with the length of the body it was given, and counts how often it was reached."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        message = await receive()
        length = str(len(message["body"])).encode()
        headers = [(b"access-control-allow-origin", b"*"), (b"content-security-policy", b"default-src *")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": length})


def ask(
    method: str,
    target: str,
    headers: list[tuple[str, str]] | None = None,
    chunks: tuple[bytes, ...] = (b"",),
    guard_rules: GuardRules | None = None,
) -> tuple[int, dict[str, str], bytes, int]:
    """Status, headers and body of one raw request through the guard, and how often the app was reached."""
    app = App()
    path, _, query = target.partition("?")
    given = [("Host", HOST)] if headers is None else headers
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given],
    }
    waiting = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(Guard(app, guard_rules or rules())(scope, receive, send))  # type: ignore[arg-type]
    if not sent:
        return 0, {}, b"", app.calls
    headers_sent = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers_sent, sent[1]["body"], app.calls


@pytest.mark.parametrize(
    ("mode", "listening_on", "host", "answered"),
    [
        ("local", "127.0.0.1", "127.0.0.1:7860", True),
        ("local", "127.0.0.1", "LOCALHOST:80", True),
        ("local", "127.0.0.1", "[::1]:7860", True),
        ("local", "127.0.0.1", "evil.test", False),
        ("local", "127.0.0.1", "127.0.0.1.evil.test", False),
        ("local", "127.0.0.1", "localhost.", False),
        ("local", "127.0.0.1", "user@localhost", False),
        ("local", "127.0.0.1", "localhost:99999", False),
        ("local", "127.0.0.1", "localhost:7860, evil.test", False),
        ("local", "127.0.0.1", "", False),
        ("local", "127.0.0.1", "192.168.1.7:7860", False),
        ("local", "192.168.1.7", "192.168.1.7:7860", True),
        ("local", "::1", "[::1]:7860", True),
        ("local", "lab.example", "LAB.example:7860", True),
        ("local", "0.0.0.0", "192.168.1.7:7860", True),
        ("local", "[::]", "[fe80::1]:7860", True),
        ("local", "0.0.0.0", "rebound.evil.test:7860", False),
        ("local", "127.0.0.1", "abc.gradio.live", False),
        ("share", "127.0.0.1", "abc.gradio.live", True),
        ("share", "127.0.0.1", "abc.gradio.live.evil.test", False),
        ("space", "0.0.0.0", "someone-kvdemo.hf.space", True),
    ],
)
def test_only_the_servers_own_names_are_answered(mode: str, listening_on: str, host: str, answered: bool) -> None:
    status, _, _, calls = ask("GET", "/", [("Host", host)], guard_rules=rules(mode, listening_on))
    assert (status, calls) == ((200, 1) if answered else (400, 0))


ALLOWED = ("kv.example", ".lab.example")


@pytest.mark.parametrize(
    ("listening_on", "host", "answered"),
    [
        ("0.0.0.0", "my-machine:7860", True),
        ("::", "MY-MACHINE.lan", True),
        ("0.0.0.0", "my-machine.evil.test", False),
        ("127.0.0.1", "my-machine:7860", False),  # nobody asks for it by that name there, but for a rebound one
        ("127.0.0.1", "kv.example", True),
        ("0.0.0.0", "KV.example:443", True),
        ("127.0.0.1", "kv.example.:443", True),  # the same name, written in full
        ("127.0.0.1", "kv.example..", False),
        ("127.0.0.1", "v.example", False),
        ("127.0.0.1", "a.kv.example", False),
        ("127.0.0.1", "lab.example", True),
        ("127.0.0.1", "a.b.lab.example", True),
        ("127.0.0.1", "evil-lab.example", False),
        ("127.0.0.1", "lab.example.evil.test", False),
    ],
)
def test_this_machines_names_and_those_that_are_allowed_are_answered(
    listening_on: str, host: str, answered: bool
) -> None:
    named = GuardRules("local", listening_on, LIMIT, allowed_hosts=ALLOWED, own_names=("my-machine", "my-machine.lan"))
    status, _, _, calls = ask("GET", "/", [("Host", host)], guard_rules=named)
    assert (status, calls) == ((200, 1) if answered else (400, 0))


def test_the_refusal_of_a_name_says_which_flag_admits_it_and_repeats_nothing_else() -> None:
    status, _, body, _ = ask("GET", "/", [("Host", "Proxy.Example:8443")])
    assert (status, body.decode()) == (
        400,
        "This page does not answer to the name proxy.example. Start kvdemo with --allow-host proxy.example to allow it.",
    )
    assert b"<script>" not in ask("GET", "/", [("Host", "<script>")])[2]


@pytest.mark.parametrize(
    ("forwarded", "origin", "status", "says"),
    [
        ("kv.example", "https://kv.example", 200, ""),
        ("kv.example:8443", "https://kv.example:8443", 200, ""),
        ("a.lab.example, 10.0.0.1", "https://a.lab.example", 200, ""),
        ("kv.example", "https://evil.test", 403, "Requests from other sites are refused."),
        ("other.example", "https://other.example", 403, "--allow-host other.example"),
    ],
)
def test_a_proxys_name_may_post_where_it_is_allowed(forwarded: str, origin: str, status: int, says: str) -> None:
    named = GuardRules("local", "127.0.0.1", LIMIT, allowed_hosts=ALLOWED)
    headers = [("Host", HOST), ("X-Forwarded-Host", forwarded), ("Origin", origin)]
    told, _, body, _ = ask("POST", "/gradio_api/queue/join", headers, guard_rules=named)
    assert told == status
    assert says in body.decode()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/kv", 200),
        ("/kv/", 200),
        ("/kv/gradio_api/queue/data", 200),
        ("/gradio_api/queue/data", 200),
        ("/kv/monitoring", 404),
        ("/kvx/config", 404),
        ("/kv/kv/config", 404),
    ],
)
def test_the_routes_are_the_same_below_the_path_of_a_proxy(path: str, status: int) -> None:
    below = GuardRules("local", "127.0.0.1", LIMIT, root_path="/kv")
    assert ask("GET", path, guard_rules=below)[0] == status


@pytest.mark.parametrize("headers", [[], [("Host", HOST), ("Host", "evil.test")]])
def test_no_host_and_two_hosts_are_refused(headers: list[tuple[str, str]]) -> None:
    assert ask("GET", "/", headers)[0] == 400


@pytest.mark.parametrize(
    ("mode", "headers", "status"),
    [
        ("local", [("Host", HOST)], 200),
        ("local", [("Host", HOST), ("Origin", f"http://{HOST}")], 200),
        ("local", [("Host", "localhost"), ("Origin", "http://localhost:80")], 200),
        ("local", [("Host", HOST), ("Origin", "http://127.0.0.1:3000")], 403),
        ("local", [("Host", HOST), ("Origin", "http://evil.test")], 403),
        ("local", [("Host", HOST), ("Origin", f"http://{HOST}.evil.test")], 403),
        ("local", [("Host", HOST), ("Origin", "null")], 403),
        ("local", [("Host", HOST), ("Origin", "")], 403),
        ("local", [("Host", HOST), ("Origin", "file://")], 403),
        ("local", [("Host", HOST), ("Origin", "http://evil.test"), ("X-Forwarded-Host", "evil.test")], 403),
        ("share", [("Host", "a.gradio.live"), ("Origin", "https://a.gradio.live")], 200),
        ("share", [("Host", "a.gradio.live"), ("Origin", "https://b.gradio.live")], 403),
        ("space", [("Host", "a-b.hf.space"), ("Origin", "https://a-b.hf.space")], 200),
        (
            "space",
            [("Host", "10.0.0.1:7860"), ("X-Forwarded-Host", "a.hf.space"), ("Origin", "https://a.hf.space")],
            200,
        ),
        ("space", [("Host", "a-b.hf.space"), ("Origin", "https://evil.test")], 403),
    ],
)
def test_a_post_from_another_site_is_refused(mode: str, headers: list[tuple[str, str]], status: int) -> None:
    assert ask("POST", "/gradio_api/queue/join", headers, guard_rules=rules(mode))[0] == status


def test_a_foreign_origin_may_look_but_is_not_invited_to_read() -> None:
    status, headers, _, _ = ask("GET", "/", [("Host", HOST), ("Origin", "http://evil.test")])
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "target", "used"),
    [
        ("GET", "/", True),
        ("HEAD", "/", True),
        ("GET", "/?tab=memory", True),
        ("GET", "/?deep_link=abc", False),
        ("GET", "/?deep%5Flink=abc", False),
        ("GET", "/config/", True),
        ("GET", "/assets/index.js", True),
        ("GET", "/gradio_api/info", True),
        ("GET", "/gradio_api/startup-events", True),
        ("GET", "/gradio_api/queue/data", True),
        ("GET", "/gradio_api/heartbeat/abc", True),
        ("GET", "/gradio_api/call/chat/1", True),
        ("POST", "/gradio_api/call/v2/chat", True),
        ("POST", "/gradio_api/run/predict", True),
        ("POST", "/gradio_api/queue/join", True),
        ("POST", "/gradio_api/upload", True),
        ("GET", "/gradio_api/file=/tmp/gradio/a.csv", True),
        ("GET", "/gradio_api/file=C:/gradio/a.csv", True),
        ("GET", "/gradio_api/file=http://evil.test/a.png", False),
        ("GET", "/gradio_api/file=HTTPS://evil.test/a.png", False),
        ("GET", "/gradio_api/file= https://evil.test/a.png", False),
        ("GET", "/gradio_api/file=//evil.test/a.png", False),
        ("GET", "/gradio_api/file=\\\\evil.test\\a.png", False),
        ("GET", "/gradio_api/file/etc/passwd", False),
        ("GET", "/gradio_api/proxy=https://a.hf.space/x", False),
        ("GET", "/gradio_api/deep_link", False),
        ("GET", "/gradio_api/runs", False),
        ("GET", "/gradio_api/run-history/records", False),
        ("POST", "/gradio_api/run-history/connect", False),
        ("GET", "/monitoring", False),
        ("GET", "/monitoring/summary", False),
        ("POST", "/gradio_api/component_server", False),
        ("POST", "/gradio_api/process_recording", False),
        ("POST", "/gradio_api/vibe-edit/", False),
        ("POST", "/login", False),
        ("GET", "/gradio_api/mcp/schema", False),
        ("GET", "/gradio_api/dev/reload", False),
        ("POST", "/", False),
        ("OPTIONS", "/gradio_api/queue/join", False),
        ("DELETE", "/", False),
    ],
)
def test_routes_that_the_page_does_not_use_are_not_found(method: str, target: str, used: bool) -> None:
    status, _, _, calls = ask(method, target)
    assert (status, calls) == ((200, 1) if used else (404, 0))


@pytest.mark.parametrize(
    ("length", "chunks", "status", "reply"),
    [
        ("3", (b"abc",), 200, b"3"),
        (None, (b"a" * 600, b"b" * 400), 200, b"1000"),
        (None, (b"a" * 600, b"b" * 401), 413, None),
        ("1001", (b"a" * 1001,), 413, None),
        ("5", (b"a" * 1001,), 413, None),
        ("-1", (b"a",), 400, None),
        ("+5", (b"a",), 400, None),
        ("five", (b"a",), 400, None),
        ("9" * 5000, (b"a",), 400, None),
        ("", (b"a",), 400, None),
    ],
)
def test_a_body_is_limited_by_its_header_and_by_what_comes(
    length: str | None, chunks: tuple[bytes, ...], status: int, reply: bytes | None
) -> None:
    headers = [("Host", HOST)] + ([] if length is None else [("Content-Length", length)])
    answer, _, body, calls = ask("POST", "/gradio_api/upload", headers, chunks)
    assert answer == status
    assert calls == (status == 200)
    if reply is not None:
        assert body == reply


def test_a_client_that_asks_before_sending_is_answered_without_reading() -> None:
    headers = [("Host", HOST), ("Content-Length", "5000"), ("Expect", "100-continue")]
    assert ask("POST", "/gradio_api/upload", headers, chunks=())[0] == 413


def test_a_client_that_leaves_while_sending_reaches_nothing() -> None:
    assert ask("POST", "/gradio_api/upload", chunks=())[0] == 0


@pytest.mark.parametrize("target", ["/", "/nowhere"])
def test_every_answer_carries_the_headers_and_no_others_of_their_kind(target: str) -> None:
    _, headers, _, _ = ask("GET", target)
    assert headers["content-security-policy"] == content_policy("local")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_the_policy_names_foreign_hosts_only_where_the_mode_needs_them() -> None:
    assert "http" not in content_policy("local")
    assert "frame-ancestors 'none'" in content_policy("local")
    for source in ("img-src", "form-action", "connect-src", "object-src"):
        assert source in content_policy("local")
    share = content_policy("share").split("; ")
    assert [part.split()[0] for part in share if "https:" in part] == [
        "script-src",
        "style-src",
        "img-src",
        "font-src",
        "connect-src",
    ]
    space = content_policy("space").split("; ")
    assert [part.split()[0] for part in space if "https:" in part] == ["frame-ancestors"]


def test_a_web_socket_is_closed() -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = App()
    asyncio.run(Guard(app, rules())({"type": "websocket", "path": "/"}, receive, send))  # type: ignore[arg-type]
    assert ([message["type"] for message in sent], app.calls) == (["websocket.close"], 0)


def test_undecodable_queries_are_only_text() -> None:
    assert is_used_route("GET", "/", b"\xff\xfe=%zz")


@pytest.fixture(scope="module")
def gradio_app() -> Iterator[httpx.Client]:
    """A real Gradio page with one queued, one light and one API event, served as in local mode."""
    import gradio as gr

    def shout(text: str) -> str:
        return text + "!"

    with gr.Blocks() as page:
        box = gr.Textbox()
        gr.Button().click(shout, box, box, api_name="queued")
        gr.Button().click(shout, box, box, queue=False, api_name="light")
        gr.api(shout, api_name="shout")
    served = launch_settings(Settings())
    _, address, _ = page.queue(**served.queue).launch(**served.launch)
    try:
        with httpx.Client(base_url=address) as client:
            yield client
    finally:
        page.close(verbose=False)


def test_gradios_own_answers_pass_the_guard(gradio_app: httpx.Client) -> None:
    page = gradio_app.get("/")
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == content_policy("local")
    preflight = {"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"}
    for method, path, headers, status in (
        ("GET", "/", {"Host": "evil.test"}, 400),
        ("OPTIONS", "/gradio_api/queue/join", {"Host": "evil.test", **preflight}, 400),
        ("OPTIONS", "/gradio_api/queue/join", preflight, 404),
        ("POST", "/gradio_api/queue/join", {"Origin": "http://evil.test"}, 403),
        ("POST", "/gradio_api/run/queued", {}, 404),
        ("GET", "/gradio_api/file=/etc/passwd", {}, 403),
        ("GET", "/gradio_api/heartbeat", {}, 404),
    ):
        answer = gradio_app.request(method, path, headers=headers, json={"data": ["a"]} if method == "POST" else None)
        assert answer.status_code == status, (method, path, answer.text)
        assert answer.headers["content-security-policy"] == content_policy("local")
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_page_and_its_api_work_through_the_guard(gradio_app: httpx.Client) -> None:
    light = gradio_app.post("/gradio_api/run/light", json={"data": ["a"]})
    assert light.json()["data"] == ["a!"]
    started = gradio_app.post("/gradio_api/call/v2/shout", json={"text": "a"})
    events = gradio_app.get(f"/gradio_api/call/v2/shout/{started.json()['event_id']}")
    assert events.text == 'event: complete\ndata: ["a!"]\n\n'
    assert "/shout" in gradio_app.get("/gradio_api/info").json()["named_endpoints"]
    theme = gradio_app.get("/theme.css")
    assert theme.status_code == 200


def test_a_body_that_is_too_large_gets_its_answer_over_a_real_connection(gradio_app: httpx.Client) -> None:
    whole = gradio_app.post("/gradio_api/queue/join", content=b"x" * 10_000_000)
    assert (whole.status_code, "5,767,168" in whole.text) == (413, True)
    in_pieces = gradio_app.post("/gradio_api/queue/join", content=(b"y" * 1_000_000 for _ in range(10)))
    assert in_pieces.status_code == 413
    just_right = json.dumps({"data": ["a" * 100], "padding": "p" * 5_000_000})
    assert gradio_app.post("/gradio_api/run/light", content=just_right).status_code != 413


@pytest.mark.parametrize("prefix", ["", "/kv"], ids=["the proxy takes the path off", "it leaves it on"])
def test_the_page_works_below_the_path_of_a_proxy(prefix: str) -> None:
    import gradio as gr

    with gr.Blocks() as page:
        box = gr.Textbox()
        gr.Button().click(lambda text: text + "!", box, box, queue=False, api_name="light")
    served = launch_settings(Settings(root_path="/kv", allowed_hosts=("kv.example",)), port=free_port())
    _, address, _ = page.queue(**served.queue).launch(**served.launch)
    asked = {"Host": "kv.example", "X-Forwarded-Proto": "https"}
    try:
        with httpx.Client(base_url=address.rstrip("/") + prefix, headers=asked) as client:
            assert client.get("/config").json()["root"] == "https://kv.example/kv"
            assert "https://kv.example/kv" in client.get("/").text
            told = client.post("/gradio_api/run/light", json={"data": ["a"]}, headers={"Origin": "https://kv.example"})
            assert told.json()["data"] == ["a!"]
    finally:
        page.close(verbose=False)
