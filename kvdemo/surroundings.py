"""What the environment brings along and libraries trip over: proxies, certificates, settings of theirs, a missing home.

Nothing of it may keep a page of this machine from opening. Where it matters, for a request to the hub, it is told in one line.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["client_problem", "direct_to_this_machine", "take_over"]

PROXIES = tuple(name for upper in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY") for name in (upper, upper.lower()))
NO_PROXY = ("NO_PROXY", "no_proxy")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
# huggingface_hub reads these as numbers when it is imported, and fails.
NUMBERS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")


def take_over(environ: MutableMapping[str, str], user_home: Callable[[], Path] = Path.home) -> list[str]:
    """Make the environment fit for the libraries, before they are imported; what a person should know, one line each.

    How the page is served is ours to say, so what Gradio and its server would read is taken out, but for the folder of
    its temporary files.
    """
    notes = []
    for name in list(environ):
        if (name.startswith("GRADIO_") and name != "GRADIO_TEMP_DIR") or name == "WEB_CONCURRENCY":
            del environ[name]
    environ.update({"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"})
    for name in NUMBERS:
        value = environ.get(name)
        if value is not None and not (value.isascii() and value.isdigit()):
            del environ[name]
            notes.append(f"{name} is not a whole number of seconds and is left out.")
    try:
        urlsplit(environ.get("HF_ENDPOINT", "")).port  # noqa: B018 - raises
    except ValueError:
        # Not taken out: nobody who named a hub of his own wants to ask another one.
        environ["HF_ENDPOINT"] = "unusable"
        notes.append("HF_ENDPOINT is not an address: nothing can be fetched from a hub.")
    if _has_no_home(environ, user_home):
        home = tempfile.mkdtemp(prefix="kvdemo-home-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        environ["HOME"] = home
        environ.setdefault("USER", "kvdemo")  # libraries ask for a name, too
        if not environ.get("KVDEMO_HOME"):
            notes.append(
                "this user has no home folder: what is converted and compiled is deleted at the end. "
                "Set KVDEMO_HOME to a folder that keeps it."
            )
    return notes


def client_problem(environ: Mapping[str, str]) -> str | None:
    """What in the environment keeps an HTTP client from being made at all; None when nothing does. No value is shown:
    a proxy's may hold a password."""
    import httpx

    for name in PROXIES:
        if value := environ.get(name):
            try:
                httpx.Client(
                    proxy=value if "://" in value else f"http://{value}", trust_env=False, verify=False
                ).close()
            except ImportError:
                return f"the proxy in {name} needs a package that is not installed (pip install socksio)"
            except (ValueError, httpx.InvalidURL):
                return f"{name} is not the address of a proxy, such as http://proxy.example:3128"
    named = [name for name in CERTIFICATES if environ.get(name)]
    if named:
        try:
            httpx.create_ssl_context()
        except OSError:
            return f"{' or '.join(named)} names no certificates that can be read"
    return None


@contextlib.contextmanager
def direct_to_this_machine(host: str = "127.0.0.1", *, others: bool = False) -> Iterator[bool]:
    """Inside, requests to this machine use no proxy; those to others do where `others`, and none is made for them where
    the proxy cannot be used: whether they may be made is what it yields."""
    usable = others and client_problem(os.environ) is None
    before = {name: os.environ.get(name) for name in NO_PROXY}
    hosts = ["localhost", "127.0.0.1", "::1", host.strip("[]"), *(value for value in before.values() if value)]
    os.environ.update(dict.fromkeys(NO_PROXY, ",".join(hosts) if usable else "*"))
    try:
        yield usable
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _has_no_home(environ: Mapping[str, str], user_home: Callable[[], Path]) -> bool:
    """A user id without a name, as containers have them, and nothing said."""
    if environ.get("HOME") or environ.get("USERPROFILE"):
        return False
    try:
        user_home()
    except RuntimeError:
        return True
    return False
