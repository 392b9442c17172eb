"""Every handler of the page, run as Gradio runs it: what it takes, whose run it is, and that what it leaves out stays."""

from __future__ import annotations

from collections.abc import Iterator

import gradio as gr
import pytest

from kvdemo.components.wiring import Updates, bound
from kvdemo.errors import InvalidRequest
from kvdemo.settings import Settings
from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.page import build_page
from tests.fake_backend import ANSWER, FakeBackend
from tests.through_blocks import Visit

BACKEND = FakeBackend()


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return build_page(BACKEND, Settings())


def test_every_handler_takes_what_a_fresh_page_sends_and_answers_for_its_outputs() -> None:
    refused = InvalidRequest(
        "prompt", "is refused here: the scripted runs of a whole comparison take seconds to sum up"
    )
    page = build_page(FakeBackend(error=refused), Settings())
    visit = Visit(page)
    ran = {fn.name for fn in page.fns.values() if fn.api_visibility == "private" and visit.run(fn)}
    assert ran >= {"take", "act", "answer", "restore", "measure", "plan", "read", "upload", "run", "ready", "opened"}


def test_a_generator_is_queued_always(page: gr.Blocks) -> None:
    """Outside the queue Gradio takes only the first thing that a generator yields."""
    told = {fn.name: fn.queue for fn in page.fns.values() if getattr(fn, "types_generator", False)}
    assert set(told) >= {"answer", "run", "measure", "read"}
    assert set(told.values()) == {True}


def test_stop_ends_what_this_visitor_runs_at_this_place(page: gr.Blocks) -> None:
    visit = Visit(page, "stopping")
    for place in ("chat-stop", "chat-measure-stop", "memory-stop"):
        visit.run(visit.event("stop", place))
    mine = [owner for owner in BACKEND.stopped if owner.startswith("stopping/")]
    assert mine == ["stopping/chat", "stopping/chat/times", "stopping/memory"]


def test_an_answer_is_the_visitors_own_and_leaves_the_composer_alone(page: gr.Blocks) -> None:
    visit = Visit(page, "asking")
    take, answer = visit.event("take"), visit.event("answer")
    visit.run(take, [None, "Name three planets.", ""])
    told = visit.run(answer)
    box = next(block for block in answer.outputs if block.elem_id == "chat-box")
    assert all(box not in step for step in told)
    conversation = visit.state[answer.outputs[0]._id]
    assert [(turn.question, turn.answer) for turn in conversation.turns] == [("Name three planets.", ANSWER)]
    assert "asking/chat" in BACKEND.closed


def test_a_state_that_a_handler_does_not_name_stays_also_between_the_yields_of_a_generator() -> None:
    def steps(given: str, request: gr.Request, typed: str) -> Iterator[Updates]:
        yield {words: f"{given} {typed} {request.session_hash}"}
        yield gr.skip()
        yield {other: "end"}

    with gr.Blocks() as demo:
        words, other, kept = gr.Textbox(), gr.Textbox(), gr.State(Conversation((Turn("kept"),)))
        other.submit(bound(steps, "hello"), other, [words, other, kept])
    visit = Visit(demo)
    (fn,) = demo.fns.values()
    assert visit.run(fn, ["you"]) == [{words: "hello you abc"}, {}, {other: "end"}]
    assert visit.state[kept._id] == Conversation((Turn("kept"),))
