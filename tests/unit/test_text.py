"""Token ids to text: nothing broken is ever shown, nothing readable is held back, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.generation.text import IncrementalText
from tests.tiny import EOS_ID, WORD_ID, byte_fallback_tokenizer, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
FALLBACK = byte_fallback_tokenizer()

TEXTS = {
    "ASCII": "The red cat was asleep.",
    "emoji": "😀😀😀😀",
    "joined emoji": "👩‍👩‍👧 and 🇫🇷",
    "CJK": "你好，世界！",
    "Thai": "สวัสดีชาวโลก",
    "Korean": "안녕하세요",
    "Arabic": "مرحبا بالعالم",
    "combining accents": "e\u0301a\u0308",
    "bare JSON": '{"a":1,"b":[2,3]}',
    "Markdown": "**bold**",
}


def pieces(ids: Iterable[int], stop_strings: tuple[str, ...] = (), tokenizer: Any = TOKENIZER) -> list[str]:
    text = IncrementalText(tokenizer, stop_strings)
    return [*(text.push(token_id) for token_id in ids), text.finish()]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_pieces_join_to_the_text_and_never_show_half_a_character(text: str) -> None:
    shown = pieces(text.encode())
    assert "".join(shown) == text
    assert not any("\ufffd" in piece for piece in shown)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_character_is_shown_with_its_last_byte(text: str) -> None:
    shown, so_far = pieces(text.encode())[:-1], b""
    for byte, piece in zip(text.encode(), shown, strict=True):
        so_far += bytes([byte])
        assert piece == "" or so_far.decode().endswith(piece)
    assert shown[-1] == text[-1]


@pytest.mark.parametrize("end", ["\ufffd", " \ufffd\ufffd", "\ufffd a \ufffd"])
def test_replacement_characters_that_the_model_wrote_stay_at_the_end(end: str) -> None:
    assert "".join(pieces(f"ok{end}".encode())) == f"ok{end}"
    assert "".join(pieces(f"ok{end}".encode() + "😀".encode()[:3])) == f"ok{end}"
    assert "".join(pieces(f"ok{end}".encode(), tokenizer=FALLBACK)) == f"ok{end}"
    assert "".join(pieces([*f"ok{end}".encode(), EOS_ID])) == f"ok{end}"


@pytest.mark.parametrize(
    ("ids", "read"),
    [
        ([0x0A, 0xF0, WORD_ID], "\n\ufffd word"),
        ([*"你".encode(), 0xF0, WORD_ID, *"好".encode(), 0xE4], "你\ufffd word好"),
        ([WORD_ID, 0x0A, 0xF0, WORD_ID, 0x0A, 0xFF, WORD_ID], "word\n\ufffd word\n\ufffd word"),
    ],
    ids=["line break", "in CJK", "twice"],
)
def test_a_byte_that_spoils_those_before_it_ends_nothing_and_takes_nothing_back(ids: list[int], read: str) -> None:
    shown = pieces(ids, tokenizer=FALLBACK)
    assert "".join(shown) == read
    assert shown[0] != "" or ids[0] > 0x7F, "what is readable is not held back"


@given(st.lists(st.integers(0, WORD_ID + 1), max_size=40))
def test_whatever_ids_a_byte_fallback_model_makes_there_is_a_text(ids: list[int]) -> None:
    shown = "".join(pieces(ids, tokenizer=FALLBACK))
    assert shown.count("word") == ids.count(WORD_ID)


def test_an_old_tokenizer_without_a_fast_one_reads_the_same() -> None:
    class Slow:
        """The same vocabulary behind the part of the interface that every tokenizer has."""

        all_special_ids = FALLBACK.all_special_ids
        convert_ids_to_tokens, decode = FALLBACK.convert_ids_to_tokens, FALLBACK.decode
        convert_tokens_to_ids = FALLBACK.convert_tokens_to_ids

    for ids in ([0x0A, 0xF0, WORD_ID], [*"ok \ufffd".encode()], [*"你好".encode(), WORD_ID, 0xE4]):
        assert "".join(pieces(ids, tokenizer=Slow())) == "".join(pieces(ids, tokenizer=FALLBACK))


def test_json_and_markdown_are_readable_before_the_end() -> None:
    assert "".join(pieces(b'{"a":1,"b":[2,3]}')[:6]) == '{"a":1'


def test_a_character_cut_in_the_middle_is_dropped_at_the_end() -> None:
    assert "".join(pieces("ok 😀".encode()[:5])) == "ok "


@given(st.binary(max_size=60))
def test_whatever_bytes_a_model_makes_the_joined_text_is_the_whole_decode_less_a_broken_tail(data: bytes) -> None:
    whole = TOKENIZER.decode(list(data), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    joined = "".join(pieces(data))
    assert whole.startswith(joined)
    assert set(whole[len(joined) :]) <= {"\ufffd"}


def test_the_end_token_is_not_shown() -> None:
    text = IncrementalText(TOKENIZER)
    assert [text.push(104), text.push(105), text.push(256), text.finish()] == ["h", "i", "", ""]


@pytest.mark.parametrize("tokenizer", [TOKENIZER, FALLBACK], ids=["bytes", "fallback"])
def test_an_id_for_which_the_tokenizer_has_no_token_adds_nothing_and_ends_nothing(tokenizer: Any) -> None:
    """A model's vocabulary is often padded beyond its tokenizer's."""
    assert "".join(pieces([104, 5000, 105, 5000], tokenizer=tokenizer)) == "hi"


def test_text_ends_just_before_a_stop_string_and_shows_no_part_of_it() -> None:
    shown = pieces(b"yes <STOP> no", ("<STOP>",))
    assert "".join(shown) == "yes "
    assert not any("<" in piece for piece in shown)


def test_text_that_only_looked_like_a_stop_string_is_shown() -> None:
    assert "".join(pieces(b"a <STA b", ("<STOP>",))) == "a <STA b"


def test_a_possible_stop_string_at_the_very_end_is_shown_by_finish() -> None:
    assert pieces(b"a <ST", ("<STOP>",))[-1] == "<ST"


@given(st.text("ab<", max_size=30), st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=3))
def test_the_earliest_stop_string_ends_the_text(text: str, stops: list[str]) -> None:
    ends = [text.find(stop) for stop in stops if stop in text]
    shown = "".join(pieces(text.encode(), tuple(stops)))
    if not ends:
        assert shown == text
    else:
        # the first to be complete wins; it never begins after the earliest one
        assert text.startswith(shown)
        assert not any(stop in shown for stop in stops)
