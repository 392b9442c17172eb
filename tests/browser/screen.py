"""What a person sees and does on the page, in words of the page."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.served import Served

__all__ = ["Screen"]


class Screen:
    """The page in a window of a real browser."""

    def __init__(self, tab: Page, served: Served) -> None:
        self.tab, self.served = tab, served

    def part(self, selector: str) -> Locator:
        return self.tab.locator(selector)

    def wait_until_ready(self) -> None:
        """Until the page is drawn and says which model is loaded."""
        expect(self.part("h1")).to_be_visible()
        expect(self.part("#kv-header .kv-chip")).to_contain_text("parameters")

    def open_tab(self, name: str) -> None:
        self.part("#kv-tabs").get_by_role("tab", name=name, exact=True).click()

    # --- chat --------------------------------------------------------------------------------------------------------

    @property
    def box(self) -> Locator:
        return self.part("#chat-box textarea")

    @property
    def stop(self) -> Locator:
        return self.part("#chat-stop")

    @property
    def live(self) -> Locator:
        return self.part("#chat-live")

    @property
    def questions(self) -> Locator:
        return self.part("#chat-past .kv-question .kv-text")

    @property
    def answers(self) -> Locator:
        return self.part("#chat-past .kv-answer")

    def action(self, name: str, index: int = 0) -> Locator:
        """The button of a turn, or of an example."""
        return self.part(f".kv-act-{name}.kv-at-{index}")

    def send(self, question: str) -> None:
        self.box.fill(question)
        self.box.press("Enter")

    def ask(self, question: str) -> None:
        """Send a question and wait for its answer to be complete."""
        answered = self.answers.count()
        self.send(question)
        self.wait_for_answer(answered + 1)

    def wait_for_answer(self, number: int) -> None:
        expect(self.answers).to_have_count(number)
        expect(self.part("#chat-send")).to_be_visible()

    def unfold(self, block: str) -> None:
        """Open one of the folded blocks."""
        button = self.part(f"{block} > button")
        if "open" not in (button.get_attribute("class") or "").split():
            button.click()

    # --- compare -----------------------------------------------------------------------------------------------------

    def compare(self, part: str) -> Locator:
        """A part of the question "Is it faster?": headline, live, charts, tables ..."""
        return self.part(f"#compare-faster-{part}")

    def arm(self, name: str) -> Locator:
        return self.compare("live").locator(".kv-arm", has_text=name)

    def start_comparison(self, *, new_tokens: int, rounds: int = 1, prompt: str | None = None) -> None:
        if prompt is not None:
            self.part("#compare-faster-prompt textarea").fill(prompt)
        self.part("#compare-faster-new-tokens input").fill(str(new_tokens))
        self.part("#compare-faster-rounds input").fill(str(rounds))
        self.part("#compare-faster-run").click()

    def wait_for_comparison(self, patience_ms: int = 60_000) -> None:
        """Until the headline says the result and nothing runs any more."""
        expect(self.compare("headline").locator(".kv-headline-text")).to_be_visible(timeout=patience_ms)
        expect(self.part("#compare-faster-run")).to_be_visible()

    # --- memory ------------------------------------------------------------------------------------------------------

    @property
    def memory_headline(self) -> Locator:
        return self.part("#memory-headline")

    def choose(self, dropdown: str, option: str) -> None:
        """Pick an option of a dropdown list."""
        self.part(f"{dropdown} input").click()
        self.tab.get_by_role("option", name=option, exact=True).click()

    # --- everything --------------------------------------------------------------------------------------------------

    def expect_drawn(self, chart: str) -> None:
        """The chart is there with lines, bars or areas in it, and a title."""
        plot = self.part(chart)
        expect(plot.locator("svg.main-svg").first).to_be_visible()
        marks = ".scatterlayer path, .barlayer path, .heatmaplayer image, .shapelayer path"
        expect(plot.locator(marks).first).to_be_attached()
        expect(plot.locator(".gtitle, .annotation-text").first).to_be_attached()

    def download(self, button: str) -> str:
        """The content of the file that a button makes the browser save."""
        with self.tab.expect_download() as saving:
            self.part(button).click()
        return saving.value.path().read_text(encoding="utf-8")
