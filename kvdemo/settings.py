"""What the operator decided: environment and flags, checked once, and the limits of each mode.

KVDEMO_MODEL   hub id, folder, .gguf, or tiny-window     KVDEMO_HOME    where converted models and compiled code are kept
KVDEMO_MODE    local, share or space                    KVDEMO_DEVICE  auto, cpu, cuda, mps
KVDEMO_DTYPE   auto, float32, bfloat16, float16
KVDEMO_ALLOWED_HOSTS   further names that the page answers to, with commas; a leading dot: and all below it
KVDEMO_ALLOWED_ENDPOINTS   HOST or HOST:PORT of engines that may be asked beside those that anybody may, with commas
KVDEMO_ROOT_PATH       the path that a proxy in front puts before the page's own
KVDEMO_SYSTEM_PROMPT   a system prompt shared by all visitors: processed once at start, copied for each conversation
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvdemo.errors import InvalidRequest

__all__ = ["DEFAULT_MODEL", "TINY_WINDOW", "TINY_WINDOW_NAME", "Limits", "Settings"]

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TINY_WINDOW, TINY_WINDOW_NAME = "tiny-window", "tiny-window (random weights)"
"""A model that kvdemo builds itself: what is typed for it, and what it is called wherever its figures stand."""
MODES = ("local", "share", "space")
DEVICES = ("auto", "cpu", "cuda", "mps")
HOST_NAME = re.compile(r"\[[0-9a-f:.]+\]|\.?[a-z0-9_][a-z0-9._-]*", re.IGNORECASE | re.ASCII)
ROOT_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a visitor may ask for.

    waiting            runs that may stand in line
    new_tokens         longest answer
    run_s              wall-clock limit of one run
    compare_budget_s   wall-clock limit of one comparison
    kept_cache_share   share of the memory free without them for caches kept between turns; idle_s: how long they are kept
    """

    waiting: int = 20
    new_tokens: int = 4096
    prompt_chars: int = 200_000
    run_s: float = 600.0
    compare_budget_s: float = 3600.0
    kept_cache_share: float = 0.25
    idle_s: float = 900.0
    upload_bytes: int = 5 * 1024 * 1024


PUBLIC_LIMITS = Limits(waiting=10, new_tokens=1024, run_s=180.0, compare_budget_s=600.0, prompt_chars=50_000)


@dataclass(frozen=True, slots=True)
class Settings:
    model: str | None = None
    home: Path = field(default_factory=lambda: default_home({}))
    mode: str = "local"
    device: str = "auto"
    dtype: str = "auto"
    limits: Limits = field(default_factory=Limits)
    system_prompt: str = ""
    allowed_hosts: tuple[str, ...] = ()
    root_path: str = ""
    allowed_endpoints: tuple[str, ...] = ()

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str],
        *,
        model: str | None = None,
        share: bool = False,
        allow_hosts: Sequence[str] = (),
        root_path: str | None = None,
        allow_endpoints: Sequence[str] = (),
    ) -> Settings:
        """Settings from the environment, flags first; InvalidRequest that names the variable otherwise."""
        mode = environ.get("KVDEMO_MODE") or ("space" if environ.get("SYSTEM") == "spaces" else "local")
        if share and mode == "local":
            mode = "share"
        for name, value, choices in (
            ("KVDEMO_MODE", mode, MODES),
            ("KVDEMO_DEVICE", environ.get("KVDEMO_DEVICE") or "auto", DEVICES),
            ("KVDEMO_DTYPE", environ.get("KVDEMO_DTYPE") or "auto", DTYPES),
        ):
            if value not in choices:
                raise InvalidRequest(name, f"{value!r} is not one of {', '.join(choices)}")
        return cls(
            model=model or environ.get("KVDEMO_MODEL") or None,
            home=home_in(environ),
            mode=mode,
            device=environ.get("KVDEMO_DEVICE") or "auto",
            dtype=environ.get("KVDEMO_DTYPE") or "auto",
            limits=Limits() if mode == "local" else PUBLIC_LIMITS,
            system_prompt=checked_system_prompt(environ.get("KVDEMO_SYSTEM_PROMPT") or ""),
            allowed_hosts=(
                *checked_hosts("--allow-host", allow_hosts),
                *checked_hosts("KVDEMO_ALLOWED_HOSTS", re.split(r"[,\s]+", environ.get("KVDEMO_ALLOWED_HOSTS", ""))),
            ),
            allowed_endpoints=(
                *checked_endpoints("--allow-endpoint", allow_endpoints),
                *checked_endpoints(
                    "KVDEMO_ALLOWED_ENDPOINTS", re.split(r"[,\s]+", environ.get("KVDEMO_ALLOWED_ENDPOINTS", ""))
                ),
            ),
            root_path=checked_root_path("--root-path", root_path)
            if root_path is not None
            else checked_root_path("KVDEMO_ROOT_PATH", environ.get("KVDEMO_ROOT_PATH", "")),
        )


def checked_system_prompt(text: str) -> str:
    if len(text) > 20_000 or "\x00" in text:
        raise InvalidRequest("KVDEMO_SYSTEM_PROMPT", "must be text of at most 20,000 characters")
    return text


def checked_hosts(field: str, names: Sequence[str]) -> tuple[str, ...]:
    """Names as a browser sends them, lower-case."""
    for name in filter(None, names):
        if not HOST_NAME.fullmatch(name):
            raise InvalidRequest(
                field, f"{name[:80]!r} is not a name such as lab.example or .lab.example, without scheme, port and path"
            )
    return tuple(name.lower() for name in names if name)


def checked_endpoints(field: str, names: Sequence[str]) -> tuple[str, ...]:
    """HOST or HOST:PORT, lower-case."""
    for name in filter(None, names):
        host, _, port = name.rpartition(":") if re.search(r"^[^:]+:\d{1,5}$", name) else (name, "", "1")
        if not HOST_NAME.fullmatch(host) or host.startswith(".") or not 0 < int(port) < 65_536:
            raise InvalidRequest(field, f"{name[:80]!r} is not a host or HOST:PORT, without scheme and path")
    return tuple(name.lower() for name in names if name)


def checked_root_path(field: str, path: str) -> str:
    """ "" or a path with a slash at its beginning and none at its end."""
    path = path.rstrip("/")
    if path and not ROOT_PATH.fullmatch(path):
        raise InvalidRequest(field, f"{path[:80]!r} is not a path such as /kvdemo")
    return path


def home_in(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ["KVDEMO_HOME"]).expanduser() if environ.get("KVDEMO_HOME") else default_home(environ)
    except RuntimeError:  # no home folder, or ~user without such a user
        raise InvalidRequest("KVDEMO_HOME", "give a whole path: this user, or the one it names, has no home") from None


def default_home(environ: Mapping[str, str]) -> Path:
    """kvdemo's folder in the user's cache directory."""
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "kvdemo"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvdemo"
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kvdemo"
    return Path.home() / ".cache" / "kvdemo"
