"""The conversation as the page keeps it, the fold over a run's events, and fragments that show text word for word."""

from __future__ import annotations

import html
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.components.markup import bold_parts, table, text
from kvdemo.components.run_view import RunView
from kvdemo.errors import InvalidRequest
from kvdemo.facts.events import Finished, GenerationEvent, PrefillProgress, PromptEncoded, Reuse, Waiting, Working
from kvdemo.facts.requests import Message
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.messages import live_answer, past_turns
from kvdemo.ui.chat.panel import empty_panel, panel, phone_line
from tests.fake_backend import STRATEGIES, answer_events
from tests.made_up_model import MODEL

NASTY = "<script>alert(1)</script> <img src=http://x/y onerror=alert(1)> & \"quoted\" 'too'\n\n\tindented **x**"
DYNAMIC = STRATEGIES[1]


def after(events: list[GenerationEvent], view: RunView | None = None) -> RunView:
    view = view or RunView()
    for event in events:
        view = view.after(event)
    return view


def talked(*turns: tuple[str, str]) -> Conversation:
    conversation = Conversation()
    for question, answer in turns:
        conversation = conversation.asked(question).answered(answer)
    return conversation


def test_the_model_reads_answered_turns_and_the_last_question_and_the_system_prompt_first() -> None:
    conversation = talked(("a", "b"), ("stopped before a token", "")).asked("c")
    assert conversation.messages("be brief") == (
        Message("system", "be brief"),
        Message("user", "a"),
        Message("assistant", "b"),
        Message("user", "c"),
    )


def test_an_edited_question_replaces_its_turn_and_all_after_it() -> None:
    conversation = talked(("a", "1"), ("b", "2"), ("c", "3")).editing_turn(1, "draft")
    assert [turn.question for turn in conversation.asked("B").turns] == ["a", "B"]
    assert conversation.asked("B").editing is None


def test_an_empty_question_is_refused_and_changes_nothing() -> None:
    with pytest.raises(InvalidRequest, match="message: is empty"):
        Conversation().asked("  ")


def test_a_run_is_folded_into_what_the_page_shows() -> None:
    view = after(answer_events(["one", " two", " three"], prompt_tokens=10))
    assert (view.phase, view.text, view.tokens, view.prompt_tokens, view.cache_tokens) == (
        "finished",
        "one two three",
        3,
        10,
        12,
    )
    assert view.tokens_per_s == pytest.approx(1 / 0.04, rel=0.01)


def test_waiting_and_reading_are_said_in_words() -> None:
    assert RunView().after(Waiting(1)).state_words == "You are next."
    assert RunView().after(Waiting(3)).state_words == "Waiting: 2 before you."
    reading = after([PromptEncoded(2013, 0.0, 0.0, 8192), PrefillProgress(512, 2013), Working(0.5)])
    assert reading.state_words == "Reading your prompt: 512 of 2,013 tokens"


def test_speed_is_unknown_below_two_tokens() -> None:
    assert after(answer_events(["one"])).tokens_per_s is None


@pytest.mark.parametrize("strategy", ["none", "dynamic", "static"])
def test_the_panel_draws_every_moment_of_a_run(strategy: str) -> None:
    row = next(row for row in STRATEGIES if row.key == strategy)
    view = RunView(strategy=strategy, kept=True)
    for event in answer_events(["one", " two"], prompt_tokens=10, strategy=strategy):
        view = view.after(event)
        assert panel(view, MODEL, row, "kept").startswith("<div")


def test_the_bar_shows_reused_prefilled_generated_and_the_newest_token_hollow() -> None:
    events = answer_events(["a", "b", "c"], prompt_tokens=64)
    events[1] = PromptEncoded(64, 0.0, 0.0, 8192, None, Reuse("continued", 45, 45))
    drawn = panel(after(events[:-1]), MODEL, DYNAMIC)
    for part, size in (("reused", 45), ("prefill", 19), ("generated", 2), ("newest", 1)):
        assert f'kv-part-{part}" style="flex:{size} 1 0"' in drawn
    assert "45 reused" in drawn
    assert "19 prefilled" in drawn
    assert "3 generated" in drawn
    assert "Reused 45 of 64 prompt tokens. The rest is your new question." in drawn
    assert "67 of 8,192 tokens" in drawn


def test_a_prompt_read_in_full_because_the_kept_cache_is_gone_says_why() -> None:
    events = answer_events(["a"], prompt_tokens=64)
    events[1] = PromptEncoded(64, 0.0, 0.0, 8192, None, Reuse("fresh", 0, 0, "The turn before failed."))
    drawn = panel(after(events), MODEL, DYNAMIC)
    assert "The prompt's 64 tokens are computed once" in html.unescape(drawn)
    assert "The turn before failed." in drawn


def test_the_reserved_rest_of_a_static_cache_is_hatched() -> None:
    drawn = panel(after(answer_events(["a", "b"], strategy="static", prompt_tokens=10)[:-1]), MODEL, STRATEGIES[2])
    assert f'kv-part-reserved" style="flex:{256 - 2} 1 0"' in drawn


def test_without_a_cache_nothing_is_said_to_be_held() -> None:
    drawn = panel(
        after(answer_events(["a", "b"], strategy="none")[:-1], RunView(strategy="none")), MODEL, STRATEGIES[0]
    )
    assert "0 B" in drawn
    assert "not in the cache yet" not in drawn
    assert "computed again for every token" in drawn


def test_the_time_in_the_queue_stands_beside_the_first_token_time_never_inside() -> None:
    events = answer_events(["a"])
    events[1] = PromptEncoded(64, 20.3, 0.0, 8192)
    assert "64.0 ms" in panel(after(events), MODEL, DYNAMIC)
    assert "to the first token, after 20.3 s in the queue" in panel(after(events), MODEL, DYNAMIC)


def test_a_phone_gets_the_figures_in_one_line() -> None:
    assert phone_line(RunView()) == ""
    assert "67 tokens · 2.9 MiB · 25.0 tok/s" in phone_line(after(answer_events(["a", "b", "c"])))


@given(st.text())
def test_a_fragment_is_one_line_that_says_the_text_word_for_word(value: str) -> None:
    escaped = text(value)
    assert not set("<>\n\r\t") & set(escaped)
    assert (
        html.unescape(escaped) == value.replace("\r\n", "\n").replace("\r", "\n")
        or "\x00" in value
        or not value.isprintable()
    )


def test_text_from_people_and_models_is_shown_and_never_read_as_markup() -> None:
    conversation = talked((NASTY, NASTY))
    for shown in (
        past_turns(conversation),
        live_answer(RunView(text=NASTY)),
        bold_parts(NASTY),
        table(["a"], [[text(NASTY)]], caption=NASTY),
    ):
        assert "<script" not in shown
        assert "<img" not in shown
        # Gradio runs cleandoc over it and the browser a Markdown parser: one line that begins with a tag survives both.
        assert "\n" not in shown
        assert "\t" not in shown
    assert inspect.cleandoc(past_turns(conversation)) == past_turns(conversation)
    assert text(NASTY) in past_turns(conversation)


def test_nothing_can_be_done_to_turns_while_an_answer_is_written_but_copy() -> None:
    shown = past_turns(talked(("a", "b")).asked("c"))
    assert "kv-act-copy" in shown
    for action in ("retry", "edit", "undo"):
        assert f"kv-act-{action}" not in shown


def test_the_empty_state_says_what_will_appear_and_offers_four_examples() -> None:
    assert past_turns(Conversation()).count("kv-act-example") == 4
    assert "what the cache holds" in empty_panel()


def test_a_finished_run_brings_its_whole_text() -> None:
    finished = answer_events(["held", " back"])[-1]
    assert isinstance(finished, Finished)
    assert RunView(text="he").after(finished).text == "held back"
