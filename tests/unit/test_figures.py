"""The last line of every benchmark: its figures, and between what each of them lies."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from benchmarks.figures import between, in_words, print_figures
from benchmarks.hooks import OwnTime
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from tests.known import ended
from tests.tiny import PROMPT, tiny_loaded

FOLDER = Path(__file__).parents[2] / "benchmarks"
BUILDING_BLOCKS = {"__init__.py", "figures.py", "hooks.py", "machine.py", "random_model.py"}


def test_the_last_line_has_every_figure_with_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures({"ratio": [1.0, 3.0, 2.0], "once": [4.0]}, worst={"longest_s": [5.0, 7.0, 6.0]}, rounds=3)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {
        "ratio": 2.0,
        "once": 4.0,
        "longest_s": 7.0,
        "rounds": 3,
        "intervals": {
            "ratio": {"low": 1.0, "high": 3.0, "coverage": None},
            "once": None,
            "longest_s": {"low": 5.0, "high": 7.0, "coverage": None},
        },
    }


def test_from_six_values_on_the_interval_is_that_of_the_median_with_its_coverage() -> None:
    assert between([1, 2, 3, 4, 5, 6, 7, 8, 9]) == {"low": 2, "high": 8, "coverage": pytest.approx(0.961, abs=1e-3)}
    assert in_words([1, 2, 3, 4, 5, 6, 7, 8, 9], 0) == "5 (2 to 8, 96.1%, 9 rounds)"
    assert in_words([1.0, 2.0]) == "1.500 (1.000 to 2.000, range, 2 rounds)"
    assert in_words([1.0]) == "1.000 (one round)"


@pytest.mark.parametrize("script", sorted({path.name for path in FOLDER.glob("*.py")} - BUILDING_BLOCKS))
def test_every_benchmark_says_its_intervals(script: str) -> None:
    source = (FOLDER / script).read_text("utf-8")
    called = {
        node.func.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    assert "print_figures" in called or '"intervals"' in source


def test_our_own_code_in_the_models_thread_is_timed_and_changes_nothing() -> None:
    loaded, own = tiny_loaded(), OwnTime()
    request = GenerationRequest(PROMPT, 6, fixed_length=True)
    before = ended(stream(loaded, request, turnstile=Turnstile(1)))
    watched = own.watch(loaded)
    after = ended(stream(watched, request, turnstile=Turnstile(1)))
    assert after.record.token_ids == before.record.token_ids
    assert after.record.positions_computed == before.record.positions_computed
    assert 0 < own.share_of(after.record) < 1
    assert own.share_of(after.record) == 0  # nothing since
    assert watched.gate.listener is None
    loaded.thread.close()
