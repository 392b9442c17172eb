"""How long does the planner take? Tracing the ten largest known models, and a change of length, batch or dtype.

Each trace runs in a process of its own: its time after the imports of torch and transformers (shown apart), and the most
memory that the process ever had, imports included. A change is a new plan with crossing and what fits.

    python -m benchmarks.planner [--models 10]
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from kvdemo.facts.plans import CACHE_DTYPES, MemoryRequest
from kvdemo.planner import catalog, plan

LENGTHS = (128, 4_096, 32_768, 131_072)
BATCHES = (1, 8, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10, help="how many of the largest models (default 10)")
    parser.add_argument("--trace", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trace:
        print(json.dumps(traced(arguments.trace)))
        return
    say_if_busy()
    found = []
    for name in largest(arguments.models):
        command = [sys.executable, "-m", "benchmarks.planner", "--trace", name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = {**json.loads(said.splitlines()[-1]), "update_ms": slowest_update_ms(name)}
        found.append(row)
        print(
            f"{name:28s} {catalog.architecture(name).num_parameters or 0:>16,} parameters   trace {row['trace_s']:.2f} s"
            f" (after imports of {row['import_s']:.1f} s)   {row['peak_gib']:.2f} GiB   change {row['update_ms']:.2f} ms",
            flush=True,
        )
    names = {"max_trace_s": "trace_s", "max_trace_gib": "peak_gib", "max_update_ms": "update_ms"}
    print_figures({}, worst={figure: [row[name] for row in found] for figure, name in names.items()}, models=len(found))


def largest(count: int) -> list[str]:
    """The known models with the most parameters."""
    return sorted(catalog.names(), key=lambda name: -(catalog.architecture(name).num_parameters or 0))[:count]


def traced(name: str) -> dict[str, float]:
    """Trace one config here: seconds of the imports, seconds of the trace, and this process's peak in GiB."""
    config = catalog.config(name)
    started = time.perf_counter()
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    imported = time.perf_counter()
    from kvdemo.planner.architecture import from_config

    from_config(config, name=name)
    ended = time.perf_counter()
    per_gib = 2**30 if sys.platform == "darwin" else 2**20
    return {
        "import_s": round(imported - started, 3),
        "trace_s": round(ended - imported, 3),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_gib, 3),
    }


def slowest_update_ms(name: str) -> float:
    """The slowest of the changes that a person can make, the best of three tries each, in ms."""
    architecture = catalog.architecture(name)
    slowest = 0.0
    for length, batch, dtype in itertools.product(LENGTHS, BATCHES, CACHE_DTYPES):
        tries = []
        for _ in range(3):
            started = time.perf_counter()
            plan.make_plan(architecture, MemoryRequest(length, batch, dtype, budget_gib=80))
            tries.append(time.perf_counter() - started)
        slowest = max(slowest, 1000 * min(tries))
    return round(slowest, 3)


if __name__ == "__main__":
    main()
