"""What does the page take from the model? Chat and a comparison's cached arm over the API, beside plain generate.

Plain generate runs in a bare process with transformers alone, on the same prompt for the same number of tokens; `python app.py`
serves the page in another, which is paused (SIGSTOP) while the bare one runs and idle otherwise. Each round runs all four,
in turn one side first and then the other, and the ratios of tokens a second are taken inside the round.

    python -m benchmarks.served [--rounds 15] [--new-tokens 64]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from benchmarks.streaming import load_default
from kvdemo.experiments.statistics import median

REPOSITORY = Path(__file__).parents[1]
QUESTION = "Tell me a long story about a lighthouse and the people who live in it."
TEXT = "The red cat was"
ARM = "dynamic"
IDLE_WINDOWS, IDLE_WINDOW_S = 6, 5.0
PATIENCE_S = 300.0

BARE_SCRIPT = """
import json, sys, time, torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, dtype, device = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
print("ready", flush=True)
for line in sys.stdin:
    text, as_chat, new_tokens = json.loads(line)
    if as_chat:
        turns = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=not as_chat).to(device)
    begin = time.perf_counter()
    output = model.generate(**inputs, max_new_tokens=new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    ids = output[0].tolist()  # waits for an accelerator
    print(json.dumps([time.perf_counter() - begin, len(ids) - inputs["input_ids"].shape[1]]), flush=True)
"""


class Bare:
    """transformers alone in a process, which generates whenever it is asked."""

    def __init__(self, folder: str, dtype: str, device: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BARE_SCRIPT, folder, dtype, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def tokens_per_s(self, text: str, *, as_chat: bool, new_tokens: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([text, as_chat, new_tokens]) + "\n")
        self.process.stdin.flush()
        took_s, made = json.loads(self._line())
        assert made == new_tokens
        return float(made / took_s)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the bare process ended early")
        return line


class Page:
    """`python app.py` in a process of its own, read as any client reads it."""

    def __init__(self) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port = listening.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        if not any("is loaded" in line for line in self.process.stdout):
            raise SystemExit("the page ended before its model was loaded")
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    def chat_tokens_per_s(self, new_tokens: int) -> float:
        run = self._last("chat", message=QUESTION, max_new_tokens=new_tokens)
        if run["new_tokens"] != new_tokens:
            raise SystemExit(f"the answer ended after {run['new_tokens']} tokens; ask for fewer with --new-tokens")
        return speed(run)

    def compare_tokens_per_s(self, new_tokens: int) -> float:
        """The cached arm of a comparison of one round."""
        made = self._last("compare", prompt=TEXT, max_new_tokens=new_tokens, strategies=[ARM, "static"])
        assert made["environment"]["on_page"] is True
        (run,) = [run for run in made["runs"] if run["strategy"] == ARM and not run["warmup"]]
        return speed(run)

    def idle_core_shares(self) -> list[float]:
        """Share of one core that the process takes with nobody there, window by window."""
        process = psutil.Process(self.process.pid)
        shares = []
        for _ in range(IDLE_WINDOWS):
            begin, begin_s = process.cpu_times(), time.perf_counter()
            time.sleep(IDLE_WINDOW_S)
            end = process.cpu_times()
            shares.append((end.user + end.system - begin.user - begin.system) / (time.perf_counter() - begin_s))
        return shares

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._http.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def _last(self, endpoint: str, **values: Any) -> dict[str, Any]:
        """What an endpoint tells last; everything before it is read, too, as it comes."""
        started = self._http.post(f"/gradio_api/call/v2/{endpoint}", json=values).raise_for_status()
        event, data = "", ""
        with self._http.stream("GET", f"/gradio_api/call/v2/{endpoint}/{started.json()['event_id']}") as stream:
            for line in stream.iter_lines():
                if line.startswith("event:"):
                    event = line[6:].strip()
                elif line.startswith("data:") and event != "heartbeat":
                    data = line[5:]
        if event == "error":
            raise SystemExit(f"{endpoint}: {data}")
        last: dict[str, Any] = json.loads(data)[0]
        return last


def speed(run: dict[str, Any]) -> float:
    """Tokens a second from acceptance to the last token: what plain generate's time is the time of."""
    return float(run["new_tokens"] / run["generation_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--new-tokens", type=int, default=64)
    arguments = parser.parse_args()
    say_if_busy()
    loaded = load_default()
    bare = Bare(str(loaded.model.config._name_or_path), loaded.facts.dtype, loaded.facts.device)
    name = f"{loaded.facts.name}, {loaded.facts.dtype}"
    loaded.thread.close()
    del loaded
    page = Page()
    try:
        with page.paused():
            bare.tokens_per_s(TEXT, as_chat=False, new_tokens=8)  # untimed: the first run of each warms it up
        page.chat_tokens_per_s(8)
        page.compare_tokens_per_s(8)
        idle = page.idle_core_shares()
        speeds = measured(page, bare, arguments.rounds, arguments.new_tokens)
    finally:
        bare.close()
        page.close()
    print(f"{arguments.rounds} rounds of {arguments.new_tokens} tokens, {name}")
    for way, values in speeds.items():
        print(f"  {way:34} {median(values):6.1f} tok/s ({min(values):.1f} to {max(values):.1f})")
    found = {
        "chat_over_plain": ratios(speeds["Chat, over the API"], speeds["plain, Chat's prompt"]),
        "compare_over_plain": ratios(speeds["compare, cached arm, over the API"], speeds["plain, compare's prompt"]),
        "idle_core_share": idle,
    }
    print_figures(found)


def measured(page: Page, bare: Bare, rounds: int, new_tokens: int) -> dict[str, list[float]]:
    """Tokens a second of each way, round by round."""

    def plain(text: str, as_chat: bool) -> float:
        with page.paused():
            return bare.tokens_per_s(text, as_chat=as_chat, new_tokens=new_tokens)

    pairs: list[tuple[tuple[str, Callable[[], float]], tuple[str, Callable[[], float]]]] = [
        (
            ("plain, Chat's prompt", lambda: plain(QUESTION, True)),
            ("Chat, over the API", lambda: page.chat_tokens_per_s(new_tokens)),
        ),
        (
            ("plain, compare's prompt", lambda: plain(TEXT, False)),
            ("compare, cached arm, over the API", lambda: page.compare_tokens_per_s(new_tokens)),
        ),
    ]
    speeds: dict[str, list[float]] = {name: [] for pair in pairs for name, _ in pair}
    for number in range(rounds):
        for pair in pairs:
            for name, run in pair if number % 2 else reversed(pair):
                speeds[name].append(run())
        latest = ", ".join(f"{name} {values[-1]:.1f}" for name, values in speeds.items())
        print(f"  round {number + 1} of {rounds}, tok/s: {latest}", file=sys.stderr, flush=True)
    return speeds


def ratios(ours: list[float], plain: list[float]) -> list[float]:
    return [one / base for one, base in zip(ours, plain, strict=True)]


if __name__ == "__main__":
    main()
