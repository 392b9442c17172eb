"""Does the page keep up? A scripted engine makes 200 tokens a second, read in Chromium below a history of 100 messages.

Updates are changes of the conversation that the browser drew while the answer came; lag is the time from the engine's
last token to the browser showing it. The engine is scripted so that its pace is known; page, server and browser are real.

    python -m benchmarks.page [--tokens 400] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks.figures import print_figures
from benchmarks.machine import say_if_busy
from kvdemo.facts.events import GenerationEvent
from kvdemo.settings import Settings
from tests.conftest import find_browser
from tests.fake_backend import FakeBackend, answer_events

TOKENS_PER_S = 200
HISTORY_TURNS = 50
LAST_WORD = "finished-at-last"
WATCH = """(last) => {
  window.kvTimes = []; window.kvDone = null;
  new MutationObserver(() => {
    const now = Date.now() / 1000;
    window.kvTimes.push(now);
    if (window.kvDone === null && document.querySelector('#conversation').innerText.includes(last)) window.kvDone = now;
  }).observe(document.querySelector('#conversation'), {subtree: true, childList: true, characterData: true});
}"""


class PacedBackend(FakeBackend):
    """Says a word every 5 ms, whoever listens: each event waits for its time, not for the reader."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__()
        words = [f"word{index} " for index in range(num_tokens - 1)] + [LAST_WORD]
        self._answer = answer_events(words, prompt_tokens=1000, step_s=1 / TOKENS_PER_S, reason="length")
        self.first_s = self.last_s = 0.0

    def chat(self, *_: Any, **__: Any) -> Generator[GenerationEvent, None, None]:
        self.first_s = time.time()
        for number, event in enumerate(self._answer):
            time.sleep(max(0.0, self.first_s + number / TOKENS_PER_S - time.time()))
            if number == len(self._answer) - 2:
                self.last_s = time.time()
            yield event


def main() -> None:
    parser = argparse.ArgumentParser(description="Updates a second and lag of the page at 200 tokens a second.")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    say_if_busy()
    # Gradio reads these when it is imported, and its import takes seconds that belong to nobody's measurement.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    from kvdemo.ui.page import build_page, page_style
    from kvdemo.web.launch import launch_settings

    backend, settings = PacedBackend(arguments.tokens), Settings()
    served = launch_settings(settings, host=None, port=None)
    page = build_page(backend, settings).queue(**served.queue)
    _, address, _ = page.launch(**served.launch, **page_style())
    updates, lags = [], []
    try:
        with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
            for _ in range(arguments.rounds):
                tab = browser.new_page()
                open_history(tab, address, Path(folder, "history.json"))
                per_s, lag_s = one_answer(tab, backend)
                print(f"  {per_s:.1f} updates a second, last text {lag_s:.2f} s after the engine's last token")
                updates.append(per_s)
                lags.append(lag_s)
                tab.close()
            browser.close()
    finally:
        page.close(verbose=False)
    print(
        f"{arguments.rounds} answers of {arguments.tokens} tokens at {TOKENS_PER_S} a second, {2 * HISTORY_TURNS} messages before"
    )
    print_figures({"updates_per_s": updates, "lag_s": lags})


def open_history(tab: Page, address: str, file: Path) -> None:
    """Open the page and a saved conversation of 100 messages in it."""
    turns = [
        {
            "question": f"Question {number}?",
            "answer": f"Answer {number}, **with** a few words.",
            "note": "",
            "figures": "",
        }
        for number in range(HISTORY_TURNS)
    ]
    document = {"schema": 1, "kind": "conversation", "system_prompt": "", "turns": turns}
    file.write_text(json.dumps(document), encoding="utf-8")
    tab.goto(address)
    tab.locator("#chat-box textarea").wait_for()
    tab.get_by_text("Save or open this conversation").click()
    with tab.expect_file_chooser() as chooser:
        tab.locator("#chat-open").click()
    chooser.value.set_files(file)
    tab.get_by_text(f"Question {HISTORY_TURNS - 1}?").wait_for()


def one_answer(tab: Page, backend: PacedBackend) -> tuple[float, float]:
    """(updates a second while the answer came, s from the engine's last token to the browser showing it)."""
    tab.evaluate(WATCH, LAST_WORD)
    tab.fill("#chat-box textarea", "Go on.")
    tab.press("#chat-box textarea", "Enter")
    tab.get_by_text(LAST_WORD).first.wait_for(timeout=120_000)
    times = [when for when in tab.evaluate("() => window.kvTimes") if backend.first_s <= when <= backend.last_s]
    return len(times) / (backend.last_s - backend.first_s), tab.evaluate("() => window.kvDone") - backend.last_s


if __name__ == "__main__":
    main()
