"""Is my endpoint caching, asked of engines with known answers: verdicts, budget, fresh prompts, and whatever fails."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.pieces import plain
from kvdemo.facts.events import GenerationEvent, Working
from kvdemo.facts.load import ManyRequest
from kvdemo.facts.requests import GenerationRequest
from kvdemo.facts.results import Progress
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.endpoint import words
from kvdemo.questions.endpoint.message import message
from kvdemo.questions.endpoint.question import ENDPOINT
from kvdemo.questions.endpoint.run import endpoint
from kvdemo.questions.endpoint.spec import EndpointResult, EndpointSpec, Judged
from kvdemo.questions.endpoint.timings import cache_pairs, judgements
from tests.engine_behind import EngineBehind, text_of
from tests.known import known


def checked(engine: EngineBehind, spec: EndpointSpec | None = None, **more: Any) -> EndpointResult:
    *_, result = endpoint(spec or EndpointSpec(seconds=3600), engine.bench(**more))
    assert isinstance(result, EndpointResult)
    return result


def told(result: EndpointResult) -> tuple[str, ...]:
    return tuple(found.verdict for found in judgements(result).values())


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("prefixes", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_each_of_the_three_is_found_whatever_the_others_are(cached: bool, prefixes: bool, together: bool) -> None:
    result = checked(EngineBehind(cached=cached, prefixes=prefixes, together=together))
    expected = tuple("in use" if does else "not in use" for does in (cached, prefixes, together))
    assert told(result) == expected
    assert result.stopped_because == "measured"
    for found in judgements(result).values():
        assert known(found.low) <= known(found.ratio) <= known(found.high)
        assert found.evidence


def test_a_server_that_says_no_usage_is_judged_by_its_times() -> None:
    result = checked(EngineBehind(says_usage=False))
    assert told(result) == ("in use", "in use", "in use")
    assert result.tokens_used > 0, "estimated"


def test_what_it_reports_as_reused_is_said_beside_the_times() -> None:
    found = judgements(checked(EngineBehind(reports=True)))["prefix_reuse"]
    assert found.verdict == "in use"
    assert re.search(
        r"The server reports [\d,]+ tokens as reused of about [\d,]+ that could be \(9\d %", found.evidence
    )


def test_a_server_that_reuses_every_whole_page_is_said_to_reuse_about_all_that_could_be() -> None:
    """How many tokens two prompts have in common is estimated from outside: within a page of what it is."""
    result = checked(EngineBehind(reports=True), page_tokens=16)
    evidence = judgements(result)["prefix_reuse"].evidence
    assert re.search(r" times \(.*tokens as reused of about [\d,]+ in the whole pages of 16 that could be", evidence)
    written = any_document(result)
    tokens = known(result.arm("warm")[0].prompt_tokens)
    assert 1 - 16 / (tokens - 40) <= written["hit_efficiency"] <= 1
    assert from_any_document(loads(dumps(written).encode())) == result


def test_growth_inside_an_answer_is_measured_against_the_prompt() -> None:
    for cached, expected in ((True, 0.002), (False, 1.0)):
        growths = [pair.growth for pair in cache_pairs(checked(EngineBehind(cached=cached, noise=0)))]
        assert growths == [pytest.approx(expected, rel=0.05)] * 6


def test_answers_held_back_until_their_end_tell_nothing_of_steps() -> None:
    result = checked(EngineBehind(held_back=True, cached=False))
    assert told(result)[0] == "cannot tell"


@pytest.mark.parametrize("answers", [0, 1, 3, 10, 25, 60])
def test_a_server_that_answers_429_is_never_guessed_at(answers: int) -> None:
    truth = EngineBehind(cached=False, prefixes=False, together=False)
    result = checked(replace(truth, answers=answers))
    assert "in use" not in told(result)
    assert "cannot tell" in told(result)
    untold = [found for found in judgements(result).values() if found.verdict == "cannot tell"]
    assert all("429" in found.evidence for found in untold)
    assert result.stopped_because == "failed"


@pytest.mark.parametrize("noise", [1.0, 3.0])
@pytest.mark.parametrize("does", [True, False])
def test_noise_never_turns_a_cache_into_its_opposite(noise: float, does: bool) -> None:
    wrong = "not in use" if does else "in use"
    for seed in range(10):
        engine = EngineBehind(cached=does, noise=noise)
        engine.noisy.seed(seed)
        assert told(checked(engine))[0] != wrong


def test_a_slow_server_ends_in_cannot_tell_within_its_seconds() -> None:
    engine = EngineBehind(slower=200)
    result = checked(engine, EndpointSpec(seconds=60))
    assert told(result) == ("cannot tell", "cannot tell", "cannot tell")
    assert result.stopped_because == "budget"
    assert all("budget was used up" in found.evidence for found in judgements(result).values())


def test_on_a_slow_server_that_takes_one_after_the_other_all_three_fit_into_the_time() -> None:
    result = checked(EngineBehind(together=False, prefixes=False, slower=4), EndpointSpec(seconds=160))
    assert told(result) == ("in use", "not in use", "not in use")
    assert result.stopped_because == "measured"


def test_one_slow_answer_is_measured_away_by_further_rounds() -> None:
    """Six rounds have no value to spare: with one that sticks out the interval is as wide as it."""
    engine = EngineBehind(prefixes=False, noise=0)
    plain_answer = engine.answer

    def sometimes(prompt: Any, answer: int) -> Any:
        run = plain_answer(prompt, answer)
        sticks_out = answer == 3 and engine.sent == 18
        return replace(run, token_times_s=tuple(3 * time for time in run.token_times_s)) if sticks_out else run

    engine.answer = sometimes  # type: ignore[method-assign]
    result = checked(engine)
    assert told(result)[1] == "not in use"
    assert len(result.arm("cold")) == 9


# --- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requests", [1, 2, 5, 11, 24, 50, 100])
def test_no_more_requests_are_sent_than_allowed(requests: int) -> None:
    engine = EngineBehind()
    result = checked(engine, EndpointSpec(requests=requests, seconds=3600))
    assert result.requests_sent == engine.sent <= requests
    assert result.stopped_because == "budget"


@pytest.mark.parametrize("tokens", [1, 100, 1_000, 5_000, 15_000, 30_000])
def test_no_more_tokens_are_used_than_allowed(tokens: int) -> None:
    engine = EngineBehind()
    result = checked(engine, EndpointSpec(tokens=tokens, seconds=3600))
    assert result.tokens_used == engine.tokens <= tokens


@pytest.mark.parametrize("seconds", [1.0, 5.0, 20.0, 60.0])
def test_no_request_begins_after_the_last_second_and_each_is_told_how_long_it_may_take(seconds: float) -> None:
    engine, begun = EngineBehind(cached=False), []

    def noting(request: GenerationRequest) -> Iterator[GenerationEvent]:
        begun.append((engine.now_s, request.timeout_s))
        return engine.run(request)

    *_, result = endpoint(EndpointSpec(seconds=seconds), replace(engine.bench(), run=noting))
    assert isinstance(result, EndpointResult)
    assert all(at_s < seconds for at_s, _ in begun)
    assert all(allowed_s == pytest.approx(max(0.1, seconds - at_s)) for at_s, allowed_s in begun)


def test_the_operators_limit_ends_it_and_is_named() -> None:
    result = checked(EngineBehind(), limit_s=1.0)
    assert result.stopped_because == "limit"


def test_stop_keeps_what_was_done() -> None:
    engine = EngineBehind()
    engine.stop = lambda: engine.sent >= 10
    result = checked(engine)
    assert (result.stopped_because, result.requests_sent) == ("stopped", 10)
    assert "Stopped" in plain(words.headline(result))


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_fresh_prompts_share_no_beginning_and_known_ones_all_but_their_end() -> None:
    engine = EngineBehind()
    result = checked(engine)
    single = [text_of(request.prompt) for request in engine.requests if isinstance(request, GenerationRequest)]
    arms = [run.arm for run in (*result.lengths, *result.runs)]
    assert len(single) == len(arms)
    many = [
        text_of(one.prompt) for asked in engine.requests if isinstance(asked, ManyRequest) for one in asked.arrivals
    ]
    texts = [*single, *many]
    assert len(set(texts)) == len(texts), "an answer kept whole is no answer"
    beginnings = [text[:12] for text in texts]
    warm = arms.count("warm")
    assert warm == 6
    assert len(set(beginnings)) == len(texts) - warm, "only the warm ones begin like another one"


def test_a_server_for_short_prompts_is_asked_shorter_ones() -> None:
    result = checked(EngineBehind(longest=300))
    assert told(result) == ("in use", "in use", "in use")
    assert max(known(run.prompt_tokens) for run in result.runs) <= 300


def test_the_prompt_grows_until_its_work_can_be_seen() -> None:
    """A quick server: 500 tokens do not stand out."""
    quick = EngineBehind()
    quick.slower = 1.0
    lengths = [known(run.prompt_tokens) for run in checked(quick).lengths]
    assert max(lengths) < 1_000
    far = FarAway()
    assert max(known(run.prompt_tokens) for run in checked(far, EndpointSpec(tokens=1_000_000)).lengths) > 1_200


@pytest.mark.parametrize("template", [0, 400])
@pytest.mark.parametrize("longer", [1, 4])
def test_the_first_long_prompt_is_as_long_as_meant_whatever_a_template_adds(template: int, longer: int) -> None:
    """A word may be one token or several, and a template's own tokens are no words: a third of the length was sent for it."""

    class Templated(EngineBehind):
        def answer(self, prompt: Any, answer: int) -> Any:
            return super().answer("x" * 4 * (template + longer * (len(text_of(prompt)) // 4)), answer)

    result = checked(Templated(prefixes=False), EndpointSpec(tokens=1_000_000, seconds=36_000))
    assert known(result.lengths[2].prompt_tokens) == pytest.approx(640, rel=0.15)


class FarAway(EngineBehind):
    """Every first token comes a third of a second later."""

    def answer(self, prompt: Any, answer: int) -> Any:
        run = super().answer(prompt, answer)
        return replace(run, token_times_s=tuple(time + 0.33 for time in run.token_times_s))


def test_a_beginning_that_was_not_answered_is_not_taken_for_known() -> None:
    """The server refuses every new long beginning now and then; what follows must not count as reuse missing."""
    engine = EngineBehind(noise=0)
    failing = itertools.cycle([False] * 7 + [True])
    plain_answer = engine.answer

    def sometimes(prompt: Any, answer: int) -> Any:
        if answer == 3 and next(failing):
            engine.longest = 10
        try:
            return plain_answer(prompt, answer)
        finally:
            engine.longest = None

    engine.answer = sometimes  # type: ignore[method-assign]
    assert told(checked(engine))[1] in ("in use", "cannot tell")


def test_a_first_request_that_is_refused_says_why() -> None:
    def refused(_: GenerationRequest) -> Iterator[GenerationEvent]:
        raise InvalidRequest("model", "the server has no model of this name")
        yield

    with pytest.raises(InvalidRequest, match="no model of this name"):
        list(endpoint(EndpointSpec(), replace(EngineBehind().bench(), run=refused)))


# --- what is told ----------------------------------------------------------------------------------------------------


def test_each_subject_is_told_as_soon_as_it_is_judged() -> None:
    steps = list(endpoint(EndpointSpec(seconds=3600), EngineBehind().bench()))
    assert [step.subject for step in steps if isinstance(step, Judged)] == ["kv_cache", "prefix_reuse", "batching"]
    progress = [step for step in steps if isinstance(step, Progress)]
    assert [step.done for step in progress] == sorted(step.done for step in progress)
    assert all(step.of is not None and step.done <= step.of for step in progress)


def test_pieces_that_come_by_themselves_are_not_each_told_as_progress() -> None:
    """A page draws what is told: dozens of tokens a second would keep it busy with nothing else."""
    engine = EngineBehind()

    def piecewise(request: GenerationRequest) -> Iterator[GenerationEvent]:
        yield from (Working(0.0) for _ in range(50))
        yield from engine.run(request)

    steps = endpoint(EndpointSpec(requests=20, seconds=3600), replace(engine.bench(), run=piecewise))
    told_of = [step for step in steps if isinstance(step, Progress)]
    assert len(told_of) <= 2 * engine.sent


def test_its_document_says_what_was_promised() -> None:
    result = checked(EngineBehind())
    document = json.loads(dumps(any_document(result, (ENDPOINT,))))
    assert document["kind"] == "endpoint"
    assert set(document["verdicts"]) == {"kv_cache", "prefix_reuse", "batching"}
    for verdict in document["verdicts"].values():
        assert set(verdict) == {"verdict", "evidence", "ratio", "low", "high"}
        assert verdict["verdict"] == "in use"
    assert document["requests_sent"] == result.requests_sent
    assert document["tokens_used"] == result.tokens_used
    assert document["message"] == message(result)


def test_the_message_asks_what_only_they_can_say() -> None:
    said = message(checked(EngineBehind(cached=False)))
    assert "KV cache: not in use" in said
    for asked in ("engine and version", "KV cache", "prefix caching", "dtype", "tokens", "limits", "p50 and p95"):
        assert asked in said


@pytest.mark.parametrize(
    ("field", "value"), [("requests", 0), ("tokens", 0), ("seconds", 0), ("seconds", float("nan"))]
)
def test_a_budget_that_cannot_be_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=field):
        EndpointSpec(**{field: value})  # type: ignore[arg-type]
