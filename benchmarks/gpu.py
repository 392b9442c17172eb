"""What is measured on a machine with a GPU, within minutes: every available strategy, 300 new tokens, memory. JSON to a folder,
and the ratios in one line of it at the end.

Each part has its share of the time; what it has when that is over is kept, and a part that fails leaves the others.

    python -m benchmarks.gpu OUT [--model NAME] [--seconds 420]     benchmarks/gpu.sh calls it
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.streaming import PROMPT
from kvdemo.backend import Backend
from kvdemo.errors import ModelUnavailable
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.documents import document, dumps
from kvdemo.experiments.pieces import plain
from kvdemo.facts.model import Ready
from kvdemo.facts.plans import MeasuredPoint
from kvdemo.facts.requests import MeasureSpec
from kvdemo.facts.results import Progress
from kvdemo.questions.faster.words import headline, scope
from kvdemo.settings import Settings

OWNER = "gpu"
SHARES = {"strategies": 0.55, "300-tokens": 0.25, "memory": 0.20}
LENGTHS = (512, 2048, 8192, 32_768)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", help="as for python -m kvdemo")
    parser.add_argument("--seconds", type=float, default=420.0, help="for all parts together, loading aside")
    parser.add_argument("--new-tokens", type=int, default=300, help="of the second part")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    backend = Backend(Settings.from_environment(os.environ, model=arguments.model))
    backend.start()
    status = backend.wait_until_settled()
    if not isinstance(status, Ready):
        raise ModelUnavailable(getattr(status, "reason", "the model did not load"))
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "strategies": lambda: strategies(backend),
        "300-tokens": lambda: long_answer(backend, arguments.new_tokens),
        "memory": lambda: memory(backend),
    }
    failed, made = 0, {}
    for name, part in parts.items():
        alarm = threading.Timer(SHARES[name] * arguments.seconds, backend.stop, (OWNER,))
        alarm.start()
        try:
            made[name] = part()
            (arguments.out / f"{name}.json").write_text(dumps(made[name]) + "\n", encoding="utf-8")
        except Exception:  # the other parts are wanted whatever happens to this one
            failed += 1
            (arguments.out / f"{name}.error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            print(f"{name} failed; see {name}.error.txt", file=sys.stderr, flush=True)
        finally:
            alarm.cancel()
    backend.close()
    print(json.dumps(in_short(made)))
    return 1 if failed else 0


def in_short(made: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of every comparison the ratio of each strategy's generation time to the baseline's, and between what it lies."""
    found = {
        f"{part} {item['baseline']} / {item['candidate']}": item
        for part, whole in made.items()
        for item in whole.get("comparisons", ())
        if item["metric"] == "generation_s"
    }
    intervals = {key: {name: item[name] for name in ("low", "high", "coverage")} for key, item in found.items()}
    return {**{key: item["ratio"] for key, item in found.items()}, "intervals": intervals}


def strategies(backend: Backend) -> dict[str, Any]:
    """Every strategy that can be used here, without a cache as the baseline: 100 new tokens, six rounds."""
    rows = backend.strategies()
    for row in rows:
        print(f"{row.key}: {row.unavailable_reason or 'available'}", flush=True)
    keys = tuple(row.key for row in rows if row.unavailable_reason is None)
    return compared(backend, CompareSpec(PROMPT, keys, 100, rounds=6))


def long_answer(backend: Backend, new_tokens: int) -> dict[str, Any]:
    """The published experiment's length: with the cache and without."""
    return compared(backend, CompareSpec(PROMPT, ("none", "dynamic"), new_tokens, rounds=6))


def memory(backend: Backend) -> dict[str, Any]:
    """Dynamic and static caches, filled as far as the model's context and the memory allow."""
    limit = backend.describe().context_limit or LENGTHS[-1]
    lengths = tuple(length for length in LENGTHS if length < limit) or (limit // 2,)
    points = []
    for point in backend.measure_memory(MeasureSpec(lengths), owner=OWNER):
        if not isinstance(point, MeasuredPoint):  # a sign of life
            continue
        points.append(point)
        off = point.held_bytes - point.predicted_bytes
        print(f"{point.strategy}, {point.seq_len:,} tokens: {point.held_bytes:,} bytes, {off:,} off", flush=True)
    return backend.measured_document(points)


def compared(backend: Backend, spec: CompareSpec) -> dict[str, Any]:
    result = followed(backend.ask(spec, owner=OWNER))
    print(plain(headline(result)), scope(result), sep="\n", flush=True)
    return document(result)


def followed(steps: Iterator[Any]) -> ComparisonResult:
    phase, step = "", None
    for step in steps:
        if isinstance(step, Progress) and step.phase != phase:
            phase = step.phase
            print(f"  {step.elapsed_s:6.1f} s  {phase}", flush=True)
    assert isinstance(step, ComparisonResult)
    return step


if __name__ == "__main__":
    sys.exit(main())
