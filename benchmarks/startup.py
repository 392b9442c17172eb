"""How soon is the page there, and how soon can its model say something?

First byte: from starting `python app.py` to the first byte of its page, beside a bare Gradio app with one textbox.
Ready: from that first byte to the first token through the page's API, beside a bare script from its start (the same imports,
load and first token); cold with an empty KVDEMO_HOME (a GGUF is unpacked first), warm from then on. Ratios are paired within
a round. End: from Ctrl-C or SIGTERM, in every phase of a start, until the process is gone.

    python -m benchmarks.startup [--rounds 5]
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gradio_client import Client
from gradio_client.exceptions import AppError

from benchmarks.figures import in_words, print_figures
from benchmarks.machine import say_if_busy
from kvdemo.models.conversion import converted_folder
from kvdemo.models.source import resolve
from kvdemo.settings import Settings

REPOSITORY = Path(__file__).parents[1]
PROMPT = "Name three planets."
POLL_S = 0.02
ASK_AGAIN_S = 0.1
TIMEOUT_S = 300.0

BARE_APP = """
import sys
import gradio as gr
with gr.Blocks() as demo:
    gr.Textbox()
demo.launch(server_port=int(sys.argv[1]), quiet=True)
"""

BARE_SCRIPT = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompt = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device)
text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False)
inputs = tokenizer(text, return_tensors="pt").to(device)
model.generate(**inputs, max_new_tokens=1, do_sample=False)
print("first token", flush=True)
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """One start of the page: seconds to its first byte, and from there to the model's first token (None: not waited for)."""

    first_byte_s: float
    ready_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    say_if_busy()
    with tempfile.TemporaryDirectory(prefix="kvdemo-startup-") as home:
        environ = {**os.environ, "KVDEMO_HOME": home, "GRADIO_ANALYTICS_ENABLED": "False"}
        ends = time_ends(environ)
        cold = start_page(environ)
        print(f"cold: first byte {cold.first_byte_s:.2f} s, model ready {cold.ready_s:.2f} s after it", flush=True)
        folder = model_folder(environ)
        first_byte, warm, ready = [], [], []
        for number in range(rounds):
            if number % 2:  # neither is always the one that finds the files in memory
                script_s, bare_s, page = time_script(folder, environ), start_bare_app(environ), start_page(environ)
            else:
                page, bare_s, script_s = start_page(environ), start_bare_app(environ), time_script(folder, environ)
            assert page.ready_s is not None
            first_byte.append(page.first_byte_s / bare_s)
            warm.append(page.ready_s)
            ready.append(page.ready_s / script_s)
            print(
                f"round {number + 1}: first byte {page.first_byte_s:.2f} s, bare Gradio {bare_s:.2f} s;"
                f" ready {page.ready_s:.2f} s after it, bare script {script_s:.2f} s",
                flush=True,
            )
    print(f"first byte over bare Gradio: {in_words(first_byte, 2)}")
    print(f"ready, warm, over bare script: {in_words(ready, 2)}")
    print_figures(
        {
            "first_byte_over_bare_gradio": first_byte,
            "ready_warm_over_bare_script": ready,
            "ready_cold_s": [cold.ready_s or 0.0],
            "ready_warm_s": warm,
        },
        worst={"end_s": ends},
    )


def start_page(environ: dict[str, str]) -> Start:
    """Start our page and ask its model for one token as soon as it answers at all."""
    port = free_port()
    began = time.perf_counter()
    with running([sys.executable, "app.py", "--port", str(port)], environ) as process:
        first_byte = wait_for_first_byte(port, process)
        ready = wait_for_first_token(port, process)
    return Start(first_byte - began, ready - first_byte)


def time_ends(environ: dict[str, str]) -> list[float]:
    """How long the page, with nothing unpacked yet, took to end: while it imports, and while it unpacks."""
    taken = []
    for wait_for_page in (False, True):
        for pause_s in (0.5, 3.0, 6.0):
            for ending in (signal.SIGINT, signal.SIGTERM):
                port = free_port()
                with running([sys.executable, "app.py", "--port", str(port)], environ) as process:
                    if wait_for_page:
                        wait_for_first_byte(port, process)
                    time.sleep(pause_s)
                    asked = time.perf_counter()
                    process.send_signal(ending)
                    process.wait(TIMEOUT_S)
                    took = time.perf_counter() - asked
                where = "the first byte" if wait_for_page else "the start"
                print(f"{ending.name} {pause_s} s after {where}: ended after {took:.2f} s", flush=True)
                taken.append(took)
    return taken


def start_bare_app(environ: dict[str, str]) -> float:
    """Seconds from start to first byte of a Gradio app with one textbox."""
    port = free_port()
    began = time.perf_counter()
    with running([sys.executable, "-c", BARE_APP, str(port)], environ) as process:
        return wait_for_first_byte(port, process) - began


def time_script(folder: Path, environ: dict[str, str]) -> float:
    """Seconds from start to first token of the shortest script that loads the model and runs it."""
    began = time.perf_counter()
    with running([sys.executable, "-c", BARE_SCRIPT, str(folder), PROMPT], environ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "first token":
                return time.perf_counter() - began
        raise RuntimeError("the bare script ended without a token")
    raise AssertionError("unreachable")


def model_folder(environ: dict[str, str]) -> Path:
    """The folder of safetensors that the page loaded."""
    settings = Settings.from_environment(environ)
    source = resolve(settings.model, settings.home)
    assert source.path is not None
    folder = converted_folder(source.path, settings.home) if source.kind in ("gguf", "embedded") else source.path
    assert folder is not None
    return folder


@contextlib.contextmanager
def running(command: list[str], environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process of ours that is ended at the end, whatever happens; what it says on stderr goes to a file."""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, cwd=REPOSITORY, env=environ, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            yield process
        except RuntimeError as error:
            log.seek(0)
            raise SystemExit(f"{error}; it said:\n{log.read()[-3000:]}") from None
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_first_byte(port: int, process: subprocess.Popen[str]) -> float:
    """The moment at which the first byte of the answer to GET / arrives."""
    request = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    for _ in until_timeout(process, "serve its page", POLL_S):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(request)
            if connection.recv(1):
                return time.perf_counter()
    raise AssertionError("unreachable")


def wait_for_first_token(port: int, process: subprocess.Popen[str]) -> float:
    """The moment at which the page's API hands out a token for the first time."""
    client = Client(f"http://127.0.0.1:{port}/", verbose=False)
    for _ in until_timeout(process, "have its model ready", ASK_AGAIN_S):
        with contextlib.suppress(AppError):  # it is still loading
            for event in client.submit(PROMPT, max_new_tokens=1, api_name="/chat"):
                if "token_id" in event:
                    return time.perf_counter()
    raise AssertionError("unreachable")


def until_timeout(process: subprocess.Popen[str], what: str, pause_s: float) -> Iterator[None]:
    """Tries, with pauses between them, until the process has ended or the time is up (RuntimeError)."""
    end = time.perf_counter() + TIMEOUT_S
    while time.perf_counter() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode} before it could {what}")
        yield
        time.sleep(pause_s)
    raise RuntimeError(f"{process.args!r} did not {what} within {TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    main()
