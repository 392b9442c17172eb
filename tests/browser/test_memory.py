"""The tab Memory: its figures follow the form, its links open as they were copied, its measurement is real."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.served import Served

pytestmark = pytest.mark.browser

CONFIG = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def memory(screen: Screen) -> Screen:
    screen.open_tab("Memory")
    expect(screen.memory_headline).to_contain_text("cache takes")
    return screen


def fill(screen: Screen, element: str, value: int) -> None:
    screen.part(f"{element} input[type=number]").first.fill(str(value))
    screen.tab.keyboard.press("Tab")


def test_it_opens_on_the_loaded_model_with_every_part_drawn(page: Served, memory: Screen) -> None:
    expect(memory.memory_headline).to_contain_text("tiny")
    # 4,096 tokens of 1 KiB.
    expect(memory.memory_headline).to_contain_text("takes 4 MiB")
    for chart in ("growth", "layers", "sharing"):
        memory.expect_drawn(f"#memory-{chart}")
    expect(memory.part("#memory-arithmetic")).to_contain_text("4,096")


def test_the_figures_follow_length_requests_and_dtype(page: Served, memory: Screen) -> None:
    fill(memory, "#memory-length", 8192)
    expect(memory.memory_headline).to_contain_text("takes 8 MiB")
    fill(memory, "#memory-batch", 16)
    expect(memory.memory_headline).to_contain_text("takes 128 MiB")
    memory.choose("#memory-dtype", "bfloat16")
    expect(memory.memory_headline).to_contain_text("takes 64 MiB")


def test_the_budget_is_this_machines_for_the_loaded_model_and_the_usual_one_for_others(
    page: Served, memory: Screen
) -> None:
    budget, source = memory.part("#memory-budget input"), memory.part("#memory-budget-from")
    expect(memory.memory_headline).to_contain_text(re.compile("GiB .this (machine|container)"))
    expect(source).to_contain_text(re.compile("this (machine|container): [0-9.]+"))
    memory.choose("#memory-model", "gpt-oss-120b")
    expect(budget).to_have_value("80")
    expect(source).to_contain_text("default: 80")
    expect(memory.memory_headline).to_contain_text("of 80 GiB: it fits")
    expect(memory.memory_headline).to_contain_text("weights as published: mxfp4, 60.77 GiB")
    fill(memory, "#memory-budget", 40)
    expect(memory.memory_headline).to_contain_text("you have 40: it does not fit")
    memory.choose("#memory-model", "The loaded model")
    expect(source).to_contain_text(re.compile("this (machine|container): [0-9.]+"))
    expect(budget).to_have_value("40")


def test_the_slider_moves_the_length(page: Served, memory: Screen) -> None:
    slider = memory.part("#memory-slider input[type=range]")
    slider.focus()
    for _ in range(20):
        memory.tab.keyboard.press("ArrowRight")
    expect(memory.part("#memory-length input")).to_have_value("8192")
    expect(memory.memory_headline).to_contain_text("takes 8 MiB")


@pytest.mark.slow  # in make test the budget's test reads both verdicts of a known model, and unit tests the numbers
def test_a_known_model_and_a_budget_give_a_verdict_in_words(page: Served, memory: Screen) -> None:
    memory.choose("#memory-model", "Llama-3.1-8B")
    fill(memory, "#memory-length", 131072)
    fill(memory, "#memory-batch", 8)
    # 131,072 tokens of 128 KiB for eight, and 15 GiB of weights.
    expect(memory.memory_headline).to_contain_text("143 GiB")
    expect(memory.memory_headline).to_contain_text("it does not fit")
    fill(memory, "#memory-length", 32768)
    expect(memory.memory_headline).to_contain_text("32 GiB")
    expect(memory.memory_headline).to_contain_text("it fits")


def test_a_pasted_config_is_traced_and_a_broken_one_leaves_the_last_result(page: Served, memory: Screen) -> None:
    memory.choose("#memory-model", "A config.json")
    memory.part("#memory-config textarea").fill(json.dumps(CONFIG))
    memory.part("#memory-read").click()
    # 2 x 3 layers x 4 heads x 32 x 2 bytes, for each of 4,096 tokens: 6 MiB
    expect(memory.memory_headline).to_contain_text("takes 6 MiB")
    memory.part("#memory-config textarea").fill("{")
    memory.part("#memory-read").click()
    expect(memory.part("#memory-notice")).to_contain_text("config")
    expect(memory.memory_headline).to_contain_text("takes 6 MiB")


def test_the_growth_is_drawn_along_what_is_chosen(page: Served, memory: Screen) -> None:
    for grows_with, axis in (
        ("users", "requests"),
        ("layers", "layers"),
        ("KV heads", "KV heads"),
        ("length", "tokens"),
    ):
        memory.part("#memory-by").get_by_text(grows_with, exact=True).click()
        expect(memory.part("#memory-growth .xtitle").first).to_contain_text(axis)
        memory.expect_drawn("#memory-growth")


def test_what_is_measured_is_what_was_predicted(page: Served, memory: Screen) -> None:
    memory.part("#memory-measure").click()
    expect(memory.part("#memory-measured")).to_contain_text("4 of 4 layers hold exactly what was predicted")
    expect(memory.part("#memory-measured")).to_contain_text("0 bytes difference")
    expect(memory.part("#memory-measure")).to_be_visible()


def test_a_measurement_can_be_stopped(page: Served, memory: Screen) -> None:
    with page.puppet.held(after=1):
        memory.part("#memory-measure").click()
        page.puppet.wait_until_held()
        memory.part("#memory-stop").click()
        page.puppet.let_go()
        expect(memory.part("#memory-measured")).to_contain_text("Stopped")
    expect(memory.part("#memory-measure")).to_be_visible()


@pytest.mark.slow
def test_it_answers_while_another_visitors_run_is_going(page: Served, opened: Callable[..., Screen]) -> None:
    other = opened(page)
    with page.puppet.held(after=2):
        other.send("hi")
        page.puppet.wait_until_held()
        screen = opened(page, "/?tab=memory")
        expect(screen.memory_headline).to_contain_text("takes 4 MiB")
        fill(screen, "#memory-length", 8192)
        expect(screen.memory_headline).to_contain_text("takes 8 MiB")
    other.wait_for_answer(1)


WRONG = [
    ("length", "0", "length"),
    ("length", "", "length"),
    ("batch", "-3", "requests"),
    ("budget", "-1", "budget"),
    ("free", "150", "keep free"),
]


def test_a_wrong_number_is_refused_by_name_and_leaves_the_last_result(page: Served, memory: Screen) -> None:
    for element, value, field in WRONG:
        box = memory.part(f"#memory-{element} input[type=number]").first
        good = box.input_value()
        box.fill(value)
        memory.tab.keyboard.press("Tab")
        expect(memory.part("#memory-notice")).to_contain_text(re.compile(field, re.IGNORECASE))
        expect(memory.memory_headline).to_contain_text("takes 4 MiB")
        box.fill(good)
        memory.tab.keyboard.press("Tab")
        expect(memory.part("#memory-notice")).to_have_text("")


def test_a_link_opens_with_its_numbers_and_the_address_follows_them(
    page: Served, opened: Callable[..., Screen]
) -> None:
    screen = opened(page, "/?tab=memory&model=gpt-oss-20b&seq_len=32768&batch=2&budget=80&by=users")
    expect(screen.memory_headline).to_contain_text("gpt-oss-20b, 2 requests of 32,768 tokens")
    expect(screen.part("#memory-growth")).to_contain_text("How does it grow with users?")
    fill(screen, "#memory-batch", 4)
    expect(screen.tab).to_have_url(re.compile(r"model=gpt-oss-20b&seq_len=32768&batch=4&by=users&budget=80$"))
    hatched = screen.tab.evaluate(
        "[...document.querySelectorAll('#memory-layers [style*=\"url(\"]')].map(part => part.style.fill)"
    )
    assert hatched
    assert all("batch=4" in fill for fill in hatched)


def test_a_link_that_asks_for_what_cannot_be_says_so(page: Served, opened: Callable[..., Screen]) -> None:
    screen = opened(page, "/?tab=memory&model=nobody&seq_len=0")
    expect(screen.part("#memory-link-notice")).to_contain_text("seq_len: must be between 1 and 100,000,000, not 0.")
    expect(screen.part("#memory-link-notice")).to_contain_text("'nobody' is not one of the known models.")
    expect(screen.memory_headline).to_contain_text("takes 4 MiB")


def test_a_config_that_needs_code_of_its_own_can_be_typed_by_hand(page: Served, memory: Screen) -> None:
    memory.choose("#memory-model", "A config.json")
    config = {"model_type": "new", "auto_map": {}, "num_hidden_layers": 40, "num_key_value_heads": 4, "head_dim": 96}
    memory.part("#memory-config textarea").fill(json.dumps(config))
    memory.part("#memory-read").click()
    expect(memory.part("#memory-notice")).to_contain_text("auto_map")
    memory.part("#memory-use-hand").click()
    expect(memory.memory_headline).to_contain_text("A model typed by hand, 1 request of 4,096 tokens")
    expect(memory.memory_headline).to_contain_text("takes 240 MiB")
