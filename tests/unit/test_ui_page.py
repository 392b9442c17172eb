"""The page as it is built: header, style, addresses, endpoints; nothing slow is imported on the way."""

from __future__ import annotations

from types import SimpleNamespace

import gradio as gr
import pytest

from kvdemo.components.wiring import Updates
from kvdemo.facts.model import Failed, Loading, Ready
from kvdemo.palette import MEANINGS
from kvdemo.settings import Settings
from kvdemo.ui import api, page
from kvdemo.ui.header import header
from kvdemo.ui.memory.tab import build_memory_tab
from kvdemo.ui.theme import page_style, style_sheet
from tests.fake_backend import ANSWER, FakeBackend
from tests.made_up_model import MODEL

REQUEST = SimpleNamespace(session_hash="abc")


with gr.Blocks():
    TABS, MEMORY = gr.Tabs(), build_memory_tab(FakeBackend(), Settings())


def opened(**query: str) -> Updates:
    request = SimpleNamespace(query_params=query)
    return page.opened(FakeBackend(), Settings(), TABS, MEMORY, request)


def test_the_header_says_how_far_loading_is_then_what_is_loaded_or_what_went_wrong() -> None:
    assert "Loading m: weights, 2 of 3. Memory works already." in header(Loading("m", "weights, 2 of 3"))
    ready = header(Ready(MODEL))
    assert "134.5 M parameters · float32 on CPU · weights 513 MiB · cache 45.0 KiB per token" in ready
    assert MODEL.source in ready
    broken = header(Failed("m<b>", "No such folder: check the name."))
    assert "No such folder: check the name." in broken
    assert "m&lt;b&gt;" in broken


def test_there_is_one_first_heading() -> None:
    assert header(Ready(MODEL)).count("<h1") == 1


def test_style_and_script_travel_in_the_head_and_load_nothing() -> None:
    style = page_style()
    assert set(style) == {"theme", "head"}
    assert "http" not in style["head"].replace("https://", "http").split("<script>")[0]
    assert "@import" not in style["head"]
    assert style["theme"]._stylesheets == []


def test_every_meaning_of_the_palette_has_its_variable_in_both_modes() -> None:
    sheet = style_sheet()
    for name, meaning in MEANINGS.items():
        assert f"--kv-{name}: {meaning.fill};" in sheet
        assert f"--kv-{name}: {meaning.dark};" in sheet


def test_an_address_opens_its_tab_and_memory_reads_its_numbers() -> None:
    told = opened(tab="memory", seq_len="32768")
    assert told[TABS]["selected"] == "memory"
    assert told[MEMORY.form["seq_len"]] == 32_768


def test_an_address_that_names_a_result_or_a_question_opens_compare() -> None:
    for query in ({"result": "compare"}, {"question": "grow"}):
        assert opened(**query)[TABS]["selected"] == "compare"


@pytest.mark.parametrize("bad", ["", "-1", "Memory", "٣", "9" * 30, "<script>"])
def test_an_address_with_nonsense_opens_no_other_tab(bad: str) -> None:
    assert TABS not in opened(tab=bad)


def test_closing_the_page_ends_its_runs_and_frees_what_it_holds() -> None:
    backend = FakeBackend()
    demo = page.build_page(backend, Settings())
    (closing,) = (fn.fn for fn in demo.fns.values() if ("unload" in str(fn.targets)))
    closing(REQUEST)
    assert (
        set(backend.stopped)
        == set(backend.released)
        >= {"abc/chat", "abc/compare/faster", "abc/compare/prefix", "abc/memory", "abc/api", "abc/chat/times"}
    )


def test_two_visitors_start_with_the_same_empty_page() -> None:
    demo = page.build_page(FakeBackend(), Settings())
    states = [block.value for block in demo.blocks.values() if isinstance(block, gr.State)]
    assert all(state is None or not state or not getattr(state, "turns", ()) for state in states)


def test_the_chat_endpoint_tells_every_event_and_ends_with_the_figures() -> None:
    backend = FakeBackend()
    told = list(api.chat(backend, REQUEST, "hi", system_prompt="be brief"))
    assert [event["event"] for event in told[:4]] == [
        "waiting",
        "prompt_encoded",
        "prefill_progress",
        "prefill_progress",
    ]
    assert {event["event"] for event in told[4:-1]} == {"token"}
    assert (told[-1]["event"], told[-1]["text"], told[-1]["finish_reason"]) == ("finished", ANSWER, "stop")
    assert told[-1]["ttft_s"] == pytest.approx(0.064)
    assert backend.closed == ["abc/api"]


def test_the_compare_endpoint_ends_with_the_commands_document() -> None:
    *progress, last = api.compare(FakeBackend(), REQUEST, "The red cat was", max_new_tokens=4)
    assert {step["event"] for step in progress} == {"progress"}
    assert last["schema"] == 1
    assert len(last["runs"]) == 4


def test_the_memory_endpoint_plans_the_loaded_model_in_its_own_dtype() -> None:
    assert api.memory(FakeBackend(), 128)["cache"]["held_bytes"] == 46_080 * 128


def test_the_endpoints_refuse_in_words() -> None:
    with pytest.raises(gr.Error, match="message: is empty"):
        list(api.chat(FakeBackend(), REQUEST, ""))
    with pytest.raises(gr.Error, match="strategies"):
        list(api.compare(FakeBackend(), REQUEST, "x", strategies=["none"]))
    with pytest.raises(gr.Error, match="seq_len"):
        api.memory(FakeBackend(), 0)
