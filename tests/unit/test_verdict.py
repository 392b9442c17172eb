"""Ready to decide? Each of the six verdicts and every row that is missing, on made-up evidence; and what questions say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvdemo.experiments.comparison import Noise
from kvdemo.experiments.complete_request import CompleteRequest, RequestTimes, request_words, target_words
from kvdemo.experiments.evidence import Answer, Evidence, of_plan, of_setting, of_way_back
from kvdemo.experiments.prompt_file import representative
from kvdemo.experiments.question import AnyResult
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.workload import Workload
from kvdemo.questions.application.spec import ApplicationSpec, ArmOfProgram
from kvdemo.questions.grow.spec import GrowthPoint, GrowthResult, GrowthSpec
from kvdemo.questions.table import QUESTIONS, question_of
from kvdemo.questions.verdict import NEEDED, Outcome, Readiness, ready_to_decide
from kvdemo.questions.verdict_texts import ASKED, TEXTS
from tests.known import known
from tests.made_up import (
    RESULTS,
    UNKNOWN,
    application_spending,
    growth_of,
    load_of,
    noise_result,
    plan_of,
    prompt_set_of,
    result_of,
)
from tests.made_up_model import ENVIRONMENT, MODEL
from tests.made_up_question import SOON, soon_of

ON = CacheDecision(True, "library default", None, "DynamicCache", "sdpa", False)
OFF = CacheDecision(False, "config.json", None, None, "sdpa", False)
REFUSED = CacheDecision(None, "call", None, None, "sdpa", False)
SLOW = RequestTimes("No cache", 1.8, 0.1, 17.2)
FAST = RequestTimes("Dynamic cache", 1.8, 0.1, 4.0)
BOTH = CompleteRequest(SLOW, FAST)
FULL = {number: Evidence(number, "yes", f"row {number} is known.") for number in ASKED}
FULL[9] = replace(FULL[9], request=BOTH)


def told(
    decision: CacheDecision = ON,
    *,
    target_s: float | None = None,
    without: Sequence[int] = (),
    no: Sequence[int] = (),
    others: Sequence[Evidence] = (),
) -> Readiness:
    """The verdict where everything is known but `without`, rows `no` say no, and `others` stand in their rows' places."""
    rows = {**FULL, 1: of_setting(decision), **{one.row: one for one in others}}
    known = [replace(one, answer="no") if number in no else one for number, one in rows.items()]
    kept = [one for one in known if one.row not in without]
    return ready_to_decide(Workload(target_s=target_s), (), beside=kept)


def only_elsewhere(share: float) -> Evidence:
    """A request of 10 s of which so much is generation, with a cache or without."""
    part = RequestTimes("any", 10 * (1 - share), 0.0, 10 * share)
    return replace(FULL[9], request=CompleteRequest(part, part))


VERDICTS: dict[Outcome, tuple[Readiness, str]] = {
    "not enough": (told(without=(1, 3, 4, 5, 6, 7)), "Not enough evidence yet: 4 of 10 answered."),
    "ask": (told(others=[Evidence(2, "no", "not in use", in_use=False, endpoint=True)]), "Ask whoever runs inference."),
    "elsewhere": (told(others=[only_elsewhere(0.12)]), "Look elsewhere: generation is 12 % of the request."),
    "nothing to change": (told(target_s=10.0), "Nothing to change: it is on and meets your target."),
    "turn on": (told(OFF), "Turn it on."),
    "keep on": (told(target_s=1.0), "Keep it on."),
}


@pytest.mark.parametrize("outcome", list(TEXTS))
def test_each_of_the_six_verdicts_is_given_in_its_own_words(outcome: Outcome) -> None:
    found, sentence = VERDICTS[outcome]
    assert (found.outcome, found.sentence) == (outcome, sentence)
    for text in (found.because, found.overturned_by, found.noise):
        assert text.endswith((".", "it."))
        assert "{" not in text
        assert "n/a" not in text


def test_a_verdict_says_the_rows_that_it_rests_on() -> None:
    assert {outcome: found.rests_on for outcome, (found, _) in VERDICTS.items()} == {
        "not enough": (1, 3, 4),
        "ask": (2,),
        "elsewhere": (9,),
        "nothing to change": (1, 3, 9),
        "turn on": (1, 3, 4, 8),
        "keep on": (1, 3, 4),
    }


@pytest.mark.parametrize("number", list(ASKED))
def test_a_row_of_which_nothing_is_known_is_not_yet_answered_and_the_others_stay(number: int) -> None:
    found = told(target_s=10.0, without=(number,))
    assert [row.number for row in found.rows if not row.answered] == [number]
    assert found.answered == 9
    # Without row 9 nobody knows whether the target is met.
    enough: Outcome = "keep on" if number == 9 else "nothing to change"
    assert found.outcome == ("not enough" if number in NEEDED else enough)


@pytest.mark.parametrize("number", list(ASKED))
def test_what_is_too_little_for_an_answer_is_none(number: int) -> None:
    little = Evidence(number, "not yet", "too little")
    found = told(others=[little])
    row = found.rows[number - 1]
    assert (row.answered, row.words, found.answered) == (False, "too little", 9)


@pytest.mark.parametrize("number", [3, 4, 8])
@pytest.mark.parametrize("answer", ["no", "not yet"])
def test_a_cache_that_is_off_is_turned_on_only_where_all_three_speak_for_it(number: int, answer: Answer) -> None:
    found = told(OFF, others=[Evidence(number, answer, "")])
    assert (found.outcome, found.rests_on) == ("not enough", (number,))


def test_what_keeps_a_cache_off_is_said() -> None:
    assert told(OFF, no=(8,)).because == "It is not on, and row 8 does not speak for turning it on."
    assert told(OFF, no=(3, 4)).because == "It is not on, and rows 3, 4 do not speak for turning it on."
    assert told(without=(1, 4)).because == "Missing for any verdict: rows 1, 4."


def test_a_setting_that_generate_would_refuse_is_neither_kept_nor_turned_on() -> None:
    found = told(REFUSED)
    assert (found.rows[0].answer, found.outcome) == ("no", "not enough")


@pytest.mark.parametrize(
    ("in_use", "answer", "outcome"),
    [(True, "yes", "nothing to change"), (False, "no", "ask"), (None, "not yet", "ask")],
)
def test_an_endpoint_sends_to_its_operator_unless_its_cache_is_in_use(
    in_use: bool | None, answer: Answer, outcome: Outcome
) -> None:
    assert told(others=[Evidence(2, answer, "", in_use=in_use, endpoint=True)]).outcome == outcome


def test_an_own_application_that_uses_no_cache_is_nobody_elses_to_ask() -> None:
    assert told(others=[Evidence(2, "no", "", in_use=False)]).outcome == "nothing to change"


def test_the_order_of_the_verdicts() -> None:
    endpoint = Evidence(2, "no", "", in_use=False, endpoint=True)
    assert told(others=[endpoint, only_elsewhere(0.1)], without=(3,)).outcome == "not enough"
    assert told(others=[endpoint, only_elsewhere(0.1)]).outcome == "ask"
    assert told(OFF, others=[only_elsewhere(0.1)]).outcome == "elsewhere"
    assert told(target_s=20.0, others=[only_elsewhere(0.1)]).outcome == "elsewhere"


@pytest.mark.parametrize(("share", "outcome"), [(0.199, "elsewhere"), (0.2, "nothing to change")])
def test_generation_is_looked_at_from_a_fifth_of_the_request_on(share: float, outcome: Outcome) -> None:
    assert told(others=[only_elsewhere(share)]).outcome == outcome


def test_the_share_is_that_of_the_setting_in_force() -> None:
    """On: 4.1 of 5.9 s are generation with the cache. The request without it is nobody's request."""
    little = CompleteRequest(SLOW, RequestTimes("Dynamic cache", 1.8, 0.1, 0.1))
    row9 = replace(FULL[9], request=little)
    assert (told(others=[row9]).outcome, told(OFF, others=[row9]).outcome) == ("elsewhere", "turn on")


@pytest.mark.parametrize(("target_s", "outcome"), [(5.9, "nothing to change"), (5.8, "keep on")])
def test_the_target_is_met_by_the_whole_request(target_s: float, outcome: Outcome) -> None:
    assert told(target_s=target_s).outcome == outcome


def test_without_a_target_a_clear_gain_is_enough_and_no_target_is_said_to_be_met() -> None:
    found = told()
    assert (found.outcome, found.sentence) == ("nothing to change", "Nothing to change: it is on and clearly faster.")
    assert "target" in found.because
    assert told(no=(3,)).outcome == "keep on"


def test_a_cache_that_is_kept_without_a_clear_gain_says_so() -> None:
    assert told(no=(3, 4)).because == "It is on, and no clear gain over none was measured; the tokens differ."


# --- what questions say -----------------------------------------------------------------------------------------------


def rows_of(result: AnyResult, workload: Workload | None = None) -> dict[int, Evidence]:
    return {one.row: one for one in question_of(result).evidence(result, workload or Workload())}


@pytest.mark.parametrize("key", list(RESULTS))
@pytest.mark.parametrize("workload", [Workload(), Workload(100, 20, 2, 8.0, 5.0, 1.0)])
def test_a_question_speaks_of_the_rows_that_its_line_in_the_table_names_and_of_no_other(
    key: str, workload: Workload
) -> None:
    (question,) = (row for row in QUESTIONS if row.key == key)
    made = RESULTS[key], UNKNOWN.get(key, RESULTS[key])
    assert all(set(rows_of(result(), workload)) <= set(question.settles) for result in made)
    assert set(rows_of(RESULTS[key](), workload)) == set(question.settles)


def test_a_comparison_of_six_rounds_answers_faster_and_same_tokens() -> None:
    said = rows_of(result_of(rounds=6))
    assert (said[3].answer, said[4].answer, said[9].answer) == ("yes", "yes", "not yet")
    assert said[3].rests_on == "6 paired rounds"
    assert "times faster" in said[3].words


def test_a_first_look_answers_nothing_but_the_tokens() -> None:
    said = rows_of(result_of(rounds=1), Workload(other_s=1.0))
    assert {row: one.answer for row, one in said.items()} == {3: "not yet", 4: "yes", 9: "not yet"}
    assert said[3].words.startswith("First look: ")


def test_a_comparison_the_other_way_round_says_the_same() -> None:
    one, other = rows_of(result_of()), rows_of(result_of(("dynamic", "none")))
    assert other[3].answer == "yes"
    assert one[3].words.partition(" (")[0] == other[3].words.partition(" (")[0]


def test_of_several_caches_the_one_that_must_give_the_same_tokens_is_judged() -> None:
    said = rows_of(result_of(("none", "dynamic", "fp8")))
    assert said[3].words.startswith("Dynamic cache beside no cache: ")


def test_caches_beside_each_other_say_nothing_of_no_cache() -> None:
    assert rows_of(result_of(("dynamic", "static"))) == {}
    assert rows_of(noise_result()) == {}


def test_no_difference_is_a_no() -> None:
    said = rows_of(result_of(new_tokens=1))
    assert said[3].answer == "no"


def test_a_gain_within_the_noise_of_the_machine_is_a_no() -> None:
    said = rows_of(replace(result_of(), noise=Noise(1.0, 0.2, 6.0, 6)))
    assert said[3].answer == "no"
    assert "two identical runs differ as much" in said[3].words


def test_the_complete_request_is_the_medians_with_what_is_spent_elsewhere() -> None:
    said = rows_of(result_of(), Workload(other_s=1.8, target_s=10.0))[9]
    assert said.answer == "yes"
    request = known(said.request)
    cached, without = known(request.cached), known(request.without)
    assert cached.other_s == 1.8
    assert without.request_s > 10.0 > cached.request_s
    assert "Your target of 10.0 s is met with the cache, missed without it." in said.words
    assert rows_of(result_of(), Workload(other_s=1.8, target_s=2.0))[9].answer == "no"


def test_the_words_of_the_complete_request() -> None:
    assert request_words(BOTH) == (
        "Generation: 17.3 to 4.1 s. Complete request: 19.1 to 5.9 s, 3.2 times faster, because 1.8 s are spent elsewhere."
    )
    alone = CompleteRequest(RequestTimes("No cache", 0, 0.1, 17.2), RequestTimes("Dynamic cache", 0, 0.1, 4.0))
    assert request_words(alone) == "Generation: 17.3 to 4.1 s. Complete request: 17.3 to 4.1 s, 4.2 times faster."
    assert request_words(CompleteRequest(None, FAST)) == "Dynamic cache: 4.1 s generation, 5.9 s in all."
    assert request_words(CompleteRequest(None, None)) == ""
    assert target_words(BOTH, None) == ""
    short = CompleteRequest(SLOW, RequestTimes("Dynamic cache", 0.1, 0.1, 0.2))
    assert request_words(short).startswith("Generation: 17.3 s to 300 ms. ")


def test_growth_answers_for_the_longest_request_that_is_allowed() -> None:
    grown = growth_of(prompts=(16, 128), answers=(16, 64))
    reached = rows_of(grown, Workload(128, 64))[6]
    assert (reached.answer, reached.rests_on) == ("yes", "6 paired rounds")
    assert "192 tokens" in reached.words
    short = rows_of(grown, Workload(128, 65))[6]
    assert (short.answer, "192" in short.words, "193" in short.words) == ("not yet", True, True)
    assert rows_of(replace(grown, left_out=((500, 64),)))[6].answer == "not yet"


def test_a_first_look_at_the_longest_request_answers_only_where_a_gain_can_be_seen() -> None:
    spec = GrowthSpec(prompt="words")

    def at_longest(new_tokens: int) -> Evidence:
        point = GrowthPoint(4, new_tokens, result_of(rounds=1, new_tokens=new_tokens))
        return rows_of(GrowthResult(spec, MODEL, ENVIRONMENT, (point,)))[6]

    assert (at_longest(60).answer, at_longest(60).rests_on) == ("yes", "one round")
    assert at_longest(60).words.startswith("First look: ")
    assert (at_longest(1).answer, at_longest(1).words.endswith("Run 6 rounds.")) == ("not yet", True)


def test_own_prompts_answer_and_the_shipped_ones_do_not() -> None:
    own = prompt_set_of([f"row {number}" for number in range(6)])
    assert rows_of(own)[5].answer == "yes"
    assert "6 prompts" in rows_of(own)[5].words
    shipped = replace(own, spec=replace(own.spec, prompts=representative()))
    assert rows_of(shipped)[5].answer == "not yet"
    assert rows_of(prompt_set_of(["one"]))[5].answer == "not yet"


def test_many_at_once_answers_for_the_users_that_are_expected() -> None:
    served = load_of(4)
    assert rows_of(served, Workload(at_once=4))[7].answer == "yes"
    assert rows_of(served)[7].answer == "yes"
    more = rows_of(served, Workload(at_once=5))[7]
    assert (more.answer, more.words) == ("not yet", "Measured with up to 4 at once; you expect 5.")
    assert rows_of(served, Workload(at_once=4, target_s=1000.0))[7].answer == "yes"
    assert rows_of(served, Workload(at_once=4, target_s=0.001))[7].answer == "no"


def test_a_plan_answers_whether_it_fits_with_room_to_spare() -> None:
    fits, full = of_plan(plan_of(budget_gib=80)), of_plan(plan_of(budget_gib=20))
    assert (fits.answer, full.answer, of_plan(plan_of()).answer) == ("yes", "no", "not yet")
    assert "10 % kept free" in fits.words
    assert of_plan(plan_of(budget_gib=80, num_parameters=None)).answer == "not yet"


def test_the_way_back_is_known_with_what_was_in_force_before() -> None:
    assert of_way_back(ON).answer == "yes"


def test_the_rows_that_no_result_answers_yet_name_the_question_that_does_and_how_long_it_takes() -> None:
    found = ready_to_decide(Workload(), ())
    assert (found.answered, found.sentence) == (0, "Not enough evidence yet: 0 of 10 answered.")
    by_row = {row.number: (row.key, row.takes) for row in found.rows}
    assert by_row[3] == by_row[4] == ("faster", "about 2 min")
    assert (by_row[5][0], by_row[6][0], by_row[7][0]) == ("prompts", "grow", "load")
    assert all(row.button and row.takes for row in found.rows if row.key)
    assert all(row.words for row in found.rows if not row.key)


def test_results_and_what_is_known_without_them_make_a_verdict() -> None:
    found = ready_to_decide(
        Workload(other_s=1.8, target_s=10.0),
        [result_of(), growth_of()],
        beside=[of_setting(ON), of_way_back(ON)],
    )
    assert found.outcome == "nothing to change"
    assert {row.number for row in found.rows if row.answered} == {1, 3, 4, 6, 9, 10}


def test_the_noise_is_said_where_it_was_measured() -> None:
    assert "was not measured" in ready_to_decide(Workload(), [result_of()]).noise
    measured = ready_to_decide(Workload(), [result_of(), noise_result()])
    assert measured.noise.startswith("Two identical runs differ by up to ")


def test_a_result_on_another_model_is_left_out_and_counted() -> None:
    other = replace(growth_of(), model=replace(MODEL, name="another"))
    found = ready_to_decide(Workload(), [other, result_of()])
    assert (found.left_out, found.rows[5].answer, found.rows[2].answer) == (1, "not yet", "yes")


def test_what_watches_the_work_itself_counts_whatever_its_model_is_called() -> None:
    """The place through which an endpoint's and an application's results answer: their line of the table."""
    says = (
        Evidence(1, "yes", "use_cache=False in summarise.py:41", in_use=False),
        Evidence(2, "no", "forwards saw 4, 5, 6 tokens", "3 calls", in_use=False),
    )
    watched = replace(SOON, needs="nothing", settles=(1, 2, 9), evidence=lambda _result, _workload: says)
    record = replace(soon_of(), model=replace(MODEL, name="/srv/model"))
    table = (*QUESTIONS, watched)
    plan = plan_of(budget_gib=80)
    found = ready_to_decide(Workload(), [result_of(), record], beside=[of_setting(ON), of_plan(plan)], table=table)
    assert (found.left_out, found.rows[1].answer, found.rows[1].rests_on) == (0, "no", "3 calls")
    assert found.rows[0].words == "use_cache=False in summarise.py:41"
    assert found.outcome == "turn on"


# --- an application, which is its own complete request ---------------------------------------------------------------


def test_an_application_answers_on_its_own_prompts_and_for_its_whole_time() -> None:
    said = rows_of(application_spending(4.0))
    assert {row: one.answer for row, one in said.items()} == dict.fromkeys((1, 2, 3, 4, 5, 9), "yes")
    assert said[5].words == (
        "3.0 times faster (3.0 to 3.0) on what your program asks: one call of 4 prompt tokens and 4 new ones."
    )
    assert said[9].words == (
        "Generation: 12.0 to 4.0 s. Complete request: 18.0 to 10.0 s, 1.80 times faster, because 6.0 s are spent elsewhere."
    )
    assert all(said[row].rests_on == "6 paired rounds" for row in (3, 4, 5, 9))
    assert said[1].words == "In use: DynamicCache, left at the library's default."
    assert said[2].words == "Forwards saw 4, 1, 1, 1 tokens. Only what is new is computed."


@pytest.mark.parametrize(("target_s", "answer"), [(10.0, "yes"), (9.9, "no")])
def test_the_whole_time_of_an_application_meets_the_target_or_not(target_s: float, answer: Answer) -> None:
    assert rows_of(application_spending(4.0), Workload(target_s=target_s))[9].answer == answer


def test_few_rounds_of_an_application_answer_the_tokens_only() -> None:
    said = rows_of(application_spending(4.0, rounds=2))
    assert {row: one.answer for row, one in said.items() if one.answer == "not yet"} == dict.fromkeys(
        (3, 5, 9), "not yet"
    )
    assert said[3].words == "First look: 3.0 times faster (3.0 to 3.0) with the cache, in your program. Run 6 rounds."


def test_an_application_that_hardly_generates_is_told_to_look_elsewhere() -> None:
    found = ready_to_decide(Workload(), [application_spending(1.2)])
    assert (found.sentence, found.rests_on) == ("Look elsewhere: generation is 12 % of the request.", (9,))
    assert found.because == "Whatever a cache does, 8.8 s of 10.0 s stay."


def test_an_application_watched_once_says_where_its_time_goes_and_counts_with_a_comparison() -> None:
    once = replace(application_spending(1.2), spec=ApplicationSpec("summarise.py"), arms=(), runs=(), comparisons=())
    said = rows_of(once)
    assert set(said) == {1, 2, 9}
    assert said[9].answer == "not yet"
    assert said[9].words.startswith("Generation is 1.2 s of 10.0 s (12 %). What the whole gains: ")
    assert ready_to_decide(Workload(), [once]).outcome == "not enough"
    assert (
        ready_to_decide(Workload(), [result_of(), once]).sentence
        == "Look elsewhere: generation is 12 % of the request."
    )


def test_an_application_without_a_cache_is_none_of_the_two_by_itself() -> None:
    """Beside the cache off it gains nothing, for both are without one; beside a cache it does."""
    off = application_spending(4.0, cached=False)
    assert set(rows_of(off)) == {1, 2, 9}
    assert rows_of(off)[1].in_use is False
    assert rows_of(off)[1].words == "Off: config.json says use_cache: false."
    assert rows_of(off)[2].words.startswith("Forwards saw 4, 5, 6, 7 tokens. The cache is off: ")
    assert rows_of(off)[9].words.endswith("kvdemo watch --compare as-is,dynamic tells.")
    assert any(
        "kvdemo watch --compare as-is,dynamic" in sentence for sentence in question_of(off).words.open_points(off, None)
    )
    beside = replace(
        off,
        spec=replace(off.spec, compare=("as-is", "dynamic")),
        arms=(ArmOfProgram("as-is", "as it is", cached=False), ArmOfProgram("dynamic", "dynamic cache", cached=True)),
        comparisons=tuple(
            replace(one, baseline="as-is", candidate="dynamic") for one in application_spending(4.0).comparisons
        ),
        runs=tuple(
            replace(run, arm={"none": "as-is", "as-is": "dynamic"}[run.arm]) for run in application_spending(4.0).runs
        ),
    )
    said = rows_of(beside)
    assert (said[3].answer, said[5].answer, said[9].answer) == ("yes", "yes", "yes")
    plan = plan_of(budget_gib=80)
    assert ready_to_decide(Workload(), [beside], beside=[of_plan(plan)]).outcome == "turn on"


def test_another_environment_is_no_gain_of_a_cache() -> None:
    made = application_spending(4.0)
    other = replace(
        made,
        spec=replace(made.spec, compare=("as-is", "python=1")),
        arms=(
            ArmOfProgram("as-is", "as it is", cached=True),
            ArmOfProgram("python=1", "the other environment", cached=False),
        ),
        comparisons=tuple(replace(one, baseline="python=1", candidate="as-is") for one in made.comparisons),
    )
    assert set(rows_of(other)) == {1, 2, 9}
    assert rows_of(other)[9].answer == "not yet"


def test_a_no_outweighs_a_yes_and_an_answer_outweighs_none() -> None:
    yes, no, little = Evidence(5, "yes", ""), Evidence(5, "no", ""), Evidence(5, "not yet", "")
    assert ready_to_decide(Workload(), (), beside=[yes, no, little]).rows[4].answer == "no"
    assert ready_to_decide(Workload(), (), beside=[yes, little]).rows[4].answer == "yes"


def test_of_two_like_answers_the_later_one_is_told() -> None:
    first, later = Evidence(5, "yes", "first"), Evidence(5, "yes", "later")
    assert ready_to_decide(Workload(), (), beside=[first, later]).rows[4].words == "later"
