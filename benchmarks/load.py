"""How much more is served together? Throughput of continuous batching and of a padded batch beside one request after the other.

The question "With many at once?" on the default model: the same prompt 8 times, 64 new tokens each, all at once, modes in rounds
whose order rotates; each ratio is taken inside its round.

    python -m benchmarks.load [--rounds 6] [--requests 8] [--new-tokens 64]
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from kvdemo.backend import Backend
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.questions.load.spec import LoadResult, LoadRound, LoadSpec
from kvdemo.questions.load.words import headline, so_far
from kvdemo.settings import Settings

PROMPT = "The red cat was"
NAMES = {"continuous": "continuous_over_one_by_one", "padded": "padded_over_one_by_one"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=64)
    given = parser.parse_args()
    spec = LoadSpec(
        (PromptRow(PROMPT, "prompt"),), given.requests, max_new_tokens=given.new_tokens, rounds=given.rounds
    )
    backend = Backend(Settings.from_environment(os.environ))
    backend.start()
    backend.wait_until_settled()
    say_if_busy()
    result: LoadResult | None = None
    for step in backend.ask(spec, owner="benchmark"):
        if isinstance(step, LoadRound):
            print(so_far(step), file=sys.stderr, flush=True)
        if isinstance(step, LoadResult):
            result = step
    backend.close()
    assert result is not None
    print("".join(words for words, _ in headline(result)))
    known = {item.comparison.candidate: item.comparison for item in result.comparisons}
    same: dict[str, Any] = {f"{name}_same_output": known[mode].verdict.same_output for mode, name in NAMES.items()}
    print_figures({name: known[mode].ratios for mode, name in NAMES.items()}, **same, load_average=os.getloadavg()[0])


if __name__ == "__main__":
    main()
