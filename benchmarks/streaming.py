"""What does streaming cost? Plain generate in this thread, our stream, and a TextIteratorStreamer in a new thread.

All three decode the same prompt for the same number of tokens on the same model, interleaved: each round runs each of them
once, in rotating order, and the ratios of decode speed are taken inside the round. hook_share is the share of our runs' time that
our own code took inside the model's thread.

    python -m benchmarks.streaming [--rounds 15] [--new-tokens 64]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import in_words, print_figures
from benchmarks.hooks import OwnTime
from benchmarks.machine import say_if_busy
from kvdemo.experiments.statistics import median
from kvdemo.facts.events import Finished
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest
from kvdemo.generation.stream import stream
from kvdemo.generation.turnstile import Turnstile
from kvdemo.models.loaded import LoadedModel
from kvdemo.models.loader import load
from kvdemo.models.source import resolve
from kvdemo.models.thread import ModelThread
from kvdemo.settings import Settings

PROMPT = "The red cat was"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--new-tokens", type=int, default=64)
    arguments = parser.parse_args()
    say_if_busy()
    own = OwnTime()
    loaded = own.watch(load_default())
    hook_shares: list[float] = []

    def ours(loaded: LoadedModel, new_tokens: int) -> float:
        took_s, record = our_stream(loaded, new_tokens)
        hook_shares.append(own.share_of(record))
        return took_s

    ways: dict[str, Callable[[LoadedModel, int], float]] = {
        "plain generate": plain,
        "our stream": ours,
        "TextIteratorStreamer, new thread": text_iterator,
    }
    names = list(ways)
    for way in ways.values():
        way(loaded, 8)  # untimed: the first run of each warms it up
    hook_shares.clear()
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(arguments.rounds):
        for name in [*names[number % 3 :], *names[: number % 3]]:
            speeds[name].append(arguments.new_tokens / ways[name](loaded, arguments.new_tokens))
    print(f"{arguments.rounds} rounds of {arguments.new_tokens} tokens, {loaded.facts.name}, {loaded.facts.dtype}")
    for name in names:
        print(f"  {name:34} {median(speeds[name]):6.1f} tok/s ({min(speeds[name]):.1f} to {max(speeds[name]):.1f})")
    ratios = {
        name: [speed / base for speed, base in zip(speeds[name], speeds[names[0]], strict=True)] for name in names[1:]
    }
    for name, values in ratios.items():
        print(f"  {name} / plain: {in_words(values)}")
    print(f"  our own code in the model's thread, share of a run: {in_words(hook_shares, 4)}")
    print_figures(
        {
            "stream_over_plain": ratios[names[1]],
            "text_iterator_streamer_over_plain": ratios[names[2]],
            "hook_share": hook_shares,
        }
    )


def load_default() -> LoadedModel:
    """The default model in a model's thread, as the page has it."""
    settings, thread = Settings.from_environment(os.environ), ModelThread()
    source = resolve(settings.model, settings.home)
    return thread.submit(lambda: load(settings, source, thread=thread, progress=lambda _: None)).result()


def options(loaded: LoadedModel, new_tokens: int) -> dict[str, Any]:
    encoded = loaded.tokenizer(PROMPT, return_tensors="pt").to(loaded.model.device)
    return {**encoded, "max_new_tokens": new_tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def plain(loaded: LoadedModel, new_tokens: int) -> float:
    """generate, in this thread, and nothing else."""
    import torch

    begin_s = time.perf_counter()
    with torch.inference_mode():
        loaded.model.generate(**options(loaded, new_tokens))
    return time.perf_counter() - begin_s


def our_stream(loaded: LoadedModel, new_tokens: int) -> tuple[float, RunRecord]:
    """The stream, its texts read as a page reads them."""
    begin_s = time.perf_counter()
    *_, last = stream(loaded, GenerationRequest(PROMPT, new_tokens, fixed_length=True), turnstile=Turnstile(1))
    assert isinstance(last, Finished)
    assert last.record.new_tokens == new_tokens
    return time.perf_counter() - begin_s, last.record


def text_iterator(loaded: LoadedModel, new_tokens: int) -> float:
    """What examples show: a TextIteratorStreamer and a new thread for every request."""
    import torch
    from transformers import TextIteratorStreamer

    begin_s = time.perf_counter()
    streamer = TextIteratorStreamer(loaded.tokenizer, skip_prompt=True)

    def work() -> None:
        with torch.inference_mode():
            loaded.model.generate(**options(loaded, new_tokens), streamer=streamer)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in streamer:
        pass
    thread.join()
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
