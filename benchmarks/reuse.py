"""What does keeping the cache between turns buy? A conversation of ten turns and about 2,000 tokens, both ways, interleaved.

The last turn's time to first token is measured in every round: once continuing the kept cache, once with an empty one.
Bookkeeping is matching and cropping, timed inside the kept run. The first rounds of a shorter history show whether the time
grows with it by more than the attention that must be read.

    python -m benchmarks.reuse [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from benchmarks.streaming import load_default
from kvdemo.caches.prefix import KeptCaches, common_prefix
from kvdemo.experiments.statistics import median
from kvdemo.facts.events import Finished
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message, Prompt
from kvdemo.generation.prompt import encode_prompt
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel

TURNS = 10
CONTEXT_TOKENS = 2000
ANSWER = "The harbour was built in the last century and rebuilt twice since, most recently with a longer quay for the ferries. "
QUESTION = "And what happened to the harbour in the year after that, in one sentence?"
LAST_QUESTION = "Who paid for it?"
OTHER = Message("user", "Something else")


class TimedStore(KeptCaches):
    """The store, with the time that matching and cropping took."""

    def __init__(self) -> None:
        super().__init__(lambda _: 2**40, idle_s=86_400)
        self.taken_s: list[float] = []

    def take(self, *arguments: Any, **options: Any) -> Any:
        begin_s = time.perf_counter()
        taken = super().take(*arguments, **options)
        self.taken_s.append(time.perf_counter() - begin_s)
        return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time to first token at the last turn, with and without the kept cache."
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    say_if_busy()
    loaded = load_default()
    history = conversation(loaded)
    last = (*history, Message("user", LAST_QUESTION))
    short = (Message("user", QUESTION), Message("assistant", ANSWER), Message("user", LAST_QUESTION))
    ask(loaded, last, None)
    ratios, shares, short_s, long_s = [], [], [], []
    for _ in range(rounds):
        kept_short, _ = last_turn(loaded, short)
        without = ask(loaded, last, None)
        kept, taken_s = last_turn(loaded, last)
        assert kept.token_ids == without.token_ids
        ratios.append(ttft(without) / ttft(kept))
        shares.append(taken_s / ttft(kept))
        short_s.append(ttft(kept_short))
        long_s.append(ttft(kept))
        print(
            f"  without {ttft(without):.3f} s, kept {ttft(kept):.3f} s ({kept.reused_tokens:,} of {kept.prompt_tokens:,} tokens "
            f"reused, bookkeeping {taken_s * 1000:.1f} ms); after one turn {ttft(kept_short):.3f} s"
        )
    print(
        f"{rounds} rounds, {kept.prompt_tokens:,} prompt tokens in {TURNS} turns, {loaded.facts.name}, {loaded.facts.dtype}"
    )
    print(f"  first token without / with the kept cache: {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")
    print(f"  bookkeeping: {median(shares):.1%} of the time to first token")
    print(
        f"  first token after {TURNS} turns / after one, both kept: {statistics.median(long_s) / statistics.median(short_s):.2f}"
    )
    print_figures({"ttft_without_over_with": ratios, "bookkeeping_share": shares})


def conversation(loaded: LoadedModel) -> tuple[Message, ...]:
    """Nine turns, so that with the last question the prompt has about 2,000 tokens."""
    turns: list[Message] = []
    repeat = 1
    while True:
        turns = []
        for _ in range(TURNS - 1):
            turns += [Message("user", QUESTION), Message("assistant", ANSWER * repeat)]
        if len(encode_prompt(loaded, (*turns, Message("user", LAST_QUESTION))).token_ids) >= CONTEXT_TOKENS:
            return tuple(turns)
        repeat += 1


def last_turn(loaded: LoadedModel, messages: tuple[Message, ...]) -> tuple[RunRecord, float]:
    """The last turn with the cache that the one before leaves: all but the last question; seconds of bookkeeping."""
    store = TimedStore()
    ids, other = (encode_prompt(loaded, (*messages[:-1], question)).token_ids for question in (messages[-1], OTHER))
    ask(loaded, ids[: common_prefix(ids, other)], store)  # untimed
    return ask(loaded, messages, store), store.taken_s[-1]


def ask(loaded: LoadedModel, prompt: Prompt, store: KeptCaches | None) -> RunRecord:
    request = GenerationRequest(prompt, 1, prefill_chunk=512)
    *_, finished = stream(loaded, request, turnstile=Turnstile(1), kept=store, owner="me")
    assert isinstance(finished, Finished)
    return finished.record


def ttft(record: RunRecord) -> float:
    assert record.ttft_s is not None
    return record.ttft_s


if __name__ == "__main__":
    main()
