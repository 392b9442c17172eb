"""How each mode is served: the keyword arguments of Gradio's `queue` and `launch`, as plain dictionaries.

It starts nothing and imports no Gradio. Every setting that an environment variable could change is given here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kvdemo.settings import Settings
from kvdemo.surroundings import direct_to_this_machine
from kvdemo.web.api_fields import ApiFields, endpoints_of
from kvdemo.web.guard import EVERY_ADDRESS, Guard, GuardRules

__all__ = ["LaunchSettings", "calm_queue", "guarded", "launch_settings", "open_page"]

SPACE_PORT = 7860
NAME_SERVER_S = 1.0
QUEUE_PAUSE_S = 0.05
# Beside an uploaded file or a prompt written in JSON's \\u escapes, a request holds little.
BODY_ALLOWANCE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """`queue` and `launch` hold the keyword arguments of the methods of the same name of a Gradio page."""

    queue: dict[str, Any]
    launch: dict[str, Any]


def own_names() -> tuple[str, ...]:
    """This machine's host name and its fully qualified one, where a name server tells that soon."""
    names = [socket.gethostname()]
    asking = threading.Thread(target=lambda: names.append(socket.getfqdn()), daemon=True)
    asking.start()
    asking.join(NAME_SERVER_S)
    return tuple(name.lower() for name in names)


def launch_settings(
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    names: Callable[[], tuple[str, ...]] = own_names,
) -> LaunchSettings:
    """How to serve the page in the mode of `settings`.

    host    address to listen on; by default this machine only, or every address in a Space
    port    None: the first free one from 7860, or 7860 in a Space
    names   asked for this machine's own names where every address is listened on
    """
    in_space = settings.mode == "space"
    host = host or ("0.0.0.0" if in_space else "127.0.0.1")
    rules = GuardRules(
        settings.mode,
        host,
        settings.limits.upload_bytes + BODY_ALLOWANCE_BYTES,
        allowed_hosts=settings.allowed_hosts,
        own_names=names() if host in EVERY_ADDRESS and not in_space else (),
        root_path=settings.root_path,
    )
    return LaunchSettings(
        queue={
            # With the API open, direct calls skip the queue, its limits and the validators.
            "api_open": False,
            # All queued events of the page count, not only those that wait for the model.
            "max_size": 4 * settings.limits.waiting,
            "default_concurrency_limit": 20,
        },
        launch={
            "server_name": f"[{host}]" if ":" in host and not host.startswith("[") else host,
            "server_port": port or (SPACE_PORT if in_space else None),
            "share": settings.mode == "share",
            "prevent_thread_lock": True,
            "inbrowser": False,
            "quiet": True,
            "debug": False,
            "show_error": False,
            "strict_cors": True,
            "root_path": settings.root_path,
            # Gradio asks its own page whether it is there; with certificates it would read them, and they may be broken.
            "ssl_verify": False,
            # An advisory that is open in 6.31 needs both off; run history also stores inputs in the browser in clear.
            "run_history": False,
            "ssr_mode": False,
            "enable_monitoring": False,
            "mcp_server": False,
            "pwa": False,
            "footer_links": [],
            "max_file_size": settings.limits.upload_bytes,
            "state_session_capacity": 1000 if settings.mode == "local" else 200,
            "app_kwargs": {"lifespan": guarded(rules)},
        },
    )


def calm_queue(page: Any) -> None:
    """Let the queue of a Gradio page look for work twenty times a second, where it would a thousand times.

    Each look takes the interpreter's lock from the thread that runs the model: a thousand of them cost a tenth of the
    speed, and 8 % of a core where nobody is there. A run may begin that much later. The name is private to Gradio: where
    there is none, the queue stays as it is.
    """
    queue: Any = getattr(page, "_queue", None)
    if isinstance(getattr(queue, "sleep_when_free", None), float):
        queue.sleep_when_free = QUEUE_PAUSE_S


def open_page(page: Any, served: LaunchSettings, style: dict[str, Any]) -> tuple[str, str | None]:
    """Launch a Gradio page; its address here, and the public one, None without it. OSError: the address cannot be used."""
    launch = served.launch | style
    with direct_to_this_machine(launch["server_name"], others=launch["share"]) as may_ask_others:
        _, address, public_address = page.launch(**launch | {"share": may_ask_others})
    return address, public_address


def guarded(rules: GuardRules) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan that puts the guard around an app's whole stack, before it answers its first request.

    Middleware given to the app would not do: Gradio adds its own outside of it, which answers preflight requests of
    any host by itself, and the app's error page stands outside of both.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        inside = ApiFields(app.middleware_stack, lambda: endpoints_of(app), rules.root_path)
        app.middleware_stack = Guard(inside, rules)
        yield

    return lifespan
