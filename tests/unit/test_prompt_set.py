"""On my prompts: reading them, naming every bad row, ratios per prompt and over the set, the shipped set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.prompt_file import PromptRow, kind_of, read_prompt_file, read_prompts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import GenerationRequest, Message
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.prompts.run import prompt_set
from kvdemo.questions.prompts.spec import PromptResult, PromptSetResult, PromptSetSpec
from kvdemo.questions.prompts.words import headline as prompt_set_headline
from tests.known import sure
from tests.scripted import Clock, Script, ScriptedRun, bench_of, even_times, record

SHIPPED = Path(__file__).parents[2] / "assets" / "prompts" / "representative.jsonl"


def test_lines_are_prompts_and_empty_lines_are_none() -> None:
    assert read_prompts("One?\n\n  Two?  \r\n") == (PromptRow("One?", "row 1"), PromptRow("Two?", "row 3"))


def test_json_lines_carry_system_id_and_length() -> None:
    text = '{"prompt": "One?", "id": 7, "system": "Be brief.", "max_new_tokens": 5, "other": 1}\n{"prompt": "Two\\nlines"}\n'
    assert read_prompts(text, "jsonl") == (
        PromptRow("One?", "7", "Be brief.", 5),
        PromptRow("Two\nlines", "row 2"),
    )


def test_csv_has_named_columns_quotes_and_line_breaks() -> None:
    text = '\ufeffid,Prompt,max_new_tokens\r\na,"One, ""two""\r\nthree?",5\r\n,,\r\nb,Four?,\r\n'
    assert read_prompts(text.encode(), "csv") == (
        PromptRow('One, "two"\r\nthree?', "a", "", 5),
        PromptRow("Four?", "b"),
    )


def test_every_bad_row_is_named() -> None:
    text = "\n".join(
        [
            '{"prompt": "fine"}',
            '{"system": "no prompt"}',
            '{"prompt": 3}',
            '{"prompt": "  "}',
            "{broken",
            '["a list"]',
            '{"prompt": "x", "max_new_tokens": 0}',
            '{"prompt": "x", "max_new_tokens": "ten"}',
            '{"prompt": "one", "id": "a"}',
            '{"prompt": "two", "id": "a"}',
        ]
    )
    with pytest.raises(InvalidRequest) as caught:
        read_prompts(text, "jsonl")
    assert caught.value.field == "prompts"
    assert caught.value.message.split("; ") == [
        "row 2: prompt: is missing",
        "row 3: prompt: must be text",
        "row 4: prompt: is empty",
        "row 5: row: is not JSON: column 2: Expecting property name enclosed in double quotes",
        "row 6: row: is not an object",
        "row 7: max_new_tokens: must be between 1 and 32,768, not 0",
        "row 8: max_new_tokens: must be a whole number",
        "row 10: id: is also that of row 9",
    ]


def test_of_many_bad_rows_ten_are_named_and_the_rest_counted() -> None:
    with pytest.raises(InvalidRequest, match=r"row 10: .*; and 15 more rows"):
        read_prompts("{}\n" * 25, "jsonl")


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        ("", "text", "there is no prompt"),
        ("\n \n", "jsonl", "there is no prompt"),
        (b"P\x00\xff", "text", "not UTF-8"),
        (b"\xff\xfeP", "text", "not UTF-16"),
        ("a\n" * 1001, "text", "there are 1,001; at most 1,000"),
        ("a\n" * 2_600_000, "text", "more than 10,000; at most 1,000"),
        ("prompt\n" + "a\n" * 2_600_000, "csv", "more than 10,000; at most 1,000"),
        ("x" * (5 * 1024 * 1024 + 1), "text", "the limit is 5,242,880"),
        ("question\nWhy?\n", "csv", "one of them prompt"),
        ('prompt\n"never closed', "csv", "row 2 is not CSV"),
        ("prompt\na,b\n", "csv", "row 2: row: has 2 cells for 1 columns"),
        ("x" * 200_001, "text", "row 1: prompt: is 200,001 characters long"),
        ("why", "xlsx", "'xlsx' is not one of text"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(data: str | bytes, kind: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read_prompts(data, kind)


def test_rows_beyond_the_limit_are_counted_and_not_read() -> None:
    read: list[int] = []

    def reading(number: int, raw: object) -> PromptRow:
        read.append(number)
        return PromptRow(str(raw), str(number))

    with pytest.raises(InvalidRequest, match="there are 3,000; at most 1,000"):
        read_prompt_file("a\n" * 3000, row_of=reading)
    assert len(read) == 1000


@pytest.mark.parametrize(("data", "kind"), [("Why?", "text"), ("prompt\nWhy?", "csv"), ('{"prompt": "Why?"}', "jsonl")])
def test_pasted_text_may_begin_with_a_byte_order_mark(data: str, kind: str) -> None:
    assert [row.prompt for row in read_prompts(f"\ufeff{data}", kind)] == ["Why?"]


@given(st.binary(max_size=200), st.sampled_from(["text", "jsonl", "csv"]))
def test_no_file_raises_anything_else(data: bytes, kind: str) -> None:
    try:
        rows = read_prompts(data, kind)
    except InvalidRequest:
        return
    assert rows


def test_the_kind_comes_from_the_ending() -> None:
    assert [kind_of(name) for name in ("a.JSONL", "b.csv", "c.txt")] == ["jsonl", "csv", "text"]
    with pytest.raises(InvalidRequest, match="must end in"):
        kind_of("a.xlsx")


def test_the_shipped_set_reads_and_spans_short_questions_and_long_articles() -> None:
    rows = read_prompts(SHIPPED.read_bytes(), "jsonl")
    assert 10 <= len(rows) <= 16
    words = sorted(len(row.prompt.split()) for row in rows)
    assert words[0] < 20
    assert 1000 < words[-1] < 1600


STEP_S = {"none": 0.4, "dynamic": 0.1, "static-compiled": 0.05}


def steady(request: GenerationRequest, earlier: int) -> RunRecord:
    step_s = STEP_S[request.strategy] * (0.5 if request.strategy == "none" and "short" in text_of(request) else 1.0)
    return record(request.strategy, even_times(step_s, step_s, request.max_new_tokens))


def text_of(request: GenerationRequest) -> str:
    """What the person asks."""
    return request.prompt if isinstance(request.prompt, str) else sure(Message, request.prompt[-1]).content


def play(
    spec: PromptSetSpec, script: Script = steady, **options: Any
) -> tuple[list[Any], PromptSetResult, ScriptedRun]:
    clock = Clock()
    run = ScriptedRun(script, clock)
    options.setdefault("count", lambda request: len(text_of(request)))
    *steps, result = prompt_set(spec, bench_of(run, clock=clock, **options))
    assert isinstance(result, PromptSetResult)
    return steps, result, run


def rows_of(*prompts: str) -> tuple[PromptRow, ...]:
    return tuple(PromptRow(prompt, f"p{number}") for number, prompt in enumerate(prompts, 1))


def test_ratios_per_prompt_and_over_the_set_with_the_worst_named() -> None:
    spec = PromptSetSpec(rows_of("a long one", "a short one", "another long one"), max_new_tokens=10)
    steps, result, _ = play(spec)
    assert [item.result.comparison("dynamic").ratio for item in result.prompts] == pytest.approx([4.0, 2.0, 4.0])  # type: ignore[union-attr]
    (whole,) = result.comparisons
    assert (whole.ratio, whole.total_ratio, whole.worst_ratio) == pytest.approx((4.0, 10 / 3, 2.0))
    assert whole.worst_id == "p2"
    assert (whole.prompts, whole.coverage, whole.different_ids) == (3, None, ())
    assert [step.row.id for step in steps if isinstance(step, PromptResult)] == ["p1", "p2", "p3"]


def test_six_prompts_make_an_interval() -> None:
    _, result, _ = play(PromptSetSpec(rows_of(*"abcdef"), max_new_tokens=5))
    assert result.comparisons[0].coverage == 0.96875
    assert plain(prompt_set_headline(result)).startswith("Dynamic cache: 4.0 times faster (4.0 to 4.0 over 6 prompts).")


def test_a_set_that_became_slower_is_told_in_one_direction() -> None:
    spec = PromptSetSpec(rows_of("a long one", "a short one"), strategies=("dynamic", "none"), max_new_tokens=10)
    _, result, _ = play(spec)
    (whole,) = result.comparisons
    assert (whole.ratio, whole.low, whole.high) == pytest.approx((0.375, 0.25, 0.5))
    assert plain(prompt_set_headline(result)) == (
        "No cache: 2.7 times as long on 2 prompts (range 2.0 to 4.0). The whole set: 3.0 times as long. "
        "Least on p1: 4.0 times as long."
    )


def test_where_no_prompt_was_completed_the_headline_says_why() -> None:
    def failing(request: GenerationRequest, _earlier: int) -> RunRecord:
        return record(request.strategy, status="failed", error="The run failed: its logits are not numbers")

    *_, result = prompt_set(PromptSetSpec(rows_of("a", "b"), max_new_tokens=5), bench_of(ScriptedRun(failing)))
    assert plain(prompt_set_headline(sure(PromptSetResult, result))) == (
        "No prompt was completed, so there is nothing to compare. The run failed: its logits are not numbers."
    )


def test_a_row_has_its_own_system_prompt_and_length() -> None:
    row = PromptRow("Why?", "a", "Be brief.", 3)
    _, _, run = play(PromptSetSpec((row,), max_new_tokens=10))
    timed = run.requests[-1]
    assert timed.max_new_tokens == 3
    assert [message.role for message in timed.prompt] == ["system", "user"]  # type: ignore[union-attr]


def test_the_warm_up_comes_once_per_length_class() -> None:
    _, result, _ = play(PromptSetSpec(rows_of("x" * 10, "y" * 12, "z" * 100), max_new_tokens=5))
    assert [sum(run.warmup for run in item.result.runs) for item in result.prompts] == [2, 0, 2]


def test_a_request_that_needs_a_longer_compiled_cache_is_warmed_up_again() -> None:
    rows = (PromptRow("x" * 300, "p1", max_new_tokens=10), PromptRow("y" * 310, "p2", max_new_tokens=300))
    _, result, _ = play(PromptSetSpec(rows, strategies=("dynamic", "static-compiled")))
    assert [sum(run.warmup for run in item.result.runs) for item in result.prompts] == [2, 2]


def test_prompts_that_do_not_fit_are_all_named_before_anything_runs() -> None:
    run = ScriptedRun(steady)
    spec = PromptSetSpec(rows_of("x" * 50, "y", "z" * 40), max_new_tokens=10, longest_tokens=45)
    with pytest.raises(InvalidRequest, match=r"p1: needs 50 prompt tokens and 10 new ones; .* 45 tokens; p3: needs 40"):
        prompt_set(spec, bench_of(run, count=lambda request: len(text_of(request))))
    assert run.requests == []


def test_a_set_that_time_cuts_short_names_what_was_not_run() -> None:
    _, result, _ = play(PromptSetSpec(rows_of("aa", "bb", "cc"), max_new_tokens=10, time_budget_s=13.5))
    assert (result.stopped_because, result.not_run) == ("budget", ("p3",))
    assert "The time budget ended after 2 prompts; 1 were left out." in plain(prompt_set_headline(result))


def test_a_failed_prompt_stays_and_the_others_run() -> None:
    def script(request: GenerationRequest, earlier: int) -> RunRecord:
        if "bad" in text_of(request):
            return record(request.strategy, status="failed", finish_reason=None, error="it broke")
        return steady(request, earlier)

    _, result, _ = play(PromptSetSpec(rows_of("good", "bad", "good too"), max_new_tokens=5), script)
    assert (len(result.prompts), result.comparisons[0].prompts) == (3, 2)


def test_a_set_result_can_be_opened_again() -> None:
    _, result, _ = play(PromptSetSpec(rows_of("a", "b"), max_new_tokens=5))
    text = dumps(any_document(result))
    assert json.loads(text)["kind"] == "prompt_set"
    assert from_any_document(loads(text)) == result


def refusing(after: int, script: Script) -> Script:
    """Memory that others took meanwhile: from the run after so many on, each is refused."""
    seen = 0

    def scripted(request: GenerationRequest, earlier: int) -> RunRecord:
        nonlocal seen
        seen += 1
        if seen > after:
            raise InvalidRequest("max_new_tokens", "the cache would take 2.0 GiB and 1.0 GiB are free.")
        return script(request, earlier)

    return scripted


def test_a_prompt_that_is_refused_in_the_middle_costs_none_that_was_measured() -> None:
    spec = PromptSetSpec(rows_of("short", "a much, much longer one"), max_new_tokens=10)
    _, result, _ = play(spec, refusing(4, steady))
    assert [item.row.id for item in result.prompts] == ["p1", "p2"]
    assert result.comparisons[0].ratio == pytest.approx(2.0)
    (failed, *_) = [run for run in result.prompts[1].result.runs if run.status == "failed"]
    assert failed.error == "max_new_tokens: the cache would take 2.0 GiB and 1.0 GiB are free."
    assert from_any_document(loads(dumps(any_document(result)))) == result


def test_a_set_that_is_refused_before_anything_was_measured_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="max_new_tokens: the cache would take"):
        play(PromptSetSpec(rows_of("one", "two"), max_new_tokens=10), refusing(1, steady))
