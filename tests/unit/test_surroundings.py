"""A hostile environment: the page opens all the same, and a request to the hub that cannot be made is one line."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvdemo.errors import InvalidRequest, ModelUnavailable
from kvdemo.generation.environment import environment
from kvdemo.models.hub import asking_for
from kvdemo.settings import Settings
from kvdemo.surroundings import client_problem, direct_to_this_machine, take_over
from kvdemo.web.launch import launch_settings, open_page

ROOT = Path(__file__).parents[2]
UNUSABLE = [
    ("ALL_PROXY", "socks5://me:secret@127.0.0.1:9", "needs a package"),
    ("all_proxy", "socks://me:secret@x", "not the address of a proxy"),
    ("HTTPS_PROXY", "secret://x", "not the address of a proxy"),
    ("SSL_CERT_FILE", "/secret", "names no certificates"),
]


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def page() -> Iterator[Any]:
    import gradio as gr

    with gr.Blocks() as page:
        gr.Textbox()
    yield page
    page.close(verbose=False)


@pytest.mark.parametrize(("name", "value"), [("HTTP_PROXY", "http://127.0.0.1:9"), *(row[:2] for row in UNUSABLE)])
def test_the_page_opens_whatever_proxy_is_set(
    name: str, value: str, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    served = launch_settings(Settings())
    address, public_address = open_page(page.queue(**served.queue), served, {})
    assert httpx.get(address, trust_env=False).status_code == 200
    assert public_address is None
    assert os.environ[name] == value
    assert not {"NO_PROXY", "no_proxy"} & set(os.environ)


def test_a_proxy_that_can_be_used_is_used_for_others_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "intern.example")
    with direct_to_this_machine("192.168.1.7", others=True) as usable:
        assert usable
        assert set(os.environ["NO_PROXY"].split(",")) >= {"localhost", "127.0.0.1", "192.168.1.7", "intern.example"}
    assert os.environ["NO_PROXY"] == "intern.example"


def test_a_public_address_is_not_asked_for_beside_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://x")
    with direct_to_this_machine("127.0.0.1", others=True) as usable:
        assert not usable


@pytest.mark.parametrize(("name", "value", "words"), UNUSABLE)
def test_a_request_to_the_hub_that_cannot_be_made_is_one_line_without_the_value(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ModelUnavailable) as caught, asking_for("owner/name"):
        raise AssertionError("nothing was to be asked")
    text = str(caught.value)
    assert text.startswith("owner/name is not in the local hub cache and ")
    assert name in text
    assert words in text
    assert "secret" not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "value", ["", "http://proxy.example:3128", "proxy.example:3128", "https://me:secret@proxy.example"]
)
def test_a_proxy_that_can_be_used_is_no_problem(value: str) -> None:
    assert client_problem({"HTTPS_PROXY": value}) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UnicodeEncodeError("ascii", "Bearer secret\xfc", 13, 14, "ordinal"), "HF_TOKEN"),
        (httpx.LocalProtocolError("Illegal header value b'Bearer secret '"), "HF_TOKEN"),
        (httpx.ConnectError("secret"), "cannot be reached"),
        (httpx.InvalidURL("secret"), "cannot be reached"),
        (PermissionError(13, "Permission denied", "/secret/hub"), "see HF_HOME .Permission denied"),
    ],
)
def test_what_the_hubs_client_raises_is_one_line_that_quotes_nothing(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ModelUnavailable, match=words) as caught, asking_for("owner/name"):
        raise error
    assert "secret" not in str(caught.value) + caplog.text
    # One line, and that is raised.
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert "\n" not in str(caught.value)


def test_the_tries_of_the_hubs_client_are_not_told_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with asking_for("owner/name"):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
    assert caplog.records == []


def test_how_the_page_is_served_is_not_read_from_the_environment() -> None:
    environ = {
        "GRADIO_SERVER_PORT": "seven",
        "GRADIO_ALLOWED_PATHS": "/",
        "GRADIO_ROOT_PATH": "/x",
        "GRADIO_TEMP_DIR": "/tmp/uploads",
        "WEB_CONCURRENCY": "many",
        "HOME": "/home/somebody",
    }
    assert take_over(environ) == []
    assert environ == {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": "/tmp/uploads",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HOME": "/home/somebody",
    }


def test_a_user_without_a_home_gets_a_temporary_one_and_one_line() -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    environ: dict[str, str] = {}
    (note,) = take_over(environ, nowhere)
    assert "KVDEMO_HOME" in note
    assert Path(environ["HOME"]).stat().st_mode & 0o777 == 0o700
    assert take_over({"KVDEMO_HOME": "/somewhere"}, nowhere) == []


def test_a_home_that_names_nobody_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequest, match="KVDEMO_HOME"):
        Settings.from_environment({"KVDEMO_HOME": "~no-such-user/x"})


HOSTILE = {
    "HF_ENDPOINT": "http://[bad",
    "HF_HUB_DOWNLOAD_TIMEOUT": "soon",
    "GRADIO_SERVER_PORT": "seven",
    "WEB_CONCURRENCY": "many",
    "ALL_PROXY": "socks://x",
}


def test_a_command_that_needs_the_hub_says_in_lines_what_is_wrong() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "kvdemo", "memory", "--model", "some-owner/not-in-the-cache"],
        cwd=ROOT,
        env={**os.environ, **HOSTILE},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = told.stderr.splitlines()
    assert (told.returncode, told.stdout, len(lines)) == (2, "", 3), told.stderr
    assert all(re.match(r"kvdemo: \S", line) for line in lines)
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in lines[0]
    assert "HF_ENDPOINT" in lines[1]
    assert "some-owner/not-in-the-cache" in lines[2]


def test_the_commit_is_ours_whatever_repository_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = environment().commit
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "theirs"], check=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert environment().commit == ours
