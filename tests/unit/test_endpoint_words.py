"""Is my endpoint caching, in words and charts: what the page, the report and the verdict's rows say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvdemo.experiments.pieces import plain
from kvdemo.facts.workload import Workload
from kvdemo.questions.endpoint import words
from kvdemo.questions.endpoint.charts import draw, pairs_chart, steps_chart, together_chart
from kvdemo.questions.endpoint.evidence import evidence
from kvdemo.questions.endpoint.live import EndpointRun, verdict_card
from kvdemo.questions.endpoint.question import ENDPOINT
from kvdemo.questions.endpoint.tables import endpoint_table, request_rows
from kvdemo.questions.table import QUESTIONS
from kvdemo.questions.verdict import ready_to_decide
from tests.engine_behind import EngineBehind
from tests.known import known
from tests.made_up import endpoint_of, result_of

KNOWN = endpoint_of()
OFF = endpoint_of(EngineBehind(cached=False, prefixes=False, together=False))
REFUSING = endpoint_of(EngineBehind(answers=0))


def test_the_headline_is_the_three_verdicts() -> None:
    assert plain(words.headline(KNOWN)) == "KV cache: in use. Prefix reuse: in use. Batching: in use."
    assert plain(words.headline(OFF)) == "KV cache: not in use. Prefix reuse: not in use. Batching: not in use."
    assert plain(words.headline(REFUSING)).startswith("KV cache: cannot tell. Prefix reuse: cannot tell.")


def test_what_cannot_be_told_stands_first_among_what_is_open_and_says_what_would_settle_it() -> None:
    first = words.open_points(REFUSING, None)[0]
    assert first.startswith("KV cache: cannot tell. ")
    assert "larger budget" in first


def test_the_card_keeps_each_verdict_with_its_evidence_and_the_message() -> None:
    run = EndpointRun().after(KNOWN)
    assert run.ended() == verdict_card(KNOWN)
    for said in ("KV cache: in use.", "The server reports", "Could you tell us:", "kv-act-copy"):
        assert said in run.ended()
    assert EndpointRun().ended() == "", "nothing stays of a check without a result"


def test_the_table_has_a_row_per_subject_with_its_ratio_and_interval() -> None:
    table = endpoint_table(KNOWN)
    assert table["Verdict"] == ("in use", "in use", "in use")
    assert table["Rounds"] == ("6", "6", "6")
    assert all(" to " in cell for cell in table["Ratio"])
    assert set(endpoint_table(REFUSING)["Ratio"]) == {"n/a"}


def test_files_have_a_row_for_each_request_that_was_sent() -> None:
    rows = list(request_rows(KNOWN))
    assert len(rows) == KNOWN.requests_sent
    assert {row["kind"] for row in rows} == {"length", "short", "long", "cold", "warm", "together"}


def test_steps_are_drawn_at_their_positions_beside_first_tokens_of_those_lengths() -> None:
    figure = steps_chart(OFF)
    assert figure is not None
    again = next(trace for trace in figure.data if trace.name == "first token")
    steps = next(trace for trace in figure.data if trace.name == "long prompt")
    long = max(known(run.prompt_tokens) for run in OFF.arm("long"))
    assert max(again.x) == long
    assert min(steps.x) > long - 20
    # Without a cache a step costs about what the first token of that length does.
    assert steps.y[0] == pytest.approx(again.y[list(again.x).index(long)], rel=0.2)


def test_pairs_and_requests_at_once_are_drawn_and_nothing_where_nothing_was_measured() -> None:
    pairs, together = pairs_chart(KNOWN), together_chart(KNOWN)
    assert pairs is not None
    assert together is not None
    assert len(next(trace for trace in pairs.data if trace.name == "new").x) == 6
    assert list(next(trace for trace in together.data if trace.name == "together").x) == [1, 2, 4, 8]
    assert draw(REFUSING, {}) == [None, None, None]


def test_what_it_says_to_the_rows_of_the_verdict() -> None:
    (setting, work) = evidence(KNOWN, Workload())
    assert (setting.answer, setting.in_use, work.answer, work.in_use, work.endpoint) == ("yes", True, "yes", True, True)
    (setting, work) = evidence(OFF, Workload())
    assert (setting.answer, setting.in_use, work.answer, work.in_use) == ("yes", False, "no", False)
    (setting, work) = evidence(REFUSING, Workload())
    assert (setting.answer, work.answer, work.in_use) == ("not yet", "not yet", None)


@pytest.mark.parametrize("found", [OFF, REFUSING])
def test_an_endpoint_without_a_cache_or_that_cannot_be_told_is_a_matter_for_whoever_runs_it(found: object) -> None:
    """It counts whatever its model is called, beside a comparison on this machine."""
    from kvdemo.experiments.evidence import of_setting
    from kvdemo.facts.decision import CacheDecision

    on = of_setting(CacheDecision(True, "library default", None, "DynamicCache", "sdpa", False))
    decided = ready_to_decide(Workload(), [result_of(), found], beside=[on], table=(*QUESTIONS, ENDPOINT))  # type: ignore[list-item]
    assert (decided.outcome, decided.left_out) == ("ask", 0)


def test_a_result_says_no_more_of_the_address_than_its_model() -> None:
    assert "http" not in words.scope(replace(KNOWN)) + " ".join(words.remarks(KNOWN))
