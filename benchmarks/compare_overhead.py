"""What does the instrument cost? A run inside a comparison beside plain generate in a bare script: same prompt, same tokens.

The bare script is a process of its own with transformers alone. Both run interleaved: in every round the comparison's run and
the script's stand next to each other, in turn first and second, and the ratio is taken inside the round.

    python -m benchmarks.compare_overhead [--rounds 15] [--new-tokens 64] [--model NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.machine import say_if_busy
from benchmarks.streaming import PROMPT
from kvdemo.backend import Backend
from kvdemo.engine.engine import load_named
from kvdemo.errors import ModelUnavailable
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.statistics import median, order_statistic_interval
from kvdemo.facts.events import Finished
from kvdemo.facts.model import Ready
from kvdemo.facts.results import ArmEvent, Progress
from kvdemo.models.loaded import LoadedModel
from kvdemo.settings import Settings

LEAST_ROUNDS = 15
ARM = "dynamic"

BARE_SCRIPT = """
import sys, time, torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, dtype, device, prompt, new_tokens = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
inputs = tokenizer(prompt, return_tensors="pt").to(device)
print("ready", flush=True)
for line in sys.stdin:
    begin = time.perf_counter()
    output = model.generate(
        **inputs, max_new_tokens=int(new_tokens), do_sample=False, eos_token_id=None, pad_token_id=0
    )
    ids = output[0].tolist()  # waits for an accelerator
    print(time.perf_counter() - begin, len(ids) - inputs["input_ids"].shape[1], flush=True)
"""


class BareScript:
    """The script in its process, which generates whenever it is asked."""

    def __init__(self, folder: str, dtype: str, device: str, new_tokens: int) -> None:
        self.new_tokens = new_tokens
        self._process = subprocess.Popen(
            [sys.executable, "-c", BARE_SCRIPT, folder, dtype, device, PROMPT, str(new_tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def run(self) -> float:
        """One generate, s."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        took_s, made = self._line().split()
        assert int(made) == self.new_tokens
        return float(took_s)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the bare script ended early")
        return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--model", help="as for python -m kvdemo")
    arguments = parser.parse_args()
    say_if_busy()
    loaded: list[LoadedModel] = []

    def load(*given: Any) -> LoadedModel:
        loaded.append(load_named(*given))
        return loaded[0]

    backend = Backend(Settings.from_environment(os.environ, model=arguments.model), load_model=load)
    backend.start()
    status = backend.wait_until_settled()
    if not isinstance(status, Ready):
        raise ModelUnavailable(getattr(status, "reason", "the model did not load"))
    facts = status.facts
    folder = str(loaded[0].model.config._name_or_path)
    bare = BareScript(folder, facts.dtype, facts.device, arguments.new_tokens)
    try:
        bare.run()  # untimed
        plain_s, whole_s, result = measure(backend, bare, arguments.rounds, arguments.new_tokens)
    finally:
        bare.close()
        backend.close()
    generation_s = [run.generation_s for run in result.counted(ARM) if run.generation_s is not None]
    print(f"{len(plain_s)} rounds of {arguments.new_tokens} tokens, {facts.name}, {facts.dtype}, {facts.device}")
    for name, times in (("plain generate, bare script", plain_s), ("a run in compare, whole", whole_s)):
        print(f"  {name:40} {median(times):7.3f} s ({min(times):.3f} to {max(times):.3f})")
    for name, times in (("whole run", whole_s), ("accepted to last token", generation_s)):
        say(name, [time_s / base_s for time_s, base_s in zip(times, plain_s, strict=True)])
    ratios = [time_s / base_s for time_s, base_s in zip(whole_s, plain_s, strict=True)]
    print(json.dumps({"instrument_over_plain": median(ratios)}))


def measure(
    backend: Backend, bare: BareScript, rounds: int, new_tokens: int
) -> tuple[list[float], list[float], ComparisonResult]:
    """(plain generate, run in compare) of every round, s, and the comparison itself.

    The comparison is paused between its runs, where it holds nothing, while the bare script has its turn.
    """
    spec = CompareSpec(PROMPT, (ARM, "static"), new_tokens, rounds=rounds)
    plain_s: list[float] = []
    whole_s: list[float] = []
    phase, began_s = "", 0.0
    result: Any = None
    for result in backend.ask(spec):
        if isinstance(result, Progress) and result.phase != phase:
            phase = result.phase
            if phase.startswith("Dynamic cache: round") and len(whole_s) % 2 == 0:
                plain_s.append(bare.run())
            began_s = time.perf_counter()
        elif timed(result):
            whole_s.append(time.perf_counter() - began_s)
            if len(whole_s) % 2 == 0:
                plain_s.append(bare.run())
    assert isinstance(result, ComparisonResult)
    return plain_s, whole_s, result


def timed(step: Any) -> bool:
    """Has a run that counts just ended?"""
    return isinstance(step, ArmEvent) and isinstance(step.event, Finished) and step.strategy == ARM and not step.warmup


def say(name: str, ratios: list[float]) -> None:
    interval = order_statistic_interval(ratios)
    between = f"{interval.low:.3f} to {interval.high:.3f}, {interval.coverage:.1%}" if interval else "too few rounds"
    print(f"  {name} / plain: {median(ratios):.3f} ({between}, {len(ratios)} rounds)")


if __name__ == "__main__":
    main()
