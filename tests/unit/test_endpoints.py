"""Answers of servers as they come: split, late, cut, stalled, held back, in errors; and which may be asked at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvdemo.endpoints.answers import answered
from kvdemo.endpoints.client import Client, Patience, counters_in, model_of
from kvdemo.endpoints.pieces import MOST_LINE_BYTES, BadAnswer, Piece, Reading
from kvdemo.endpoints.policy import checked_target
from kvdemo.errors import InvalidRequest, RunFailed, Unanswered
from kvdemo.facts.endpoint import Counters, Endpoint, ServedModel
from kvdemo.facts.events import Finished, GenerationEvent, PromptEncoded, TokenEmitted, Working
from kvdemo.facts.reader import Reader
from kvdemo.facts.records import Reported, RunRecord
from kvdemo.facts.requests import GenerationRequest, Message
from tests.known import ended, known
from tests.playing import EVENTS, HOLD, Played, chunk, playing

ASKED = GenerationRequest((Message("user", "hi"),), 16)
SERVED = ServedModel("m")
DONE = b"data: [DONE]\n\n"
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}\n\n'
STOP = chunk("{}", '"stop"')
EMOJI = '{"content":"🙂"}'


def client_of(played: Played, key: str | None = None, **patience: float) -> Client:
    return Client(checked_target(played.url, mode="local"), key, patience=Patience(**patience))


def events_of(played: Played, request: GenerationRequest = ASKED, **options: Any) -> Iterator[GenerationEvent]:
    client = client_of(played, **options.pop("patience", {}))
    stop = options.pop("stop", threading.Event())
    yield from answered(client, options.pop("model", SERVED), request, stop=stop, **options)
    client.close()


def record_of(*script: bytes, **options: Any) -> RunRecord:
    with playing((EVENTS, *script)) as played:
        *_, last = events_of(played, **options)
    assert isinstance(last, Finished)
    return last.record


def failed_by(*script: bytes, **options: Any) -> RunFailed:
    with playing(script) as played, pytest.raises(RunFailed) as caught:
        list(events_of(played, **options))
    return caught.value


# --- counts and texts ------------------------------------------------------------------------------------------------


def test_a_last_event_without_choices_has_the_counts() -> None:
    record = record_of(chunk('{"content":"Hi"}'), STOP, USAGE, DONE)
    assert (record.text, record.new_tokens, record.prompt_tokens) == ("Hi", 2, 9)
    assert record.finish_reason == "stop"
    assert record.reported is not None
    assert record.reported.completion_tokens == 2


@pytest.mark.parametrize("usage", ["", ',"usage":null'])
def test_a_count_that_is_not_reported_is_estimated_and_said_to_be(usage: str) -> None:
    script = (chunk('{"content":"Hel"}', usage=usage), chunk('{"content":"lo"}', usage=usage), STOP, DONE)
    assert record_of(*script).new_tokens == 2
    counted = record_of(*script, count_text=lambda text: len(text))
    assert counted.new_tokens == 5
    assert counted.reported is not None
    assert counted.reported.completion_tokens is None
    assert any("did not report how many tokens" in notice for notice in counted.notices)


def test_a_server_that_does_not_know_stream_options_is_asked_once_more_without() -> None:
    refusal = b'{"error":{"message":"unknown field stream_options"}}'
    head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(refusal)}\r\n"
    with playing(
        (head.encode() + b"connection: close\r\n\r\n" + refusal,), (EVENTS, chunk('{"content":"Hi"}'), STOP, DONE)
    ) as played:
        *_, last = events_of(played)
    assert isinstance(last, Finished)
    assert last.record.text == "Hi"
    assert [b"stream_options" in asked for asked in played.asked] == [True, False]


def test_no_end_mark_is_an_end_where_the_server_gave_a_reason() -> None:
    usage = ',"usage":{"prompt_tokens":9,"completion_tokens":1}'
    record = record_of(chunk('{"content":"Hi"}'), chunk("{}", '"stop"', usage))
    assert (record.status, record.text, record.prompt_tokens) == ("ok", "Hi", 9)


def test_an_answer_that_breaks_off_has_failed_and_keeps_what_came() -> None:
    error = failed_by(EVENTS, chunk('{"content":"Hal"}'))
    assert "broke off in the middle" in str(error)
    assert error.record.text == "Hal"
    assert error.record.status == "failed"


@pytest.mark.parametrize("before", [b"", chunk('{"content":"Ha"}') + chunk('{"content":"lf"}')])
def test_an_error_inside_a_200_is_a_failure_with_the_text_until_then(before: bytes) -> None:
    error = failed_by(EVENTS, before, b'data: {"error":{"message":"context length exceeded","code":400}}\n\n', DONE)
    assert "context length exceeded" in str(error)
    assert error.record.text == ("Half" if before else "")
    assert error.record.tpot_s is None or before


def test_an_error_that_is_a_plain_string_is_told_too() -> None:
    assert "out of pages" in str(failed_by(EVENTS, b'data: {"error":"out of pages"}\n\n'))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (b"unexpected keyword \"stop\" in 'generate'", "unexpected keyword \"stop\" in 'generate'"),
        (b"the first line\nand a second", "the first line"),
        (b"a tab\tand a back\\slash", "a tab and a back\\slash"),
    ],
)
def test_an_error_that_was_put_between_quotes_as_it_is_is_told(words: bytes, told: str) -> None:
    """As transformers serve does: no JSON any more, and no reason to say that the answer broke off."""
    error = failed_by(EVENTS, chunk('{"content":"Hi"}'), b'data: {"error": "' + words + b'"}\n\n')
    assert str(error).endswith(f"reports an error: {told}")
    assert error.record.text == "Hi"


@pytest.mark.parametrize("line", [b'error: {"code":500,"message":"out of slots"}\n\n', b"error: out of slots\n\n"])
def test_an_error_in_a_line_of_its_own_is_told(line: bytes) -> None:
    assert str(failed_by(EVENTS, chunk('{"content":"Hi"}'), line)).endswith("reports an error: out of slots")


def test_what_a_terminal_would_obey_is_taken_out_of_an_error() -> None:
    error = failed_by(EVENTS, b'data: {"error":{"message":"\\u001b[2Jcleared\\u0007\\u202e"}}\n\n')
    assert str(error).endswith("reports an error: [2Jcleared")


def test_a_field_that_was_refused_is_named_in_words() -> None:
    body = b'{"detail":[{"loc":["body","model"],"msg":"model: field required"},{"msg":"seed: not a number"},7]}'
    error = failed_by(*answer_with("422 Unprocessable", body))
    assert str(error).endswith("(422). It says: model: field required; seed: not a number")


def test_comments_and_other_events_are_no_tokens_and_broken_ones_are_left_out() -> None:
    record = record_of(
        b": keepalive\n\n", b"event: ping\n\n", b"data: : PROCESSING\n\n", chunk('{"content":"Hi"}'), STOP, USAGE, DONE
    )
    assert (record.text, len(record.token_times_s)) == ("Hi", 1)
    assert any("1 events of the server were no JSON" in notice for notice in record.notices)


def test_a_first_chunk_with_a_role_and_no_text_is_not_the_first_token() -> None:
    with playing(
        (EVENTS, chunk('{"role":"assistant","content":""}'), HOLD, chunk('{"content":"Hi"}'), STOP, DONE)
    ) as played:
        events = events_of(played)
        quiet = [next(events) for _ in range(3)]
        played.let_go.set()
        *_, last = events
    assert [type(event).__name__ for event in quiet] == ["Working"] * 3
    assert isinstance(last, Finished)
    assert last.record.ttft_s is not None


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_counts_for_the_first_token_and_is_no_part_of_the_answer(name: str) -> None:
    record = record_of(
        chunk('{"role":"assistant","content":null}'),
        chunk(f'{{"content":null,"{name}":"Okay"}}'),
        chunk('{"content":"Yes"}'),
        STOP,
        USAGE,
        DONE,
    )
    assert (record.text, record.reasoning) == ("Yes", "Okay")
    assert len(record.token_times_s) == 2
    assert record.first_text_s == record.token_times_s[1]
    assert any("4 characters of reasoning" in notice for notice in record.notices)


def test_an_answer_that_ends_inside_its_reasoning_is_empty_and_no_fault() -> None:
    record = record_of(chunk('{"reasoning":"Okay"}'), chunk("{}", '"length"'), DONE)
    assert (record.status, record.text, record.finish_reason) == ("ok", "", "length")
    assert (record.reasoning, record.first_text_s) == ("Okay", None)


def test_a_character_split_anywhere_comes_whole() -> None:
    whole = chunk(EMOJI) + STOP + DONE
    for at in range(1, len(whole)):
        reading = Reading()
        pieces = [*reading.feed(whole[:at]), *reading.feed(whole[at:])]
        assert pieces == [Piece("🙂")], at
    reading = Reading()
    assert [piece for byte in whole for piece in reading.feed(bytes([byte]))] == [Piece("🙂")]


def test_a_character_that_is_sent_as_two_halves_comes_whole() -> None:
    script = (chunk('{"content":"a\\ud83d"}'), chunk('{"reasoning":"\\ud83d"}'), chunk('{"content":"\\ude42b"}'))
    record = record_of(*script, STOP, USAGE, DONE)
    assert (record.text, record.reasoning) == ("a🙂b", ""), "and half a character that stays alone is none"
    alone = record_of(chunk('{"content":"\\ud83d"}'), chunk('{"content":"x\\ude42"}'), STOP, DONE)
    assert alone.text == "\ufffdx\ufffd"
    alone.text.encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_of_the_standard_is_one(end: str) -> None:
    reading = Reading()
    text = (chunk('{"content":"a\\u2028b"}') + DONE).decode().replace("\n", end)
    assert list(reading.feed(text.encode())) == [Piece("a\u2028b")]
    assert reading.done or list(reading.close()) == []
    assert reading.done


def test_a_line_without_an_end_is_cut_off_at_a_mebibyte() -> None:
    reading = Reading()
    with pytest.raises(BadAnswer, match="longer than 1 MiB"):
        list(reading.feed(b"x" * (MOST_LINE_BYTES + 1)))
    error = failed_by(EVENTS, b"data: " + b"x" * (MOST_LINE_BYTES + 10))
    assert "longer than 1 MiB" in str(error)


def test_an_answer_without_an_end_is_cut_off() -> None:
    reading = Reading(most_bytes=2**20)
    more = (piece for _ in range(100) for piece in reading.feed(chunk('{"content":"for ever"}') * 1000))
    with pytest.raises(BadAnswer, match="more than 1 MiB for one answer"):
        list(more)


def test_what_is_nested_too_deeply_is_no_json() -> None:
    deep = b"[" * 200_000
    record = record_of(b"data: " + deep + b"\n\n", chunk('{"content":"Hi"}'), STOP, DONE)
    assert record.text == "Hi"
    assert any("were no JSON" in notice for notice in record.notices)
    assert "not JSON" in str(failed_by(*answer_with("200 OK", deep)))
    assert str(failed_by(*answer_with("500 Oops", deep))).endswith("failed (500).")


def test_an_answer_that_is_compressed_all_the_same_is_said_to_be() -> None:
    for kind in ("text/event-stream", "application/json"):
        error = failed_by(
            *answer_with("200 OK", b"\x1f\x8b\x08\x00\x00", f"content-type: {kind}\r\ncontent-encoding: gzip")
        )
        assert "compresses its answer" in str(error)


def test_the_token_that_ends_an_answer_has_no_text_and_a_time() -> None:
    """Servers count it: one token more than pieces does not mean that several came together."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n'
    with playing((EVENTS, chunk('{"content":"Hi"}'), chunk('{"content":"you"}'), HOLD, STOP, usage, DONE)) as played:
        events = events_of(played)
        while not isinstance(event := next(events), TokenEmitted) or not event.text.endswith("you"):
            pass
        played.let_go.set()
        *_, last = events
    assert isinstance(last, Finished)
    assert (last.record.new_tokens, len(last.record.times_by_token_s), last.record.notices) == (3, 3, ())
    assert last.record.step_s[1] > 0


def test_an_answer_of_two_tokens_in_one_piece_has_no_step() -> None:
    choice = b'{"message":{"content":"Hi"},"finish_reason":"stop"}'
    with playing(answer_with("200 OK", b'{"choices":[' + choice + b'],"usage":{"completion_tokens":2}}')) as played:
        record = ended(events_of(played)).record
    assert (record.new_tokens, record.tpot_s) == (2, None)


def test_a_server_that_does_not_stream_is_read_whole_and_said_to_be() -> None:
    choice = b'{"message":{"content":"Hi there"},"finish_reason":"stop"}'
    body = b'{"choices":[' + choice + b'],"usage":{"prompt_tokens":9,"completion_tokens":3}}'
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with playing((head, body)) as played:
        *_, last = events_of(played)
    assert isinstance(last, Finished)
    assert (last.record.text, last.record.new_tokens, last.record.tpot_s) == ("Hi there", 3, None)
    assert any("came all at once" in notice for notice in last.record.notices)


def test_what_a_server_does_not_say_is_not_known_and_never_zero() -> None:
    with playing((EVENTS, chunk('{"content":"Hi"}'), STOP, DONE)) as played:
        events = list(events_of(played))
    (encoded,) = (event for event in events if isinstance(event, PromptEncoded))
    (token,) = (event for event in events if isinstance(event, TokenEmitted))
    record = ended(events).record
    assert encoded.prompt_tokens is None
    assert (token.token_id, token.cache_tokens, token.cache_bytes, token.cache_storage_bytes) == (None,) * 4
    assert (record.prompt_tokens, record.token_ids, record.reused_tokens, record.cache_bytes) == (None,) * 4


def test_several_tokens_in_a_piece_have_no_times_of_their_own() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":64}}\n\n'
    record = record_of(*(chunk('{"content":"abcd"}') for _ in range(16)), STOP, usage, DONE)
    assert record.new_tokens == 64
    assert record.times_by_token_s == ()


def test_cached_tokens_are_reported_only_by_whom_they_are_counted() -> None:
    def usage(cached: int) -> bytes:
        details = f'"prompt_tokens_details":{{"cached_tokens":{cached}}}'
        return f'data: {{"choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":1,{details}}}}}\n\n'.encode()

    hi = chunk('{"content":"Hi"}')
    assert record_of(hi, STOP, usage(5), DONE).reused_tokens == 5
    assert record_of(hi, STOP, usage(0), DONE).reused_tokens is None  # may be a constant
    vllm = ServedModel("m", engine="vllm")
    assert record_of(hi, STOP, usage(0), DONE, model=vllm).reused_tokens == 0


@pytest.mark.parametrize("value", ['"9"', "-1", "1e400", "true", "null", "[]"])
def test_a_count_that_is_none_is_not_believed(value: str) -> None:
    record = record_of(
        chunk('{"content":"Hi"}'),
        STOP,
        f'data: {{"choices":[],"usage":{{"completion_tokens":{value}}}}}\n\n'.encode(),
        DONE,
    )
    assert record.reported is not None
    assert record.reported.completion_tokens is None


def test_counts_that_cannot_be_are_not_reported() -> None:
    """A constant 0 is no count, and more reused than there was is none either."""
    details = '"prompt_tokens_details":{"cached_tokens":50}'
    usage = f'data: {{"choices":[],"usage":{{"prompt_tokens":0,"completion_tokens":0,{details}}}}}\n\n'.encode()
    record = record_of(chunk('{"content":"Hi"}'), chunk('{"content":"you"}'), STOP, usage, DONE, count_text=len)
    assert record.reported == Reported(cached_tokens=50)
    assert (record.prompt_tokens, record.new_tokens, len(record.token_times_s)) == (None, 5, 2)
    more = usage.replace(b'"prompt_tokens":0', b'"prompt_tokens":49')
    assert record_of(chunk('{"content":"Hi"}'), STOP, more, DONE).reused_tokens is None
    empty = record_of(STOP, usage, DONE)
    assert (empty.new_tokens, known(empty.reported).completion_tokens) == (0, 0)


def test_a_reader_hears_as_often_as_he_wants_to_however_many_pieces_come() -> None:
    script = (EVENTS, *(chunk('{"content":"a"}') for _ in range(200)), STOP, DONE)
    with playing(script) as played:
        events = list(events_of(played, reader=Reader(every_s=60.0)))
    assert "".join(event.text for event in events if isinstance(event, TokenEmitted)) == "a" * 200
    assert not any(isinstance(event, Working) for event in events)


# --- silence, and Stop -------------------------------------------------------------------------------------------------


def test_stop_closes_the_connection_also_in_silence() -> None:
    stop = threading.Event()
    with playing((EVENTS, chunk('{"content":"Hi"}'), HOLD)) as played:
        events = events_of(played, stop=stop)
        while not any(True for event in [next(events)] if type(event).__name__ == "TokenEmitted"):
            pass
        stop.set()
        *_, last = events
        assert played.gone.wait(10)
    assert isinstance(last, Finished)
    assert (last.reason, last.record.text) == ("cancelled", "Hi")


def test_stop_closes_the_connection_before_the_first_byte_too() -> None:
    stop = threading.Event()
    with playing((HOLD,)) as played:
        events = events_of(played, stop=stop)
        while not played.asked:
            next(events)
        stop.set()
        *_, last = events
        assert played.gone.wait(10)
    assert isinstance(last, Finished)
    assert (last.reason, last.record.text) == ("cancelled", "")


def test_whoever_stops_reading_closes_the_connection() -> None:
    with playing((EVENTS, chunk('{"content":"Hi"}'), HOLD)) as played:
        client = client_of(played)
        events: Any = answered(client, SERVED, ASKED, stop=threading.Event())
        next(events)
        next(events)
        events.close()
        assert played.gone.wait(10)


def test_a_stream_that_stalls_ends_as_stalled_with_what_came() -> None:
    error = failed_by(EVENTS, chunk('{"content":"Hi"}'), HOLD, patience={"between_s": 0.2})
    assert "stalled" in str(error)
    assert error.record.text == "Hi"


def test_a_server_that_says_nothing_ends_too() -> None:
    error = failed_by(HOLD, patience={"first_s": 0.2, "connect_s": 0.2})
    assert "nothing" in str(error)


def test_stop_ends_the_wait_for_the_list_of_models() -> None:
    stop = threading.Event()
    stop.set()
    with playing((HOLD,)) as played:
        with pytest.raises(Unanswered, match="Stopped before 127"):
            client_of(played).models(stop)
        assert client_of(played).counters(stop) is None


def test_a_list_that_comes_slowly_is_waited_for_as_long_as_a_first_byte() -> None:
    with playing((b"HTTP/1.1 200 OK\r\n\r\n{", HOLD)) as played:
        client = Client(checked_target(played.url, mode="local"), clock=lambda: 1000.0 if played.asked else 0.0)
        with pytest.raises(Unanswered, match="did not answer within 65 s"):
            client.models()
        assert played.gone.wait(10)


# --- refusals ------------------------------------------------------------------------------------------------------------


def answer_with(status: str, body: bytes = b"{}", headers: str = "content-type: application/json") -> tuple[bytes, ...]:
    return (
        f"HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode(),
        body,
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            answer_with("401 Unauthorized", b'{"error":{"message":"bad"}}'),
            "refused the key, or wants one (401).",
        ),
        (
            answer_with("404 Not Found", b'{"detail":"no model"}'),
            "knows no such model or address (404). It says: no model",
        ),
        (
            answer_with("400 Bad Request", b'{"object":"error","message":"roles must alternate"}'),
            "roles must alternate",
        ),
        (answer_with("429 Too Many", b"{}", "retry-after: 7"), "enough requests for now (429). It asks to wait 7 s."),
        (answer_with("500 Oops", b"<html>"), "failed (500)."),
        (answer_with("307 Elsewhere", b"", "location: http://10.0.0.1/"), "which is not followed"),
        (answer_with("200 OK", b"<!doctype html><p>hi", "content-type: text/html"), "a page for people"),
        (answer_with("200 OK", b"hello"), "not JSON"),
    ],
)
def test_every_refusal_has_its_own_sentence(script: Sequence[bytes], words: str) -> None:
    error = failed_by(*script)
    assert words in str(error)
    assert error.record.new_tokens == 0
    assert "\n" not in str(error)


def test_nobody_at_the_address_is_said_in_a_sentence() -> None:
    with playing((b"",)) as played:
        url = played.url
    client = Client(checked_target(url, mode="local"))
    with pytest.raises(Unanswered, match="Nothing listens at 127\\.0\\.0\\.1"):
        client.models()


def test_https_where_http_is_spoken_and_the_other_way_round_have_a_sentence_each() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        client = Client(checked_target(f"https://127.0.0.1:{server.getsockname()[1]}", mode="local"))
        with pytest.raises(Unanswered, match="does not answer in https: is it http"):
            client.models()
        client.close()
        thread.join()
    assert "not HTTP: is it https" in str(failed_by(b"\x15\x03\x01\x00\x02\x02\x46"))


@pytest.mark.parametrize(
    "script",
    [
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",),
        (b"HTTP/1.1 429 Later\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",),
        (b"",),
        (EVENTS, chunk('{"content":"Hi"}')),
    ],
)
def test_nothing_is_sent_a_second_time(script: Sequence[bytes]) -> None:
    with playing(script) as played, pytest.raises(RunFailed):
        list(events_of(played))
    assert len(played.asked) == 1


def test_waiting_is_five_seconds_to_connect_sixty_for_a_first_byte_and_thirty_between_two() -> None:
    client = Client(checked_target("http://127.0.0.1:9", mode="local"))
    assert client.patience == Patience(connect_s=5.0, first_s=60.0, between_s=30.0)
    client.close()


def test_a_key_is_sent_and_never_told() -> None:
    key = "sk-secret-0123456789"
    with playing(answer_with("401 Unauthorized", b"{}")) as played:
        client = client_of(played, key)
        with pytest.raises(Unanswered) as caught:
            client.models()
    assert f"Authorization: Bearer {key}".lower().encode() in played.asked[0].lower()
    assert key not in str(caught.value)
    assert key not in repr(Endpoint("http://127.0.0.1", key=key))
    assert Endpoint("http://a", key=key) == Endpoint("http://a")


@pytest.mark.parametrize(
    "script",
    [
        answer_with("401 Unauthorized", b'{"error":{"message":"Incorrect API key: sk-secret-0123456789"}}'),
        answer_with("500 Oops", b'{"error":"it broke: Bearer sk-secret-0123456789"}'),
        (EVENTS, b'data: {"error":{"message":"sk-secret-0123456789 has no credit"}}\n\n'),
    ],
)
def test_a_server_that_repeats_the_key_is_not_quoted_with_it(script: Sequence[bytes]) -> None:
    with playing(script) as played, pytest.raises(RunFailed) as caught:
        list(answered(client_of(played, "sk-secret-0123456789"), SERVED, ASKED, stop=threading.Event()))
    assert "sk-secret" not in str(caught.value)
    assert "sk-secret" not in repr(caught.value.record)


def test_a_key_stands_in_no_exception_log_answer_or_list(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-secret-0123456789"
    caplog.set_level("INFO")
    listed = f'{{"data":[{{"id":"{key}"}},{{"id":"m","owned_by":"{key}"}}]}}'.encode()
    with playing(answer_with("200 OK", listed)) as played:
        assert client_of(played, key).models() == (ServedModel("m"),)
    echo = chunk(f'{{"content":"You are {key}."}}')
    with playing((EVENTS, echo, chunk(f'{{"reasoning":"{key}"}}'), STOP, DONE)) as played:
        client = client_of(played, key)
        events = list(answered(client, SERVED, ASKED, stop=threading.Event()))
    assert ended(events).record.text == "You are (the key)."
    assert key not in repr(events)
    for script in (answer_with("500 Oops", key.encode()), (EVENTS, echo), (b"HTTP/1.1 200 \x00" + key.encode(),)):
        with playing(script) as played, pytest.raises(RunFailed) as caught:
            list(answered(client_of(played, key), SERVED, ASKED, stop=threading.Event()))
        error: BaseException | None = caught.value
        while error is not None:
            assert key not in f"{error!r} {vars(error)}"
            error = error.__cause__ or error.__context__
    assert key not in caplog.text


def test_a_word_that_serves_as_a_key_is_left_in_an_answer() -> None:
    with playing((EVENTS, chunk('{"content":"none of these"}'), STOP, DONE)) as played:
        events = answered(client_of(played, "none"), SERVED, ASKED, stop=threading.Event())
        assert ended(events).record.text == "none of these"


@pytest.mark.parametrize("key", ["two\nlines", "sk-\x00", "schlüssel", "k" * 4001])
def test_a_key_that_cannot_be_sent_is_refused_without_being_told(key: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^key: must be printable ASCII") as caught:
        Endpoint("http://127.0.0.1", key=key)
    assert key not in str(caught.value)


def test_a_line_end_behind_a_key_is_no_part_of_it() -> None:
    assert Endpoint("http://127.0.0.1", key=" sk-1\r\n").key == "sk-1"
    assert Endpoint("http://127.0.0.1", key=" \n").key is None


def test_a_redirect_is_not_followed() -> None:
    with playing(answer_with("200 OK", b'{"data":[{"id":"m"}]}')) as other:
        moved = answer_with("302 Found", b"", f"location: {other.url}/models")
        with playing(moved) as played, pytest.raises(Unanswered, match="not followed"):
            client_of(played).models()
        assert other.asked == []


def test_no_proxy_and_no_key_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password sk-of-somebody\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody")
    assert record_of(chunk('{"content":"Hi"}'), STOP, DONE).text == "Hi"
    with playing(answer_with("200 OK", b'{"data":[{"id":"m"}]}')) as played:
        client_of(played).models()
    assert b"sk-of-somebody" not in played.asked[0]
    assert b"authorization" not in played.asked[0].lower()


# --- models and counters ---------------------------------------------------------------------------------------------------


def test_models_are_read_with_their_limit_and_engine() -> None:
    listed = b'{"data":[{"id":"a","owned_by":"vllm","max_model_len":2048},{"id":7},"b",{"id":"c","max_model_len":"x"}]}'
    with playing(answer_with("200 OK", listed)) as played:
        found = client_of(played).models()
    assert found == (ServedModel("a", 2048, "vllm"), ServedModel("c"))
    assert model_of(found, None, "here").name == "a"
    with pytest.raises(InvalidRequest, match="model: here has no 'z'; it lists a, c"):
        model_of(found, "z", "here")


def test_names_that_cannot_be_shown_and_limits_that_are_none_are_left_out() -> None:
    names = ["a\\nb", "\\u001b[2J", "x" * 301, "", "\\ud83d", "owner/good"]
    items = ",".join(f'{{"id":"{name}","max_model_len":true,"owned_by":["x"]}}' for name in names)
    for body in (f'{{"data":[{items}]}}', f"[{items}]"):
        with playing(answer_with("200 OK", body.encode())) as played:
            assert client_of(played).models() == (ServedModel("owner/good"),)


def test_counters_are_those_of_the_metrics_and_none_without() -> None:
    text = (
        b'# HELP x\nvllm:prefix_cache_queries_total{engine="0"} 100.0\nvllm:prefix_cache_hits_total{engine="0"} 25.0\n'
        b'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
    )
    with playing(answer_with("200 OK", text, "content-type: text/plain")) as played:
        found = client_of(played).counters()
    assert found == Counters(100.0, 25.0, 0.5)
    assert b"GET /metrics " in played.asked[0]
    assert found is not None
    assert replace(found, prefix_queries=200.0, prefix_hits=75.0).hit_share_since(found) == 0.5
    with playing(answer_with("404 Not Found")) as played:
        assert client_of(played).counters() is None


def test_the_page_of_a_cache_is_read_from_the_engines_own_labels() -> None:
    said = 'vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0"} 1.0\n'
    assert counters_in(said) == Counters(page_tokens=128)
    for other in ("None", "0", "-16", "9" * 9):
        assert counters_in(said.replace('"128"', f'"{other}"')) is None


def test_what_a_template_puts_in_front_of_every_prompt_is_left_out_of_the_hits() -> None:
    before, after = Counters(100.0, 0.0), Counters(300.0, 64.0)
    assert after.hit_share_since(before) == 0.32
    assert after.hit_share_since(before, apart=32) == 0.16
    assert after.hit_share_since(before, apart=128) == 0.0


def test_counters_of_sglang_and_of_several_engines_behind_one_address() -> None:
    several = 'vllm:prefix_cache_queries_total{engine="0"} 100\nvllm:prefix_cache_queries_total{engine="1"} 24.0\n'
    assert counters_in(several) == Counters(prefix_queries=124.0)
    sglang = "sglang:prompt_tokens_total 8.0e+02\nsglang:cached_tokens_total 2.0e+02\nsglang:token_usage 0.5\n"
    assert counters_in(sglang) == Counters(800.0, 200.0, 0.5)
    assert counters_in("process_cpu_seconds_total 3.0\n") is None
    odd = 'vllm:kv_cache_usage_perc{model="a}b"} 0.5 1700000000000\r\nvllm:prefix_cache_hits_total 1e999\n'
    assert counters_in(odd) == Counters(cache_use=0.5)


# --- which may be asked ------------------------------------------------------------------------------------------------------


def names(**known: str) -> Callable[[str, int], Sequence[str]]:
    def resolve(host: str, port: int) -> Sequence[str]:
        is_address = host.replace(".", "").isdigit() or ":" in host
        found = host if is_address else known.get(host.replace(".", "_"))
        if found is None:
            raise OSError
        return [found]

    return resolve


WORLD = names(
    api_example="93.184.216.34",
    inside="10.0.0.5",
    localhost="127.0.0.1",
    tricky="169.254.169.254",
    nat64="64:ff9b::a9fe:a9fe",
    sixtofour="2002:a00:7::",
)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://api.example", "https://93.184.216.34:443/v1"),
        ("https://api.example/openai/v1/", "https://93.184.216.34:443/openai/v1"),
        ("http://localhost:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_an_address_that_may_be_asked_is_pinned_to_what_was_checked(url: str, base: str) -> None:
    assert checked_target(url, mode="local", resolve=WORLD).base_url == base


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_asked() -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with playing(answer_with("200 OK", b'{"data":[{"id":"m"}]}')) as played:
        url = played.url.replace("127.0.0.1", "no-such-host.invalid")
        client = Client(checked_target(url, mode="local", resolve=resolve))
        for _ in range(2):
            assert client.models() == (ServedModel("m"),)
        client.close()
    assert asked == ["no-such-host.invalid"]
    assert b"host: no-such-host.invalid" in played.asked[0].lower()


def test_a_name_with_several_addresses_is_asked_at_the_one_where_something_listens() -> None:
    with playing(answer_with("200 OK", b'{"data":[{"id":"m"}]}')) as played:
        url = played.url.replace("127.0.0.1", "localhost")
        target = checked_target(url, mode="local", resolve=lambda *_: ["::1", "127.0.0.2", "127.0.0.1"])
        assert (target.address, target.others) == ("127.0.0.2", ("127.0.0.1", "::1"))
        client = Client(target, patience=Patience(connect_s=0.5))
        assert client.models() == (ServedModel("m"),)
        assert client.target.address == "127.0.0.1"
        client.close()
    with pytest.raises(InvalidRequest, match="private network"):
        checked_target("https://both.example", mode="local", resolve=lambda *_: ["93.184.216.34", "10.0.0.1"])


def test_a_name_beyond_ascii_is_sent_as_the_network_knows_it() -> None:
    target = checked_target("https://bücher.example/v1", mode="local", resolve=lambda *_: ["93.184.216.34"])
    assert target.authority == "xn--bcher-kva.example"
    Client(target).close()


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "api.example",
            "ftp://api.example",
            "file:///etc/passwd",
            "http://",
            "https://user:pw@api.example",
            "http://a b/",
        ),
        *("http://api.example", "https://inside", "http://inside:8000", "https://tricky/latest", "https://nowhere"),
        *("https://nat64", "https://sixtofour"),
        *(
            "https://api.example/v1?x=1",
            "https://api.example/#a",
            "http://127.0.0.1:99999",
            "https://[::ffff:10.0.0.1]/",
        ),
        *("https://0.0.0.0/", "https://224.0.0.1/", "https://100.64.0.1/"),
        *("https://[::]/", "https://[fe80::1]/", "https://[fc00::1]/", "http://[::ffff:127.0.0.1]/"),
        *(r"http://127.0.0.1\@api.example", "http://127.0.0.1:80@api.example", "https://" + "ü" * 300, "https://[::1"),
    ],
)
def test_any_other_address_is_refused_by_field(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^url: "):
        checked_target(url, mode="local", resolve=WORLD)


@pytest.mark.parametrize("mode", ["share", "space"])
def test_a_shared_page_asks_only_whom_its_operator_names(mode: str) -> None:
    for url in ("https://api.example", "http://localhost:8000"):
        with pytest.raises(InvalidRequest, match="--allow-endpoint"):
            checked_target(url, mode=mode, resolve=WORLD)
    assert checked_target("http://inside:8000", mode=mode, allowed=("inside:8000",), resolve=WORLD).host == "inside"
    assert checked_target("https://api.example", mode=mode, allowed=("api.example",), resolve=WORLD).port == 443
    with pytest.raises(InvalidRequest):
        checked_target("http://inside:9000", mode=mode, allowed=("inside:8000",), resolve=WORLD)


def test_the_request_has_what_was_asked_and_ends_where_the_engine_can_be_told_not_to() -> None:
    with playing((EVENTS, chunk('{"content":"Hi"}'), STOP, DONE)) as played:
        list(events_of(played, replace(ASKED, fixed_length=True), model=ServedModel("m", engine="vllm")))
    body = json.loads(played.asked[0].partition(b"\r\n\r\n")[2])
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert (body["model"], body["max_tokens"], body["temperature"], body["ignore_eos"]) == ("m", 16, 0.0, True)
