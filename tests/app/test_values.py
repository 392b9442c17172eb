"""What nobody types and anybody can send: refused with the field's name, and the model is not called."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.served import Served
from tests.visitor import Visitor, api_result

HUGE, HALF = 10**400, "\ud800"
NO_NUMBER = [None, "7", "", [], [7], {"a": 1}, True, math.nan, math.inf, -math.inf, HUGE]
NO_WHOLE = [*NO_NUMBER, 1.5, -1]
NO_TEXT = [None, 7, True, [], ["a"], {"a": 1}, "nul \x00", f"half {HALF}", "x" * 200_001]
NO_CHOICE: list[object] = [None, 7, [], {}, "", "Dynamic", "nothing of the kind", "offloaded", "x" * 10_000, HALF]
ONE: dict[str, dict[str, Any]] = {"chat": {"message": "hi"}, "compare": {"prompt": "hi"}, "memory": {"seq_len": 8}}
BAD: dict[tuple[str, str], list[Any]] = {
    ("chat", "message"): [*NO_TEXT, "", " \n\t"],
    ("chat", "system_prompt"): NO_TEXT,
    ("chat", "max_new_tokens"): [*NO_WHOLE, 0, 10**9],
    ("chat", "strategy"): NO_CHOICE,
    ("chat", "temperature"): [*NO_NUMBER, -0.1, 1e9],
    ("chat", "seed"): [*NO_WHOLE, 2**63],
    ("compare", "prompt"): [*NO_TEXT, "", " \n\t"],
    ("compare", "max_new_tokens"): [*NO_WHOLE, 0, 10**9],
    ("compare", "strategies"): [None, 7, "none", "dynamic", [], ["dynamic"], ["dynamic", "dynamic"], {}, [[], []]],
    ("compare", "rounds"): [*NO_WHOLE, 0, 10**6],
    ("memory", "seq_len"): [*NO_WHOLE, 0, 10**12],
    ("memory", "batch_size"): [*NO_WHOLE, 0, 10**12],
    ("memory", "config"): ["{", "[]", "7", "null", '{"model_type": "nope"}', '{"a": ' * 5000, 7, [], f"{{{HALF}"],
    ("memory", "weights_dtype"): [7, True, [], {}, "float7", HALF, "x" * 10_000],
    ("memory", "budget_gib"): ["80", True, [], 0, -1, 1e12],
    ("memory", "keep_free"): [*NO_NUMBER, -0.1, 1],
}
# What the reader of a refusal is to look for, where it is not the field's own name.
NAMED = {
    "message": ("message", "messages", "prompt"),
    "strategies": ("strategies", "strategy"),
    "system_prompt": ("system_prompt", "message"),
    "config": ("config",),
}
NEVER_SHOWN = ("Traceback", 'File "', ".py", "site-packages", "object at 0x", "TypeError", "ValueError", "Error:")


def shortened(value: Any) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize(
    ("endpoint", "field", "value"),
    [
        pytest.param(endpoint, field, value, id=f"{endpoint}-{field}-{shortened(value)}")
        for (endpoint, field), values in BAD.items()
        for value in values
    ],
)
def test_the_api_refuses_it_by_name(page: Served, http: httpx.Client, endpoint: str, field: str, value: Any) -> None:
    before = page.puppet.forwards
    event, told = api_result(http, endpoint, **{**ONE[endpoint], field: value})
    assert event == "error"
    words = told["error"]
    assert isinstance(words, str), told
    assert words.startswith(NAMED.get(field, (field,))), words
    assert len(words) < 1000
    assert not [hint for hint in NEVER_SHOWN if hint in words], words
    assert page.puppet.forwards == before


@pytest.mark.parametrize("endpoint", sorted(ONE))
@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"null", b"{", b'{"data": [', b"\xff\xfe", b"{}"])
def test_a_body_that_is_no_call_runs_nothing(page: Served, http: httpx.Client, endpoint: str, body: bytes) -> None:
    before = page.puppet.forwards
    answer = http.post(f"/gradio_api/call/v2/{endpoint}", content=body, headers={"Content-Type": "application/json"})
    if answer.is_success:
        number = answer.json()["event_id"]
        told = http.get(f"/gradio_api/call/v2/{endpoint}/{number}").text
        assert "event: error" in told
    assert not [hint for hint in NEVER_SHOWN if hint in answer.text], answer.text
    assert page.puppet.forwards == before


WRONG_FIELDS = [
    (
        "v2/chat",
        {"message": "hi", "max_tokens": 3},
        "max_tokens: is no field of chat; it takes message, system_prompt,",
    ),
    ("v2/chat", {"messages": [{"role": "user", "content": "hi"}]}, "messages: is no field of chat"),
    ("v2/chat", {}, "message: is missing"),
    ("v2/compare", {"max_new_tokens": 3}, "prompt: is missing"),
    ("v2/memory", {"seq_len": 8, "batch": 1}, "batch: is no field of memory; it takes seq_len, batch_size, config"),
    ("chat", {"data": ["hi"]}, "data: must be a list of 6 values: message, system_prompt,"),
    ("chat", {"message": "hi"}, "data: must be a list of 6 values"),
    ("v2/chat", ["hi"], "The body must be a JSON object."),
]


@pytest.mark.parametrize(("endpoint", "body", "words"), WRONG_FIELDS)
def test_a_wrong_field_is_named_and_nothing_runs(
    page: Served, http: httpx.Client, caplog: pytest.LogCaptureFixture, endpoint: str, body: Any, words: str
) -> None:
    before = page.puppet.forwards
    answer = http.post(f"/gradio_api/call/{endpoint}", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(words)
    assert page.puppet.forwards == before
    assert "Traceback" not in caplog.text


def test_an_endpoint_that_is_none_is_said_with_those_there_are(http: httpx.Client) -> None:
    answer = http.post("/gradio_api/call/v2/completions", json={"prompt": "hi"})
    assert answer.status_code == 404
    assert answer.json()["detail"] == "There is no endpoint 'completions'; there are chat, compare, memory."


def test_every_value_by_position_is_still_a_call(http: httpx.Client) -> None:
    started = http.post("/gradio_api/call/chat", json={"data": ["hi", "", 2, "dynamic", 0, 0]})
    assert "finished" in http.get(f"/gradio_api/call/chat/{started.json()['event_id']}").text


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([HUGE, -HUGE, math.nan, math.inf, -math.inf, 0.5, -0.0]),
    st.floats(),
    st.text(st.characters(), max_size=20),
    st.sampled_from(["7", "", "\x00", HALF, "dynamic", "=1+1", "<script>"]),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
FORM: dict[str, Any] = {
    "chat_strategy": st.sampled_from(["none", "dynamic", "static"]),
    "chat_longest": st.integers(1, 8),
    "chat_temp": st.sampled_from([0, 0.5, 2]),
    "chat_top_p": st.sampled_from([0.5, 1]),
    "chat_top_k": st.integers(0, 50),
    "chat_seed": st.integers(0, 2**31),
}


anything = given(field=st.sampled_from(sorted(FORM)), value=VALUES, form=st.fixed_dictionaries(FORM))
searched = partial(settings, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@searched(max_examples=10)
@anything
def test_the_form_of_the_chat_runs_only_what_it_understands(
    page: Served, field: str, value: Any, form: dict[str, Any]
) -> None:
    answered_or_refused(page, field, value, form)


@pytest.mark.slow
@searched(max_examples=80)
@anything
def test_the_form_of_the_chat_runs_only_what_it_understands_searched_longer(
    page: Served, field: str, value: Any, form: dict[str, Any]
) -> None:
    answered_or_refused(page, field, value, form)


def answered_or_refused(page: Served, field: str, value: Any, form: dict[str, Any]) -> None:
    """Whatever one field holds, the page comes to rest: answered, or refused with nothing run."""
    with Visitor(page) as visitor:
        visitor.light("take", chat_box="hi")
        before = page.puppet.forwards
        visitor.join("answer", **{**form, field: value})
        with visitor.listening() as messages:
            told = list(messages)
    ran = page.puppet.forwards > before
    ended = next(message for message in told if message["msg"] == "process_completed")
    if not ended["success"]:
        assert not ran
        assert not [hint for hint in NEVER_SHOWN if hint in json.dumps(ended)], ended
        return
    past = [message["output"]["data"][2] for message in told if message["msg"] == "process_generating"][-1]
    assert ("kv-failed" in past) != ran, past


@pytest.mark.parametrize("value", [None, "", " ", "\x00", HALF, "x" * 200_001])
def test_a_question_that_is_none_is_refused_and_nothing_is_asked(page: Served, visitor: Visitor, value: Any) -> None:
    before = page.puppet.forwards
    answer = visitor.post_light("take", chat_box=value)
    assert not [hint for hint in NEVER_SHOWN if hint in answer.text], answer.text
    if answer.is_success:
        shown = visitor._told("take", answer.json()["data"])
        assert "kv-notice" in shown["chat-notice"]
        assert not shown["chat-live"] or isinstance(shown["chat-live"], dict)
    assert page.puppet.forwards == before


@pytest.mark.parametrize("value", [7, [], {"a": 1}, HUGE, math.nan, True])
def test_a_question_that_is_no_text_does_no_harm(page: Served, visitor: Visitor, value: Any) -> None:
    answer = visitor.post_light("take", chat_box=value)
    assert not [hint for hint in NEVER_SHOWN if hint in answer.text], answer.text


@pytest.mark.parametrize(
    "action",
    [None, 7, [], "", "retry", "retry 0", "edit -1", "undo 99999999999", "example 99", "example ²", "rm -rf 0"],
)
def test_an_action_that_the_page_never_asks_for_changes_nothing(page: Served, visitor: Visitor, action: Any) -> None:
    before = page.puppet.forwards
    shown = visitor.light("act", chat_action=action, chat_box="my draft")
    parts = ("chat-box", "chat-past", "chat-live", "chat-notice", "chat-panel")
    assert all(shown[part] is None or isinstance(shown[part], dict) for part in parts), shown
    assert page.puppet.forwards == before


def test_what_is_far_too_long_is_refused_before_any_work(page: Served, http: httpx.Client) -> None:
    """Ten megabytes of prompt, a milliard of tokens, a context beyond all memory: the limit is in the answer."""
    before = page.puppet.forwards
    assert http.post("/gradio_api/call/v2/chat", json={"message": "x" * 10_000_000}).status_code == 413
    words = [
        api_result(http, "chat", message="x" * 1_000_000)[1]["error"],
        api_result(http, "chat", message="hi", max_new_tokens=10**9)[1]["error"],
        api_result(http, "chat", message="x" * 9000, max_new_tokens=8)[1]["error"],
        api_result(http, "memory", seq_len=10**15)[1]["error"],
    ]
    for said, limit in zip(words, ("200,000", "32,768", "8,192", "100,000,000"), strict=True):
        assert limit in said
    assert page.puppet.forwards == before


def test_a_refusal_leaves_no_trace_in_the_line(page: Served, http: httpx.Client) -> None:
    for value in NO_WHOLE:
        api_result(http, "chat", message="hi", max_new_tokens=value)
    assert page.backend._engine.turnstile.length == 0
    assert api_result(http, "chat", message="hi", max_new_tokens=1)[1][0]["event"] == "finished"
