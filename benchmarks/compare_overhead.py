"""What does the instrument cost? A run inside a comparison beside plain generate in a bare script: same prompt, same tokens.

The bare script is a process of its own with transformers alone. Both run interleaved: in every round the comparison's run and
the script's stand next to each other, in turn first and second, and the ratio is taken inside the round. hook_share is the share
of a run's time that our own code took inside the model's thread.

    python -m benchmarks.compare_overhead [--rounds 15] [--new-tokens 64] [--model NAME]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

from benchmarks.figures import in_words, print_figures
from benchmarks.hooks import OwnTime
from benchmarks.machine import say_if_busy
from benchmarks.streaming import PROMPT
from kvdemo.backend import Backend
from kvdemo.engine.engine import load_named
from kvdemo.errors import ModelUnavailable
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.statistics import median
from kvdemo.facts.events import Finished
from kvdemo.facts.model import Ready
from kvdemo.facts.records import RunRecord
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
    own, loaded = OwnTime(), []

    def load(*given: Any) -> LoadedModel:
        loaded.append(own.watch(load_named(*given)))
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
        plain_s, whole_s, hook_shares, result = measure(backend, bare, own, arguments.rounds, arguments.new_tokens)
    finally:
        bare.close()
        backend.close()
    generation_s = [run.generation_s for run in result.counted(ARM) if run.generation_s is not None]
    print(f"{len(plain_s)} rounds of {arguments.new_tokens} tokens, {facts.name}, {facts.dtype}, {facts.device}")
    for name, times in (("plain generate, bare script", plain_s), ("a run in compare, whole", whole_s)):
        print(f"  {name:40} {median(times):7.3f} s ({min(times):.3f} to {max(times):.3f})")
    whole, generation = (
        [time_s / base_s for time_s, base_s in zip(times, plain_s, strict=True)] for times in (whole_s, generation_s)
    )
    print(f"  whole run / plain: {in_words(whole)}")
    print(f"  accepted to last token / plain: {in_words(generation)}")
    print(f"  our own code in the model's thread, share of a run: {in_words(hook_shares, 4)}")
    print_figures(
        {"instrument_over_plain": whole, "generation_over_plain": generation, "hook_share": hook_shares},
        rounds=len(plain_s),
    )


def measure(
    backend: Backend, bare: BareScript, own: OwnTime, rounds: int, new_tokens: int
) -> tuple[list[float], list[float], list[float], ComparisonResult]:
    """(plain generate, run in compare) of every round, s, the share of our own code in the latter, and the comparison.

    The comparison is paused between its runs, where it holds nothing, while the bare script has its turn.
    """
    spec = CompareSpec(PROMPT, (ARM, "static"), new_tokens, rounds=rounds)
    plain_s: list[float] = []
    whole_s: list[float] = []
    hook_shares: list[float] = []
    phase, began_s = "", 0.0
    result: Any = None
    for result in backend.ask(spec):
        if ended := record_of(result):
            hook_share = own.share_of(ended)
        if isinstance(result, Progress) and result.phase != phase:
            phase = result.phase
            if phase.startswith("Dynamic cache: round") and len(whole_s) % 2 == 0:
                plain_s.append(bare.run())
            began_s = time.perf_counter()
        elif ended and ended.arm_key == ARM and ended.counts:
            whole_s.append(time.perf_counter() - began_s)
            hook_shares.append(hook_share)
            if len(whole_s) % 2 == 0:
                plain_s.append(bare.run())
    assert isinstance(result, ComparisonResult)
    return plain_s, whole_s, hook_shares, result


def record_of(step: Any) -> RunRecord | None:
    """The record of the run that has just ended, None where none has."""
    return step.event.record if isinstance(step, ArmEvent) and isinstance(step.event, Finished) else None


if __name__ == "__main__":
    main()
