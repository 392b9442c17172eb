"""What stands around the chat: Markdown answers, saved conversations, kept settings, times, what does not fit."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvdemo.errors import ContextFull, InvalidRequest
from kvdemo.ui.chat.answer_text import answer_html, split_reasoning
from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.chat.conversation_file import as_json, as_markdown, opened
from kvdemo.ui.chat.settings import REMEMBERED, ChatSettings, remembered, restored
from kvdemo.ui.chat.times import drawn, measured_without_reuse, prefill_tokens_per_s, saved_words
from kvdemo.ui.chat.turns import act, answer
from tests.fake_backend import FakeBackend, record_of
from tests.made_up_model import MODEL

KEYS = ("none", "dynamic", "static")


def turn(question: str, prompt_tokens: int = 64, reused: int = 0) -> Turn:
    record = record_of(["a", "b", "c"], [0.1, 0.2, 0.3], prompt_tokens, "dynamic", "stop")
    return Turn(question, "an answer", figures="3 tokens", record=record)


def talked(count: int) -> Conversation:
    return Conversation(tuple(turn(f"question {index}", 64 * (index + 1)) for index in range(count)))


# --- text ------------------------------------------------------------------------------------------------------------


def seen(drawn: str) -> str:
    """What is read of a fragment: no tags, entities as characters; what is only there for Copy left out."""
    return html.unescape(re.sub(r"<[^>]*>", "", drawn.split('<div class="kv-raw"')[0]))


def kept_for_copy(drawn: str) -> tuple[str, str]:
    """(what Copy gives, what the button says where that is not all)."""
    kept = re.search(r'<div class="kv-raw"(?: title="([^"]*)")?>([^<]*)</div>$', drawn)
    assert kept is not None
    return html.unescape(kept.group(2)), html.unescape(kept.group(1) or "")


def test_markdown_is_drawn_on_one_line_and_the_raw_text_is_there_for_copy() -> None:
    raw = '## Title\n\n**bold**\n\n```python\n\tdef f():\n    return "<a>"\n```\n'
    drawn_answer = answer_html(raw)
    assert "<strong>bold</strong>" in drawn_answer
    assert "<pre><code>&#9;def f():&#10;    return &quot;&lt;a&gt;&quot;&#10;</code></pre>" in drawn_answer
    assert "\n" not in drawn_answer
    assert "\t" not in drawn_answer
    assert kept_for_copy(drawn_answer) == (raw, "")


@pytest.mark.parametrize(
    "raw",
    [
        "def f(x):\n    if x:\n        return x",
        "    indented from the start\n\n\tand with a tab",
        "__init__ and _x_ and *args, **kwargs and a*b*c and 2 ** 3 ** 4",
        "# a comment\nx = 1",
        "# a comment",
        "Title\n=====\n\n---\n***",
        "a &lt; b &amp;&amp; c \\* d \\n",
        "<b>tags</b> <!-- and comments -->",
        "> quoted\n>> twice",
        "[x]: http://example.com\n\n[x] [y](z) ![i](http://example.com/i.png)",
        "a  \nhard  break, two  spaces",
        "~~gone~~ ==marked== $x_1$",
        "**bold** and `code` and ``a ` b``",
        "## A heading ##",
        "- [ ] not done",
        '"""doc\nstring\n"""',
    ],
)
def test_what_is_seen_outside_lists_tables_and_fences_is_what_the_model_wrote(raw: str) -> None:
    assert seen(answer_html(raw)) == raw


@pytest.mark.parametrize("comment", ["# a comment", "__init__", "_x_", "*args", "    - not a list"])
def test_code_outside_a_fence_gets_no_markup(comment: str) -> None:
    assert answer_html(f"x = 1\n\n{comment}\n\ny = 2").count("<div") == 3
    assert not re.search(r"<(h\d|em|strong|li|pre)", answer_html(f"x = 1\n\n{comment}\n\ny = 2"))


@pytest.mark.parametrize("raw", ["```", "```py", "a\n```", "~~~"])
def test_a_fence_with_nothing_in_it_is_seen_as_it_was_written(raw: str) -> None:
    assert seen(answer_html(raw)) == raw


MARKS = [
    "-",
    "*",
    "+",
    "1.",
    "2)",
    "10.",
    "#",
    "##",
    "`",
    "**",
    "_",
    ">",
    " ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\n\n",
    "a",
    "b <c>",
    "[l](http://e.com)",
    "&lt;",
    "\\",
    "é",
    "-\n",
    "---",
]


@given(st.lists(st.sampled_from(MARKS), max_size=40).map("".join))
def test_no_character_is_lost_or_moved_whatever_marks_an_answer_has(raw: str) -> None:
    assume("```" not in raw)  # a fence is drawn as code, its marks with it
    assert "".join(seen(answer_html(raw)).split()) == "".join(raw.split())
    assert "".join(seen(answer_html(raw, cursor=True)).split()) == "".join(raw.split())
    assert answer_html(raw, cursor=True).count("kv-cursor") == 1


LIST = "1. One **now**\n   - inner\n     ```py\n     if x:\n         y\n     ```\n2. Two"
TABLE = "| a | b |\n|---|--:|\n| 1 | `c` |"


def test_lists_tables_and_fences_are_lists_tables_and_code() -> None:
    drawn = answer_html(f"Steps:\n{LIST}\n\n{TABLE}\n\nEnd")
    tags = re.findall(r"<(ol|ul|li|pre|table|th|td)\b", drawn)
    assert tags == [*("ol", "li", "ul", "li", "pre", "li"), *("table", "th", "th", "td", "td")]
    assert "<code>if x:&#10;    y&#10;</code>" in drawn
    assert '<td style="text-align:right"><code>`c`</code></td>' in drawn


def test_marks_of_lists_are_seen_as_they_were_written() -> None:
    assert seen(answer_html("- a\n* b\n7) c\n1986. d")) == "- a* b7) c1986. d"


def test_a_line_left_of_an_items_text_is_not_drawn_as_part_of_it() -> None:
    drawn = answer_html("x = [\n- 1,\n]\nfor y in x:\n    print(y)")
    assert '<div class="kv-written">]&#10;for y in x:&#10;    print(y)</div>' in drawn


def test_a_link_shows_where_it_leads() -> None:
    drawn = answer_html("see [here](https://example.com/a?b=1&c=2) or [there](javascript:alert(1))")
    assert re.findall(r'href="([^"]*)"', drawn) == ["https://example.com/a?b=1&amp;c=2"]
    assert seen(drawn) == "see [here](https://example.com/a?b=1&c=2) or [there](javascript:alert(1))"


@pytest.mark.parametrize(
    ("raw", "copied", "said"),
    [
        ("yes", "yes", ""),
        ("<think>hm</think>\n\nyes <b>", "yes <b>", "Copied without the reasoning"),
        ("hm</think>\n\nyes", "yes", "Copied without the reasoning"),
        ("<think>still <b>", "<think>still <b>", "Copied the reasoning: it has no end, so there is no answer"),
        ("<think>hm</think>\n", "<think>hm</think>\n", "Copied the reasoning: there is no answer after it"),
    ],
)
def test_copy_gives_the_answer_and_says_what_it_left_out(raw: str, copied: str, said: str) -> None:
    assert kept_for_copy(answer_html(raw)) == (copied, said)


@pytest.mark.parametrize(
    "payload",
    [
        "<script>alert(1)</script>",
        "<img src=http://x/y onerror=alert(1)>",
        "![i](http://example.com/i.png)",
        "[l](javascript:alert(1))",
        "```html\n<script>alert(1)</script>\n```",
        "<!-- --><iframe src=//x></iframe>",
        "[x]: <javascript:alert(1)>\n\n[x]",
    ],
)
def test_nothing_in_an_answer_runs_or_loads(payload: str) -> None:
    shown = answer_html(payload)
    assert not re.search(r"<(script|img|iframe|style|link|object|form)", shown, re.IGNORECASE)
    assert 'href="javascript' not in shown.lower()


def test_headings_of_an_answer_stand_below_the_pages_own() -> None:
    assert re.findall(r"<(h\d)>([^<]*)", answer_html("## Two\n\n###### Six")) == [
        ("h4", "## Two"),
        ("h6", "###### Six"),
    ]


@pytest.mark.parametrize(
    ("raw", "thought", "proper"),
    [
        ("<think>hm</think>\n\nyes", "hm", "yes"),
        ("<think>still thinking", "still thinking", ""),
        ("opened in the prompt</think>yes", "opened in the prompt", "yes"),
        ("no marks", "", "no marks"),
        ("said: <think>", "", "said: <think>"),
    ],
)
def test_reasoning_is_told_apart_from_the_answer(raw: str, thought: str, proper: str) -> None:
    assert split_reasoning(raw) == (thought, proper)


# --- files -----------------------------------------------------------------------------------------------------------


def written(tmp_path: Path, content: str) -> str:
    path = tmp_path / "conversation.json"
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_a_saved_conversation_opens_as_it_was_figures_included(tmp_path: Path) -> None:
    conversation = Conversation((turn("<b>\ttab\n"), Turn("stopped", "half", note="Stopped.")))
    path = written(tmp_path, as_json(conversation, MODEL, "be brief"))
    assert opened(path, 10**6) == (conversation, "be brief")
    assert not Path(path).exists()


def test_a_conversation_to_read_has_the_texts_word_for_word() -> None:
    told = as_markdown(Conversation((Turn("a <b> **c**", "d\n\te", note="Stopped.", figures="2 tokens"),)), MODEL, "s")
    assert "a <b> **c**" in told
    assert "d\n\te\n\n*Stopped. · 2 tokens*" in told


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "file"),
        ("[]", "file"),
        ('{"schema": 1, "kind": "comparison"}', "file"),
        ('{"schema": 1, "kind": "conversation", "turns": 7}', "turns"),
        ('{"schema": 1, "kind": "conversation", "turns": [{"question": ""}]}', "turns\\[0\\].message"),
        ('{"schema": 1, "kind": "conversation", "turns": [{"question": "a", "answer": 7}]}', "turns\\[0\\].message"),
        ('{"schema": 1, "kind": "conversation", "turns": [7]}', "turns\\[0\\]"),
        (
            '{"schema": 1, "kind": "conversation", "turns": [{"question": "a", "run": {"strategy": 7}}]}',
            "turns\\[0\\].run",
        ),
    ],
)
def test_a_file_that_is_no_saved_conversation_is_refused_with_the_place(
    tmp_path: Path, content: str, named: str
) -> None:
    with pytest.raises(InvalidRequest, match=named):
        opened(written(tmp_path, content), 10**6)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="larger than"):
        opened(written(tmp_path, "x" * (2**20 + 1)), 2**20)


# --- settings --------------------------------------------------------------------------------------------------------


def test_what_the_browser_keeps_are_settings_never_texts() -> None:
    kept = remembered(ChatSettings(system_prompt="secret", seed=7))
    assert "secret" not in kept
    values = json.loads(html.unescape(re.search(r'title="([^"]*)"', kept).group(1)))  # type: ignore[union-attr]
    assert (tuple(values), values["seed"]) == (REMEMBERED, 7)


def test_kept_settings_come_back_each_checked_again() -> None:
    kept = json.dumps({"strategy": "static", "keep": False, "max_new_tokens": 99, "temperature": 0.5, "seed": 3})
    assert restored(kept, KEYS, 4096) == {
        "strategy": "static",
        "keep": False,
        "max_new_tokens": 99,
        "temperature": 0.5,
        "seed": 3,
    }


@pytest.mark.parametrize(
    "kept",
    [
        *(None, "", "{", "[]", "7", "x" * 2000, "{}"),
        json.dumps({"strategy": "magic", "keep": "yes", "max_new_tokens": 10**9, "temperature": 99, "top_p": 0}),
        json.dumps(
            {"strategy": None, "keep": None, "max_new_tokens": None, "temperature": None, "top_k": [], "seed": {}}
        ),
        '{"temperature": NaN, "top_p": Infinity, "seed": 1e400}',
    ],
)
def test_bad_kept_settings_change_nothing(kept: Any) -> None:
    assert restored(kept, KEYS, 4096) == {}


# --- times -----------------------------------------------------------------------------------------------------------


def test_times_are_drawn_from_the_first_answer_on_and_by_turn_from_the_third() -> None:
    assert drawn(Conversation())[:2] == (None, None)
    steps, turns, _ = drawn(talked(1))
    assert (type(steps).__name__, turns) == ("Figure", None)
    assert type(drawn(talked(3))[1]).__name__ == "Figure"


def test_the_same_turns_are_measured_without_reuse_one_after_the_other() -> None:
    told = list(measured_without_reuse(FakeBackend(), talked(3), ChatSettings(), "me"))
    assert told[-1][1] == (0.1, 0.2, 0.30000000000000004)
    assert len(told) == 4


def test_a_turn_that_does_not_say_what_it_reused_is_no_measure_of_the_prefill() -> None:
    told = talked(2)
    record = told.turns[1].record
    assert record is not None
    silent = replace(told.turns[1], record=replace(record, reused_tokens=None))
    assert prefill_tokens_per_s(Conversation((told.turns[0], silent))) == pytest.approx(640)
    assert prefill_tokens_per_s(Conversation((silent,))) is None


def test_time_saved_is_an_estimate_from_the_conversations_own_prefill() -> None:
    assert prefill_tokens_per_s(Conversation()) is None
    assert prefill_tokens_per_s(talked(2)) == pytest.approx(1280)
    assert "About 100 ms saved: an estimate" in saved_words(128, 1280.0)
    assert saved_words(0, 1280.0) == saved_words(5, None) == ""


# --- what does not fit -----------------------------------------------------------------------------------------------


def test_a_conversation_that_does_not_fit_says_so_and_offers_to_drop_the_oldest_turns() -> None:
    error = ContextFull("this turn needs 8,410 of 8,192 tokens", needed_tokens=8410, limit_tokens=8192, drop_turns=2)
    (view,) = answer(FakeBackend(error=error), talked(3).asked("more"), ChatSettings(), "me")
    assert "8,410 of 8,192" in view["past"]
    assert "Drop the 2 oldest turns and ask again" in view["past"]
    shorter = act(FakeBackend(), "shorten 2 1", view["conversation"], "draft")
    assert [turn.question for turn in shorter["conversation"].turns] == ["question 2", "more"]
    assert shorter["conversation"].running
    assert act(FakeBackend(), "shorten 1 1", view["conversation"], "") == {}
