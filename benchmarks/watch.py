"""What does watching cost? A plain script on the default model, by itself and under kvdemo watch, interleaved, in processes.

The whole script is timed, from the start of Python to its end: imports, loading and generation, as its owner waits for it.

    python -m benchmarks.watch [--rounds 15] [--new-tokens 64]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import in_words, print_figures
from benchmarks.machine import say_if_busy
from benchmarks.streaming import load_default

SCRIPT = """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
inputs = tokenizer("The red cat was", return_tensors="pt")
model.generate(**inputs, max_new_tokens=int(sys.argv[2]), do_sample=False, eos_token_id=None)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="A plain script, by itself and watched.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--new-tokens", type=int, default=64)
    given = parser.parse_args()
    say_if_busy()
    with tempfile.TemporaryDirectory(prefix="kvdemo-") as place:
        folder, script = Path(place, "model"), Path(place, "script.py")
        loaded = load_default()
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        script.write_text(SCRIPT, encoding="utf-8")
        words = [str(script), str(folder), str(given.new_tokens)]
        ways = {"plain": [sys.executable, *words], "watched": [sys.executable, "-m", "kvdemo", "watch", *words]}
        for command in ways.values():  # files are read into memory
            took_s(command)
        ratios = []
        for number in range(given.rounds):
            order = list(ways) if number % 2 == 0 else list(ways)[::-1]
            found = {name: took_s(ways[name]) for name in order}
            ratios.append(found["watched"] / found["plain"])
    print(f"  watched / plain, the whole script: {in_words(ratios)}")
    print_figures({"watch_over_plain": ratios}, rounds=given.rounds, new_tokens=given.new_tokens)


def took_s(command: list[str]) -> float:
    begin_s = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
