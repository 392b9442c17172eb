"""How fast are conversations compared? 5,000 requests of 500 tokens each on average, read from a file, half of them with misses.

The file holds conversations of ten turns; every second one carries reasoning, which the default model's template leaves out,
so that each of its turns misses and its cause is looked for. Timed: reading the file, rendering, encoding, comparing, and the
JSON of the result. Peak memory is the process's, above what it held before the file was read.

    python -m benchmarks.conversations [--requests 5000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import time

import psutil

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from kvdemo.backend import Backend
from kvdemo.experiments.documents import dumps
from kvdemo.facts.reader import Reader
from kvdemo.questions.conversations.reading import read_conversations
from kvdemo.questions.conversations.spec import ConversationsResult, ConversationsSpec
from kvdemo.questions.documents import any_document
from kvdemo.settings import Settings

TURNS = 10
WORDS = (
    "harbour",
    "ferry",
    "ticket",
    "weather",
    "island",
    "lantern",
    "captain",
    "bicycle",
    "evening",
    "timetable",
    "rope",
)
WORDS_A_TURN = 81  # about 500 tokens on average over ten turns
LIMIT_S, LIMIT_MIB = 20, 500


def main() -> None:
    parser = argparse.ArgumentParser(description="Requests compared per second, and the memory that it takes.")
    parser.add_argument("--requests", type=int, default=5000)
    wanted = parser.parse_args().requests
    say_if_busy()
    data = file_of(wanted // TURNS)
    backend = Backend(Settings.from_environment(os.environ))
    try:
        ask(backend, ConversationsSpec())  # untimed: loads the tokenizer
        before_mib = psutil.Process().memory_info().rss / 2**20
        begin_s = time.perf_counter()
        talks, bad = read_conversations(data)
        result = ask(backend, ConversationsSpec(talks, bad=bad))
        document = dumps(any_document(result))
        spent_s = time.perf_counter() - begin_s
    finally:
        backend.close()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before_mib
    turns = [turn for talk in result.conversations for turn in talk.turns]
    mean = sum(turn.prompt_tokens for turn in turns) / len(turns)
    missed = sum(turn.again_tokens > 0 for turn in turns)
    print(
        f"{len(turns):,} requests of {mean:.0f} tokens on average out of {len(data) / 1e6:.1f} MB, {missed:,} with a miss: "
        f"{spent_s:.1f} s (limit {LIMIT_S} s), peak {peak_mib:.0f} MiB above {before_mib:.0f} (limit {LIMIT_MIB}), "
        f"{len(document) / 1e6:.1f} MB of JSON"
    )
    print_figures({"requests_per_s": [len(turns) / spent_s]}, {"peak_mib": [peak_mib]})


def ask(backend: Backend, spec: ConversationsSpec) -> ConversationsResult:
    *_, result = backend.ask(spec, reader=Reader(every_s=0.5))
    assert isinstance(result, ConversationsResult)
    return result


def file_of(conversations: int) -> bytes:
    """Seeded conversations of ten turns, a line each."""
    chosen = random.Random(0)

    def words(count: int) -> str:
        return " ".join(chosen.choices(WORDS, k=count))

    lines = []
    for number in range(conversations):
        messages = [{"role": "system", "content": f"You are the desk of a ferry company. {words(20)}"}]
        for _ in range(TURNS):
            messages.append({"role": "user", "content": words(WORDS_A_TURN // 3)})
            answer = {"role": "assistant", "content": words(WORDS_A_TURN // 3 * 2)}
            messages.append({**answer, "reasoning_content": words(8)} if number % 2 else answer)
        lines.append(json.dumps({"id": f"talk {number}", "messages": messages}))
    return "\n".join(lines).encode()


if __name__ == "__main__":
    main()
