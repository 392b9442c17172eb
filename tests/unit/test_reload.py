"""What a tab keeps of its conversation, and what is taken back: the texts word for word, checked like a file from anybody."""

from __future__ import annotations

import html
import json
from dataclasses import replace

from kvdemo.experiments.documents import loads
from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.chat.conversation_file import conversation_of
from kvdemo.ui.chat.reload import MOST_CHARS, to_keep
from tests.made_up import run_of

TALK = Conversation((Turn("a\n<b>", "c\td & e", figures="3 tokens", record=run_of()), Turn("last?")))


def kept(conversation: Conversation, system_prompt: str = "") -> str:
    found = to_keep(conversation, system_prompt)
    return html.unescape(found.removeprefix('<pre class="kv-keep-here">').removesuffix("</pre>"))


def test_what_is_kept_comes_back_word_for_word_with_its_figures() -> None:
    assert conversation_of(loads(kept(TALK, "Be <brief>."))) == (TALK, "Be <brief>.")


def test_an_empty_conversation_keeps_nothing() -> None:
    assert kept(Conversation()) == ""


def test_a_fragment_is_one_line_and_holds_no_element_of_others() -> None:
    fragment = to_keep(TALK, "")
    assert "\n" not in fragment
    assert fragment.count("<") == 2


def test_a_long_conversation_keeps_its_texts_without_figures_and_one_beyond_all_nothing() -> None:
    long = replace(
        TALK,
        turns=tuple(
            replace(turn, record=run_of(times_s=[0.1 * n for n in range(1, 2000)])) for turn in TALK.turns * 20
        ),
    )
    document = json.loads(kept(long))
    assert [turn["question"] for turn in document["turns"]] == [turn.question for turn in long.turns]
    assert {turn["run"] for turn in document["turns"]} == {None}
    huge = Conversation(tuple(Turn("q", "x" * 100_000) for _ in range(1 + MOST_CHARS // 100_000)))
    assert kept(huge) == ""
