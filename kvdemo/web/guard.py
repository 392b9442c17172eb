"""Stands in front of the web app: which hosts, origins, routes and sizes get through, and the headers of every answer.

It is an ASGI middleware that knows paths and headers only, nothing of the page, the model or Gradio's code. What it
lets through is a list of the routes that the page and its API use; everything else is not found.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["API", "Guard", "GuardRules", "Refusal", "content_policy", "replayed"]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
EVERY_ADDRESS = ("0.0.0.0", "::", "[::]")
SHARE_DOMAIN = ".gradio.live"
SHARE_FRONT_END = "https://gradio.s3-us-west-2.amazonaws.com"
SPACE_FRAMES = "'self' https://huggingface.co https://*.hf.space"

# A body that is refused is still read up to this size, so that the client gets to see the answer.
DISCARDED_BYTES = 64 * 1024 * 1024

API = "/gradio_api"
READ_PATHS = {
    *("/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json", "/pwa_icon"),
    *(f"{API}/{name}" for name in ("info", "openapi.json", "app_id", "theme.css", "startup-events", "upload_progress")),
    *(f"{API}/queue/{name}" for name in ("data", "status")),
}
READ_PREFIXES = ("/static/", "/assets/", "/svelte/", "/pwa_icon/", f"{API}/heartbeat/", f"{API}/call/")
FILE_PREFIX = f"{API}/file="
WRITE_PATHS = {f"{API}/{name}" for name in ("queue/join", "upload", "cancel", "reset")}
WRITE_PREFIXES = (f"{API}/call/", f"{API}/run/", f"{API}/api/")

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_][a-z0-9._-]*)(?::(\d{1,5}))?", re.IGNORECASE | re.ASCII)
_ORIGIN = re.compile(r"(https?)://(.+)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in place of the app's: its status and one line that says why."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class GuardRules:
    """What one mode lets through.

    mode             local, share or space
    host             the address the server was told to listen on; an address that means "all" admits this machine's own
                     names and every IP address, since another name is what DNS rebinding needs
    max_body_bytes   longest request body
    allowed_hosts    further names, lower-case; one that begins with a dot stands for itself and all below it
    own_names        what this machine is called, lower-case
    root_path        the path that a proxy in front puts before ours; it may take it off again, or not
    """

    mode: str
    host: str
    max_body_bytes: int
    allowed_hosts: tuple[str, ...] = ()
    own_names: tuple[str, ...] = ()
    root_path: str = ""

    def refusal(self, method: str, path: str, query: bytes, headers: Headers) -> Refusal | None:
        """Why this request must not reach the app, from its first lines alone; None when it may."""
        if self.mode != "space" and not self.answers_to(headers.getlist("host")):
            return Refusal(400, self._unknown_host(headers.getlist("host")))
        if self.root_path and (path == self.root_path or path.startswith(self.root_path + "/")):
            path = path.removeprefix(self.root_path) or "/"
        if not is_used_route(method, path, query):
            return Refusal(404, "Not found.")
        origin = headers.get("origin")
        if method not in ("GET", "HEAD") and origin is not None and not self.same_origin(origin, headers):
            return Refusal(403, "Requests from other sites are refused." + self._proxy_advice(origin, headers))
        if not re.fullmatch(r"[0-9]{1,15}", headers.get("content-length", "0")):
            return Refusal(400, "Content-Length is not a length.")
        return None

    def too_large(self) -> Refusal:
        """The answer to a body beyond the limit."""
        return Refusal(413, f"The request is too large: the limit is {self.max_body_bytes:,} bytes.")

    def answers_to(self, hosts: list[str]) -> bool:
        """Whether the Host header (all of its occurrences) names this server."""
        authority = _authority(hosts[0]) if len(hosts) == 1 else None
        if authority is None:
            return False
        name, _ = authority
        if name in LOCAL_HOSTS or name in (self.host.lower(), f"[{self.host.lower()}]"):
            return True
        if self.mode == "share" and name.endswith(SHARE_DOMAIN):
            return True
        if self._is_allowed(name):
            return True
        return self.host in EVERY_ADDRESS and (name in self.own_names or _is_ip_address(name))

    def _is_allowed(self, name: str) -> bool:
        name = name.removesuffix(".")  # which ends a name written in full
        return any(
            name == one or (one.startswith(".") and (name == one[1:] or name.endswith(one)))
            for one in self.allowed_hosts
        )

    def _proxy_advice(self, origin: str, headers: Mapping[str, str]) -> str:
        """Where a proxy says that the page was asked for by this very name: how to allow it."""
        match, forwarded = _ORIGIN.fullmatch(origin), _authority(headers.get("x-forwarded-host", ""))
        asked = _authority(match[2]) if match is not None else None
        if asked is None or forwarded is None or asked[0] != forwarded[0]:
            return ""
        return f" If {asked[0]} is this page's name at a proxy, start kvdemo with --allow-host {asked[0]}."

    def _unknown_host(self, hosts: list[str]) -> str:
        """What to do about a Host header that names somebody else, in one line; only a name is repeated."""
        authority = _authority(hosts[0]) if len(hosts) == 1 else None
        if authority is None:
            return "This page does not answer to that host name."
        name = authority[0]
        return f"This page does not answer to the name {name}. Start kvdemo with --allow-host {name} to allow it."

    def same_origin(self, origin: str, headers: Mapping[str, str]) -> bool:
        """Whether Origin is the page's own: scheme aside, the host and port that the request went to.

        A proxy in front, as a Space has one, may keep the public name in X-Forwarded-Host. No browser lets another site
        set that header without asking first, and what asks is refused; outside a Space the name must be an allowed one.
        """
        match = _ORIGIN.fullmatch(origin)
        if match is None:
            return False
        default_port = _DEFAULT_PORTS[match[1].lower()]
        targets = [headers.get("host", "")]
        forwarded = headers.get("x-forwarded-host", "").split(",")[0].strip()
        public = _authority(forwarded)
        if self.mode == "space" or (public is not None and self._is_allowed(public[0])):
            targets.append(forwarded)
        source = _authority(match[2], default_port)
        return source is not None and source in [_authority(target, default_port) for target in targets]

    def answer_headers(self) -> dict[str, str]:
        """The headers that every answer carries."""
        return {
            "Content-Security-Policy": content_policy(self.mode),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }


class Guard:
    """ASGI middleware that holds the rules. It must be the outermost one, so that no answer passes beside it."""

    def __init__(self, app: ASGIApp, rules: GuardRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page opens no WebSocket
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        guarded_send = self._with_headers(send)
        refusal = self._rules.refusal(scope["method"], scope["path"], scope.get("query_string", b""), headers)
        body: bytes | Refusal | None = refusal
        if refusal is None:
            body = await self._read_body(int(headers.get("content-length", "0")), headers, receive)
        if isinstance(body, Refusal):
            response = PlainTextResponse(body.reason, body.status, headers={"Connection": "close"})
            await response(scope, receive, guarded_send)
        elif body is not None:
            await self._app(scope, replayed(body, receive), guarded_send)

    async def _read_body(self, declared_bytes: int, headers: Headers, receive: Receive) -> bytes | Refusal | None:
        """The whole body, counted while it comes in; None when the client went away."""
        limit = self._rules.max_body_bytes
        fits = declared_bytes <= limit
        if not fits and headers.get("expect", "").lower() == "100-continue":
            return self._rules.too_large()
        chunks: list[bytes] = []
        num_bytes = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            num_bytes += len(message.get("body", b""))
            fits = fits and num_bytes <= limit
            if fits:
                chunks.append(message.get("body", b""))
            else:
                chunks.clear()
            if not message.get("more_body", False) or num_bytes > DISCARDED_BYTES:
                return b"".join(chunks) if fits else self._rules.too_large()

    def _with_headers(self, send: Send) -> Send:
        async def guarded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # The page is its own only client in a browser; no other site is invited to read its answers.
                for name in [name for name in headers if name.startswith("access-control-")]:
                    del headers[name]
                headers.update(self._rules.answer_headers())
            await send(message)

        return guarded_send


def content_policy(mode: str) -> str:
    """The content security policy of a mode: nothing foreign, except a share page's own front end."""
    front_end = f" {SHARE_FRONT_END}" if mode == "share" else ""
    parts = {
        "default-src": "'self'",
        "script-src": f"'self' 'unsafe-inline'{front_end}",
        "style-src": f"'self' 'unsafe-inline'{front_end}",
        "img-src": f"'self' data: blob:{front_end}",
        "font-src": f"'self' data:{front_end}",
        "connect-src": f"'self'{front_end}",
        "form-action": "'self'",
        "object-src": "'none'",
        "base-uri": "'self'",
        "frame-ancestors": SPACE_FRAMES if mode == "space" else "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def is_used_route(method: str, path: str, query: bytes) -> bool:
    """Whether the page or its API uses this route. `path` is decoded, as ASGI gives it."""
    if "deep_link" in parse_qs(query.decode("latin-1"), keep_blank_values=True):
        return False
    bare = path.rstrip("/") or "/"
    if method in ("GET", "HEAD"):
        if path.startswith(FILE_PREFIX):
            return _is_local_path(path.removeprefix(FILE_PREFIX))
        return bare in READ_PATHS or path.startswith(READ_PREFIXES)
    return method == "POST" and (bare in WRITE_PATHS or path.startswith(WRITE_PREFIXES))


def _is_local_path(path: str) -> bool:
    """An absolute path of this machine: neither a URL nor a network share. A drive letter is no scheme."""
    return not re.match(r"\s*(//|\\\\|[a-z][a-z0-9+.-]+:)", path, re.IGNORECASE)


def _authority(value: str, default_port: int | None = None) -> tuple[str, int | None] | None:
    """host[:port] as (lower-case host, port); None when it is anything else."""
    match = _AUTHORITY.fullmatch(value)
    if match is None:
        return None
    port = int(match[2]) if match[2] else default_port
    return (match[1].lower(), port) if port is None or port < 65_536 else None


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` with the body in one piece before it; after that it only tells that the client went away."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
