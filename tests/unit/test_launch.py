"""How each mode is served, read from the settings that Gradio is given."""

from __future__ import annotations

import inspect
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.settings import PUBLIC_LIMITS, Settings
from kvdemo.web.guard import Guard
from kvdemo.web.launch import calm_queue, launch_settings

MODES = ("local", "share", "space")


def settings(mode: str) -> Settings:
    return Settings(mode=mode) if mode == "local" else replace(Settings(mode=mode), limits=PUBLIC_LIMITS)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_unsafe_is_off_in_every_mode(mode: str) -> None:
    served = launch_settings(settings(mode))
    assert served.queue["api_open"] is False
    off = ("run_history", "ssr_mode", "enable_monitoring", "show_error", "mcp_server", "debug", "pwa", "inbrowser")
    assert {name: served.launch[name] for name in off} == dict.fromkeys(off, False)
    assert served.launch["strict_cors"] is True
    assert served.launch["max_file_size"] == 5 * 1024 * 1024
    assert served.launch["prevent_thread_lock"] is True


@pytest.mark.parametrize("mode", MODES)
def test_what_is_given_is_what_gradio_takes(mode: str) -> None:
    import gradio as gr

    served = launch_settings(settings(mode))
    assert set(served.launch) <= set(inspect.signature(gr.Blocks.launch).parameters)
    assert set(served.queue) <= set(inspect.signature(gr.Blocks.queue).parameters)


@pytest.mark.parametrize(
    ("mode", "host", "port", "server_name", "server_port", "share"),
    [
        ("local", None, None, "127.0.0.1", None, False),
        ("local", "0.0.0.0", 8000, "0.0.0.0", 8000, False),
        ("local", "::1", None, "[::1]", None, False),
        ("share", None, None, "127.0.0.1", None, True),
        ("space", None, None, "0.0.0.0", 7860, False),
    ],
)
def test_where_each_mode_listens(
    mode: str, host: str | None, port: int | None, server_name: str, server_port: int | None, share: bool
) -> None:
    served = launch_settings(settings(mode), host=host, port=port).launch
    assert (served["server_name"], served["server_port"], served["share"]) == (server_name, server_port, share)


def test_the_lines_are_shorter_where_others_can_open_the_page() -> None:
    sizes = {mode: launch_settings(settings(mode)).queue["max_size"] for mode in MODES}
    assert sizes == {"local": 80, "share": 40, "space": 40}


@pytest.mark.parametrize("mode", MODES)
def test_the_guard_is_around_the_whole_app_before_its_first_request(mode: str) -> None:
    import asyncio

    class Served:
        middleware_stack: Any = object()

    async def start() -> Any:
        app = Served()
        async with launch_settings(settings(mode)).launch["app_kwargs"]["lifespan"](app):
            return app.middleware_stack

    assert isinstance(asyncio.run(start()), Guard)


def test_the_queue_of_a_page_looks_for_work_twenty_times_a_second() -> None:
    import gradio as gr

    with gr.Blocks() as page:
        gr.Textbox()
    page.queue(**launch_settings(Settings()).queue)
    assert page._queue.sleep_when_free < 0.05
    calm_queue(page)
    assert page._queue.sleep_when_free == 0.05


@pytest.mark.parametrize("page", [object(), SimpleNamespace(_queue=None), SimpleNamespace(_queue=SimpleNamespace())])
def test_a_queue_without_that_pause_stays_as_it_is(page: Any) -> None:
    before = repr(page)
    calm_queue(page)
    assert repr(page) == before


def rules_of(settings: Settings, **options: Any) -> Any:
    import asyncio

    class Served:
        middleware_stack: Any = object()

    async def start() -> Any:
        app = Served()
        async with launch_settings(settings, **options).launch["app_kwargs"]["lifespan"](app):
            return app.middleware_stack._rules

    return asyncio.run(start())


def test_this_machines_own_names_are_asked_for_where_every_address_is_listened_on() -> None:
    assert rules_of(Settings(), host="0.0.0.0", names=lambda: ("my-machine",)).own_names == ("my-machine",)
    assert rules_of(Settings(), names=lambda: ("my-machine",)).own_names == ()
    assert rules_of(Settings(), host="::").own_names[0] == socket.gethostname().lower()


def test_names_and_path_of_a_proxy_come_from_switches_and_variables() -> None:
    environ = {"KVDEMO_ALLOWED_HOSTS": "b.example, .C.example", "KVDEMO_ROOT_PATH": "/from/environment/"}
    settings = Settings.from_environment(environ, allow_hosts=["A.example"])
    assert settings.allowed_hosts == ("a.example", "b.example", ".c.example")
    assert settings.root_path == "/from/environment"
    assert Settings.from_environment(environ, root_path="/kv").root_path == "/kv"
    served = launch_settings(Settings(root_path="/kv", allowed_hosts=("a.example",)))
    assert served.launch["root_path"] == "/kv"
    rules = rules_of(Settings(root_path="/kv", allowed_hosts=("a.example",)))
    assert (rules.root_path, rules.allowed_hosts) == ("/kv", ("a.example",))


@pytest.mark.parametrize(
    ("options", "environ", "field"),
    [
        ({"allow_hosts": ["https://a.example"]}, {}, "--allow-host"),
        ({"allow_hosts": ["a.example:80"]}, {}, "--allow-host"),
        ({"allow_hosts": ["*.example"]}, {}, "--allow-host"),
        ({}, {"KVDEMO_ALLOWED_HOSTS": "a.example/x"}, "KVDEMO_ALLOWED_HOSTS"),
        ({"root_path": "kv"}, {}, "--root-path"),
        ({"root_path": "//evil.test"}, {}, "--root-path"),
        ({"root_path": "/../x"}, {}, "--root-path"),
        ({}, {"KVDEMO_ROOT_PATH": "https://a.example/kv"}, "KVDEMO_ROOT_PATH"),
    ],
)
def test_a_name_or_path_that_is_none_is_refused_by_its_switch(
    options: dict[str, Any], environ: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{field}: "):
        Settings.from_environment(environ, **options)
