"""Will my conversations reuse it: the arithmetic, each cause with its template, lines that belong together, bad lines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.bench import Bench, no_runs
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.generation.templated import Templated
from kvdemo.questions.conversations import words
from kvdemo.questions.conversations.code import CONVERSATIONS_CODE
from kvdemo.questions.conversations.reading import read_conversations
from kvdemo.questions.conversations.run import conversations
from kvdemo.questions.conversations.spec import ConversationsResult, ConversationsSpec, Miss, TurnReuse
from kvdemo.questions.documents import any_document, from_any_document
from tests.known import sure
from tests.scripted import bench_of
from tests.tiny import tiny_tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DROPS_REASONING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.reasoning_content and loop.last %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}"
    "{{ m.content.split('</think>')[-1] }}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
KEEPS_REASONING = DROPS_REASONING.replace(" and loop.last", "").replace(".split('</think>')[-1]", "")
PRINTS_DATE = "{{ 'Today: ' + strftime_now('%Y-%m-%d') + '\n' }}" + CHATML
TRIMS = CHATML.replace("m.content", "m.content | trim")
OPENS_THOUGHT = CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif")
WITH_TOOLS = "{% if tools %}{% for t in tools %}{{ t | tojson + '\n' }}{% endfor %}{% endif %}" + CHATML
CALLS = CHATML.replace("m.content +", "m.content + ((m.tool_calls[0].function | tojson) if m.tool_calls else '') +")
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML
)
USERS_ONLY = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
)
TOOLS = [{"name": "look_up", "parameters": {"word": "text"}}, {"name": "add", "parameters": {}}]


def said(role: str, content: object = "", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


U1, A1, U2, A2, U3 = (
    said("user", "Name three planets."),
    said("assistant", "Mars, Venus and Earth."),
    said("user", "And a moon?"),
    said("assistant", "Titan."),
    said("user", "Thanks."),
)


def bench(template: str | None = CHATML, **more: Any) -> Bench:
    tokens = Templated(tiny_tokenizer(template, **more))
    return bench_of(no_runs, tokens=tokens)


def lines(*values: Any) -> str:
    return "\n".join(json.dumps(value) for value in values)


def asked(
    text: str, template: str | None = CHATML, pages: tuple[int, ...] = (1, 16), **more: Any
) -> ConversationsResult:
    talks, bad = read_conversations(text)
    return answered(ConversationsSpec(talks, pages, bad=bad), bench(template, **more))


def answered(spec: ConversationsSpec, bench: Bench) -> ConversationsResult:
    *_, last = conversations(spec, bench)
    return sure(ConversationsResult, last)


def turns(result: ConversationsResult) -> list[TurnReuse]:
    return [turn for talk in result.conversations for turn in talk.turns]


def the_miss(result: ConversationsResult) -> Miss:
    """Of the last turn."""
    miss = turns(result)[-1].miss
    assert miss is not None
    return miss


def length(*messages: dict[str, Any]) -> int:
    """Tokens of a ChatML prompt, one per byte."""
    return sum(len(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n") for m in messages) + len(
        "<|im_start|>assistant\n"
    )


def test_held_is_prompt_and_answer_less_one_token_and_whole_pages_are_reused() -> None:
    first, second = turns(asked(lines([U1, A1, U2, A2])))
    held = length(U1) + len(A1["content"])  # the end token is the one less
    assert (first.prompt_tokens, first.held_tokens, first.shared_tokens) == (length(U1), 0, 0)
    assert (second.prompt_tokens, second.held_tokens, second.shared_tokens) == (length(U1, A1, U2), held, held)
    assert second.reused_tokens == {"1": held, "16": held // 16 * 16}
    assert (second.again_tokens, second.miss) == (0, None)
    assert first.miss is not None
    assert first.miss.kind == "first_request"


def test_at_least_one_token_of_a_prompt_is_processed() -> None:
    """The same request again: all of it is held."""
    _, again = turns(asked(lines({"id": "a", "messages": [U1]}, {"id": "a", "messages": [U1]})))
    assert again.reused_tokens["1"] == again.prompt_tokens - 1
    assert again.miss is None


def test_totals_are_those_of_the_turns() -> None:
    result = asked(lines([U1, A1, U2, A2], [U3, A1]))
    assert result.totals.prompt_tokens == sum(turn.prompt_tokens for turn in turns(result))
    assert result.totals.reused_tokens["16"] == sum(turn.reused_tokens["16"] for turn in turns(result))
    assert (result.totals.avoidable_tokens, result.totals.again_tokens, result.totals.saved_s) == (0, {}, None)


SYSTEMS = [said("system", f"You help. It is 12:0{minute}.") for minute in (1, 2)]
TWICE = [{"id": "a", "messages": [SYSTEMS[0], U1]}, {"id": "a", "messages": [SYSTEMS[1], U1, A1, U2]}]
THINKS = said("assistant", "Mars.", reasoning_content="The user wants planets.")
THINKS_IN_TEXT = said("assistant", "<think>\nPlanets.\n</think>\n\nMars.")
CALLS_TOOL = said("assistant", tool_calls=[{"id": "c", "function": {"name": "look_up", "arguments": {"word": "x"}}}])
TOLD = said("tool", "A planet.", tool_call_id="c")


@pytest.mark.parametrize(
    ("text", "template", "kind", "where"),
    [
        pytest.param(lines(*TWICE), CHATML, "system_changed", "system prompt", id="system prompt"),
        pytest.param(
            lines(
                {"id": 1, "messages": [U1], "tools": TOOLS}, {"id": 1, "messages": [U1, A1, U2], "tools": TOOLS[::-1]}
            ),
            WITH_TOOLS,
            "tools_reordered",
            "tools",
            id="tools in another order",
        ),
        pytest.param(
            lines({"id": 1, "messages": [U1], "tools": TOOLS}, {"id": 1, "messages": [U1, A1, U2], "tools": TOOLS[:1]}),
            WITH_TOOLS,
            "tools_changed",
            "tools",
            id="other tools",
        ),
        pytest.param(
            lines(
                {"id": 1, "messages": [U1, A1, U2]},
                {"id": 1, "messages": [U1, said("assistant", "Pluto."), U2, A2, U3]},
            ),
            CHATML,
            "message_changed",
            "message 2 (assistant)",
            id="an earlier message",
        ),
        pytest.param(
            lines({"id": 1, "messages": [U1, A1, U2, A2, U3]}, {"id": 1, "messages": [U2, A2, U3, A1, U1]}),
            CHATML,
            "history_shortened",
            "message 1 (user)",
            id="the oldest turn left out",
        ),
        pytest.param(
            lines([U1, THINKS, U2, A2]), DROPS_REASONING, "reasoning_dropped", "message 2 (assistant)", id="reasoning"
        ),
        pytest.param(
            lines([U1, THINKS_IN_TEXT, U2, A2]),
            DROPS_REASONING,
            "reasoning_dropped",
            "message 2 (assistant)",
            id="<think>",
        ),
        pytest.param(
            lines([U1, said("assistant", "Mars. \n"), U2, A2]),
            TRIMS,
            "whitespace_changed",
            "message 2 (assistant)",
            id="trims",
        ),
        pytest.param(
            lines(
                {"id": 1, "time": "2026-01-01T23:59:00", "messages": [U1]},
                {"id": 1, "time": "2026-01-02T00:01:00", "messages": [U1, A1, U2]},
            ),
            PRINTS_DATE,
            "date_changed",
            "template",
            id="date",
        ),
        pytest.param(lines([U1, A1, U2, A2]), None, "whitespace_changed", "message 2 (assistant)", id="no template"),
        pytest.param(
            lines([U1, A1, U2, A2]), OPENS_THOUGHT, "generation_prompt", "message 2 (assistant)", id="generation prompt"
        ),
        pytest.param(
            lines({"id": 1, "prompt": "One two"}, {"id": 1, "prompt": "One three"}),
            CHATML,
            "message_changed",
            "prompt",
            id="text",
        ),
        pytest.param(
            lines([U1, CALLS_TOOL, TOLD, A2]),
            CHATML,
            "template_rerenders",
            "message 2 (assistant)",
            id="calls of tools",
        ),
    ],
)
def test_every_miss_has_its_cause_and_its_place(text: str, template: str | None, kind: str, where: str) -> None:
    miss = the_miss(asked(text, template))
    assert (miss.kind, miss.message) == (kind, where)
    assert miss.held_text != miss.new_text
    assert miss.advice


@pytest.mark.parametrize(
    ("text", "template"),
    [
        pytest.param(lines([U1, THINKS, U2, A2]), KEEPS_REASONING, id="reasoning that is kept"),
        pytest.param(lines([U1, CALLS_TOOL, TOLD, A2]), CALLS, id="calls of tools that are written"),
        pytest.param(
            lines(
                {"id": 1, "time": "2026-01-01T10:00:00", "messages": [U1]},
                {"id": 1, "time": "2026-01-01T11:00:00", "messages": [U1, A1, U2]},
            ),
            PRINTS_DATE,
            id="the same date",
        ),
        pytest.param(
            lines({"id": 1, "messages": [U1], "tools": TOOLS}, {"id": 1, "messages": [U1, A1, U2], "tools": TOOLS}),
            WITH_TOOLS,
            id="tools sorted by the caller",
        ),
        pytest.param(
            lines([said("system", "Be brief."), U1, A1, U2, A2]), NO_SYSTEM, id="a system prompt that is folded"
        ),
    ],
)
def test_what_stays_the_same_is_reused(text: str, template: str | None) -> None:
    for turn in turns(asked(text, template))[1:]:
        assert turn.miss is None
        assert turn.reused_tokens["1"] == turn.held_tokens


def test_the_first_difference_is_named_with_both_sides_and_what_it_costs() -> None:
    result = asked(lines(*TWICE))
    miss = the_miss(result)
    assert miss.index == len("<|im_start|>system\nYou help. It is 12:0")
    assert ("1." in miss.held_text, "2." in miss.new_text) == (True, True)
    assert miss.cause == "The system prompt carries the time of day."
    lost = turns(result)[1].held_tokens - miss.index
    assert result.totals.again_tokens == {"system_changed": lost}
    assert result.totals.avoidable_tokens == lost
    share = round(100 * lost / result.totals.prompt_tokens)
    assert f"{share} % are processed again because the system prompt carries the time of day." in plain(
        words.headline(result)
    )


def test_of_two_changes_the_one_that_comes_first_in_the_prompt_is_the_cause() -> None:
    other = [said("system", "You are terse."), said("user", "Else."), A1, U2]
    text = lines({"id": 1, "messages": [SYSTEMS[0], U1]}, {"id": 1, "messages": other})
    assert the_miss(asked(text)).kind == "system_changed"
    text = lines(
        {"id": 1, "messages": [SYSTEMS[0], U1], "tools": TOOLS},
        {"id": 1, "messages": [SYSTEMS[1], U1, A1, U2], "tools": TOOLS[::-1]},
    )
    assert the_miss(asked(text, WITH_TOOLS)).kind == "tools_reordered"
    assert the_miss(asked(text, CHATML)).kind == "system_changed"


def test_a_tokenizer_that_joins_across_the_boundary_is_the_cause_where_the_text_is_the_same() -> None:
    """ "!" and what the template writes after an answer are one token in the history, which the model never wrote."""
    answer = said("assistant", "Mars!")
    result = asked(lines([U1, answer, U2, A2]), merges=[("!", "<")])
    assert the_miss(result).kind == "tokens_joined"


def test_real_ids_are_compared_where_they_are_known() -> None:
    talks, _ = read_conversations(lines([U1, A1, U2, A2]))
    first, second = talks[0].asked
    same = (*tuple(A1["content"].encode()), 256)

    def shared(ids: tuple[int, ...], merges: Any = ()) -> TurnReuse:
        talk = replace(talks[0], asked=(replace(first, answer_ids=ids), second))
        result = answered(ConversationsSpec((talk,), (1,)), bench(CHATML, merges=merges))
        return turns(result)[-1]

    assert shared(same).again_tokens == 0
    assert not shared(same).assumed
    otherwise = shared(same, merges=[("M", "a")])  # the tokenizer has a token for what the model wrote in two
    assert otherwise.miss is not None
    assert otherwise.miss.kind == "other_tokens"
    assert otherwise.shared_tokens == length(U1)


def test_successive_requests_are_recognised_by_their_beginning_and_unfolded_ones_are_not_counted_twice() -> None:
    text = lines([U1], [said("user", "Else.")], [U1, A1, U2], [U1, A1, U2, A2, U3, A1])
    result = asked(text)
    assert [(talk.id, len(talk.turns)) for talk in result.conversations] == [("line 1", 3), ("line 2", 1)]
    assert [turn.line for turn in result.conversations[0].turns] == [1, 3, 4]
    assert all(turn.again_tokens == 0 for turn in turns(result))


def test_two_conversations_that_begin_alike_are_two() -> None:
    assert len(asked(lines([U1], [U1], [U1, A1, U2, A2], [U1])).conversations) == 3


def test_what_first_requests_share_is_found_and_counted_once() -> None:
    system = said("system", "You answer in a few words, and always politely.")
    result = asked(lines(*([system, said("user", f"{letter}?")] for letter in "abc"), [U1]))
    (most, *_) = result.shared_beginnings
    shared = len(f"<|im_start|>system\n{system['content']}<|im_end|>\n<|im_start|>user\n")
    assert (most.tokens, most.conversations) == (shared, 3)
    assert most.saved_tokens == {"1": 2 * shared, "16": 2 * (shared // 16 * 16)}
    assert most.text_start.startswith("<|im_start|>system\nYou answer")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "is not JSON: column 2"),
        ("[" * 100_000, "is not JSON that can be read"),
        ("7", "must be an object or a list of messages"),
        ("{}", "messages: must be a list with at least one message"),
        ("[]", "messages: must be a list with at least one message"),
        (lines([said("robot", "x")]), "message 1: role: 'robot' is not one of system, user, assistant, tool"),
        (lines([said("user", "x" * 1_000_001)]), "the limit is 1,000,000"),
        (lines([said("user", [{"type": "image_url", "image_url": "x"}])]), "has a part of type 'image_url'"),
        (lines({"messages": [U1], "tools": "x"}), "tools: must be a list of objects"),
        (lines({"messages": [U1], "time": "noon"}), "time: must be a date and time"),
        (lines([A1]), "there is no message of a user or tool in it"),
        (
            lines([U1, said("assistant", tool_calls=[{"function": {"name": "f", "arguments": "{"}}])]),
            "of 'f' are not JSON",
        ),
        (lines([said("user", "\ud800")]), "half of a surrogate pair"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_answered(line: str, why: str) -> None:
    result = asked(f"{lines([U1, A1])}\n{line}\n\n{lines([U3, A1])}")
    assert [bad.line for bad in result.refused] == [2]
    assert why in result.refused[0].why
    assert len(result.refused[0].why) < 200
    assert [turn.line for turn in turns(result)] == [1, 4]
    assert any(sentence.startswith("Line 2: ") for sentence in words.remarks(result))


def test_a_request_that_the_template_refuses_is_named_and_the_others_are_answered() -> None:
    result = asked(lines([U1, A1], [U1, CALLS_TOOL, TOLD]), USERS_ONLY)
    assert [(bad.line, "no tools here" in bad.why) for bad in result.refused] == [(2, True)]
    assert len(turns(result)) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "file: is empty"),
        (" \n\n", "file: is empty"),
        (b"\xff\xfe\x00", "file: "),
        ("x" * (5 * 2**20 + 1), "the limit is 5,242,880"),
        ("1\n" * 5001, "has 5,001 lines; at most 5,000 are read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(data: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match="file") as refused:
        read_conversations(data)
    assert why in str(refused.value)


def test_a_file_without_any_line_that_can_be_read_is_refused_by_its_first() -> None:
    talks, bad = read_conversations("nonsense\nmore\n")
    with pytest.raises(InvalidRequest, match="file: no line can be read: line 1: is not JSON"):
        ConversationsSpec(talks, bad=bad)


@pytest.mark.parametrize(
    ("template", "unstable"),
    [
        (CHATML, {"with reasoning", "with tool calls"}),
        (KEEPS_REASONING, {"with tool calls"}),
        (CALLS, {"with reasoning"}),
        (TRIMS, {"with reasoning", "with tool calls", "after a stopped answer"}),
        (PRINTS_DATE, {"with reasoning", "with tool calls", "on another day"}),
        (
            OPENS_THOUGHT,
            {"over turns", "with a system prompt", "with reasoning", "with tool calls", "after a stopped answer"},
        ),
    ],
    ids=["ChatML", "keeps reasoning", "writes calls", "trims", "prints the date", "opens a thought"],
)
def test_a_template_is_tried_without_any_conversation(template: str, unstable: set[str]) -> None:
    result = answered(ConversationsSpec(), bench(template))
    assert {check.name for check in result.template.checks if check.stable is False} == unstable
    assert result.template.stable_over_turns is ("over turns" not in unstable)
    assert all((check.first_difference is None) is (check.stable is True) for check in result.template.checks)
    assert "prefix-stable" in plain(words.headline(result))


def test_a_case_that_the_template_refuses_is_not_judged() -> None:
    result = answered(ConversationsSpec(), bench(USERS_ONLY))
    (check,) = (check for check in result.template.checks if check.name == "with tool calls")
    assert check.stable is None
    assert "no tools here" in check.note


def test_seconds_are_an_estimate_and_only_where_the_speed_is_known() -> None:
    talks, _ = read_conversations(lines([U1, A1, U2, A2]))
    result = answered(ConversationsSpec(talks), replace(bench(), prefill_tokens_per_s=100.0))
    assert result.totals.saved_s is not None
    assert result.totals.saved_s["1"] == result.totals.reused_tokens["1"] / 100
    assert "estimate" in plain(words.headline(result))
    assert "estimate" not in plain(words.headline(asked(lines([U1, A1, U2, A2]))))


def test_stop_keeps_what_was_compared() -> None:
    talks, _ = read_conversations(lines([U1, A1]))
    result = answered(ConversationsSpec(talks), replace(bench(), stop=lambda: True))
    assert (result.stopped_because, result.conversations) == ("stopped", ())


def test_the_document_has_the_figures_and_not_the_conversations_and_opens_again() -> None:
    secret = said("system", f"You help. {'secret ' * 50}")
    talks, bad = read_conversations(lines([secret, U1, A1, U2, said("assistant", "Titan, I believe.")]))
    result = answered(ConversationsSpec(talks, bad=bad), bench())
    text = dumps(any_document(result))
    assert from_any_document(loads(text)) == result
    assert text.count("secret") < 5
    assert "I believe" not in text
    told = json.loads(text)
    assert told["page_sizes"] == [1, 16, 128, 256]
    assert set(told["conversations"][0]["turns"][1]) >= {
        "prompt_tokens",
        "held_tokens",
        "shared_tokens",
        "reused_tokens",
        "miss",
    }
    assert set(told["conversations"][0]["turns"][0]["miss"]) >= {
        "index",
        "held_text",
        "new_text",
        "message",
        "cause",
        "advice",
    }
    assert set(told["template"]["checks"][0]) >= {"name", "stable", "first_difference"}


def test_the_code_that_does_it_runs_and_says_the_same(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_tokenizer(CHATML).save_pretrained(tmp_path)
    capsys.readouterr()
    names = {"name": str(tmp_path), "messages": [U1], "messages_after": [U1, A1, U2]}
    exec(compile(CONVERSATIONS_CODE, "conversations.py", "exec"), names)
    reused = turns(asked(lines([U1, A1, U2, A2]), pages=(1, 16, 128, 256)))[1].reused_tokens
    prompt = length(U1, A1, U2)
    assert capsys.readouterr().out == "".join(f"{page} {tokens} of {prompt}\n" for page, tokens in reused.items())


def test_the_charts_show_what_of_each_turn_is_reused_new_and_processed_again() -> None:
    from kvdemo.questions.conversations.charts import draw, drawings
    from tests.made_up import conversations_of

    result = conversations_of()
    turns_figure, all_figure = draw(result, {})
    assert turns_figure is not None
    assert all_figure is not None
    reused, new, again = (list(trace.x) for trace in turns_figure.data)
    talk = result.conversations[0]
    assert [sum(parts) for parts in zip(reused, new, again, strict=True)] == [turn.prompt_tokens for turn in talk.turns]
    assert again == [turn.again_tokens for turn in talk.turns]
    assert "&lt;b&gt;" in str(all_figure.layout.yaxis.ticktext)
    assert len(drawings(result)) == 2
    assert draw(result, {"conversation": "1"})[0] is not None
    assert draw(replace(result, conversations=()), {}) == [None, None]


def test_reports_escape_what_was_said_and_a_spreadsheet_takes_none_of_it_for_a_formula() -> None:
    from kvdemo.report.report import report_html, report_markdown
    from kvdemo.report.spreadsheet import csv_file
    from tests.made_up import conversations_of

    result = conversations_of()
    page, sheet = report_html(result), csv_file(result)
    assert "12:01 <b>" not in page
    assert "12:01 &lt;b&gt;" in page
    assert "What was found" in page
    assert "Every run" not in page + report_markdown(result)
    assert "'=report" in sheet
    assert len(sheet.splitlines()) == 1 + 12
