"""The README's way over HTTP, typed as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.served import Served

README = Path(__file__).resolve().parents[2] / "README.md"
pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")


def typed(url: str) -> subprocess.Popen[str]:
    """The README's lines in a shell, with the address of this page."""
    [lines] = re.findall(r"```\n(EVENT=\$\(curl .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert "curl -N http://127.0.0.1:7860/" in lines
    return subprocess.Popen(
        ["bash", "-c", lines.replace("http://127.0.0.1:7860", url)], stdout=subprocess.PIPE, text=True, bufsize=1
    )


def events_of(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    event = ""
    for line in process.stdout:
        if line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:") and event in ("generating", "complete", "error"):
            yield event, json.loads(line[5:])


def test_the_first_event_is_there_before_the_last_token_is_made(page: Served) -> None:
    page.puppet.answer = b"Mercury, Venus and Earth."
    before = page.puppet.forwards
    with page.puppet.held(after=4), typed(page.url) as process:
        told = events_of(process)
        page.puppet.wait_until_held()
        assert next(told)[1][0]["event"] in ("waiting", "prompt_encoded")
        assert next(data[0]["text"] for _, data in told if data[0]["event"] == "token") == "M"
        # The model stands after its fourth token of twenty-five.
        assert page.puppet.forwards - before == 4
        page.puppet.let_go()
        rest = list(told)
    assert rest[-1][0] == "complete"
    finished = rest[-1][1][0]
    assert (finished["event"], finished["reason"], finished["text"]) == (
        "finished",
        "stop",
        "Mercury, Venus and Earth.",
    )


@pytest.mark.real
def test_the_default_model_answers_as_the_readme_says(real_page: Served) -> None:
    with typed(real_page.url) as process:
        told = [data[0] for event, data in events_of(process)]
    kinds = [event["event"] for event in told if event["event"] != "working"]
    assert kinds.index("prompt_encoded") < kinds.index("token") < kinds.index("finished")
    finished = told[-1]
    assert finished["event"] == "finished"
    assert 1 < finished["new_tokens"] <= 64
    assert any(planet in finished["text"] for planet in ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn"))
