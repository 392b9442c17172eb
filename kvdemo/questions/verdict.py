"""Ready to decide? Ten questions a reviewer asks, and one of six verdicts. Pure: what is wanted and results in, rows out.

It only collects: what a result says to a row, the result's question knows. The thresholds stand here, the texts beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvdemo.experiments.comparison import Noise
from kvdemo.experiments.complete_request import CompleteRequest, RequestTimes
from kvdemo.experiments.evidence import Answer, Evidence
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.facts.units import format_seconds
from kvdemo.facts.workload import Workload
from kvdemo.questions import verdict_texts as texts
from kvdemo.questions.table import QUESTIONS, Table, question_of
from kvdemo.questions.verdict_texts import ASKED, ELSEWHERE, TEXTS, Outcome

__all__ = ["LEAST_SHARE", "NEEDED", "Outcome", "Readiness", "Row", "ready_to_decide"]

LEAST_SHARE = 0.2  # of generation in the complete request: below it, a faster generation is hardly noticed
NEEDED = (1, 3, 4)  # without these there is no verdict
NOT_HERE = ("nothing", "endpoint")  # needed by a question that looks at work which is done elsewhere
FOR_IT = (3, 4, 8)  # what must speak for turning it on


@dataclass(frozen=True, slots=True)
class Row:
    """One of the ten. key: of the question that answers it, "" where none does; button: its title; takes: about how long."""

    number: int
    asked: str
    answer: Answer
    words: str
    rests_on: str = ""
    key: str = ""
    button: str = ""
    takes: str = ""

    @property
    def answered(self) -> bool:
        return self.answer != "not yet"

    @property
    def why(self) -> str:
        """In a report, which has no buttons: what was found and in which runs, or what would answer it."""
        if self.answered:
            return f"{self.words} ({self.rests_on})" if self.rests_on else self.words
        by = f"Answered by: {self.button}{f' ({self.takes})' if self.takes else ''}" if self.button else ""
        return f"{self.words} {by}".strip()


@dataclass(frozen=True, slots=True)
class Readiness:
    """The verdict and what it rests on.

    rests_on    numbers of rows; of "not enough" those that stand in the way
    request     the complete request, where it is known; target_s: of it, None where nobody said one
    left_out    results that were measured on another model
    """

    outcome: Outcome
    sentence: str
    because: str
    overturned_by: str
    noise: str
    rests_on: tuple[int, ...]
    rows: tuple[Row, ...]
    request: CompleteRequest | None = None
    target_s: float | None = None
    left_out: int = 0

    @property
    def answered(self) -> int:
        return sum(row.answered for row in self.rows)


@dataclass(frozen=True, slots=True)
class Told:
    """What each row says; None where nobody said anything."""

    by_row: Mapping[int, Evidence | None]
    on_endpoint: bool
    target_s: float | None

    def says(self, number: int) -> Answer:
        evidence = self.by_row[number]
        return evidence.answer if evidence is not None else "not yet"

    @property
    def is_on(self) -> bool | None:
        setting = self.by_row[1]
        return setting.in_use if setting is not None else None

    @property
    def request(self) -> CompleteRequest | None:
        evidence = self.by_row[9]
        return evidence.request if evidence is not None else None

    @property
    def now(self) -> RequestTimes | None:
        """The complete request with the setting that is in force."""
        if self.request is None or self.is_on is None:
            return None
        return self.request.cached if self.is_on else self.request.without

    @property
    def missing(self) -> tuple[int, ...]:
        """The rows that stand in the way: those needed for any verdict; else those that do not speak for turning it on."""
        unanswered = tuple(number for number in NEEDED if self.says(number) == "not yet")
        return unanswered or tuple(number for number in FOR_IT if self.says(number) != "yes") or (1,)

    @property
    def outcome(self) -> Outcome:
        """The first that holds. A cache that is off, and that not everything speaks for, is neither kept nor turned on."""
        if any(self.says(number) == "not yet" for number in NEEDED):
            return "not enough"
        if self.on_endpoint:
            return "ask"
        now = self.now
        if now is not None and now.share is not None and now.share < LEAST_SHARE:
            return "elsewhere"
        if self.is_on:
            met = now is not None and self.target_s is not None and now.request_s <= self.target_s
            clear = self.target_s is None and self.says(3) == "yes"
            return "nothing to change" if met or clear else "keep on"
        for_it = self.is_on is False and all(self.says(number) == "yes" for number in FOR_IT)
        return "turn on" if for_it else "not enough"


def ready_to_decide(
    workload: Workload, results: Sequence[AnyResult], *, beside: Sequence[Evidence] = (), table: Table = QUESTIONS
) -> Readiness:
    """The ten rows and the verdict.

    results   in the order in which they came. What was measured here on another model than the last one's is left out;
              what looks at somebody else's process or engine is about the work, whatever it calls its model
    beside    what is known without a result: which setting is in force, what a plan says, how to go back
    """
    every = [(question_of(result, table), result) for result in results]
    here = [_model(result) for question, result in every if question.needs not in NOT_HERE]
    asked = [one for one in every if one[0].needs in NOT_HERE or _model(one[1]) == here[-1]]
    found = [one for question, result in asked for one in question.evidence(result, workload)]
    known = [*found, *beside]
    told = Told(
        {number: _told(number, found, beside) for number in ASKED},
        any(one.row == 2 and one.endpoint and not one.in_use for one in known),
        workload.target_s,
    )
    rows = tuple(_row(number, told.by_row[number], table) for number in ASKED)
    noises = [noise for question, result in asked if (noise := _noise(question, result)) is not None]
    outcome = told.outcome
    words, given = TEXTS[outcome], _given(rows, told)
    rests_on = tuple(number for number in words.rests_on if rows[number - 1].answered)
    return Readiness(
        outcome=outcome,
        sentence=words.sentence.format(**given),
        because=words.because.format(**given),
        overturned_by=words.overturned_by.format(**given),
        noise=texts.NOISE.format(most=noises[-1].words()) if noises else texts.NO_NOISE,
        rests_on=told.missing if outcome == "not enough" else rests_on,
        rows=rows,
        request=told.request,
        target_s=workload.target_s,
        left_out=len(every) - len(asked),
    )


def _model(result: AnyResult) -> tuple[object, ...]:
    return (result.model.name, result.model.revision)


def _noise(question: Question[object, AnyResult], result: AnyResult) -> Noise | None:
    """Of this machine: measured by this result, or known when it was made."""
    one = question.comparison(result)
    return question.noise(result) or (one.noise if one is not None else None)


def _told(number: int, found: Sequence[Evidence], beside: Sequence[Evidence]) -> Evidence | None:
    """What counts for a row: a result before what is known without one, an answer before none, a no before a yes, the last.

    A result is closer to the work: it may know of a call that sets what no file says.
    """
    of_row = [[one for one in several if one.row == number] for several in (found, beside)]
    for several in of_row:
        for answer in ("no", "yes"):
            said = [one for one in several if one.answer == answer]
            if said:
                return said[-1]
    return next((several[-1] for several in of_row if several), None)


def _row(number: int, evidence: Evidence | None, table: Table) -> Row:
    question = next((row for row in table if number in row.settles), None)
    where = ("", "", "") if question is None else (question.key, question.title, question.takes)
    if evidence is None:
        return Row(number, ASKED[number], "not yet", "" if question else ELSEWHERE.get(number, ""), "", *where)
    return Row(number, ASKED[number], evidence.answer, evidence.words, evidence.rests_on, *where)


def _given(rows: Sequence[Row], told: Told) -> dict[str, str]:
    """What stands in the braces of the texts."""
    now, target = told.now, texts.WITHOUT_TARGET if told.target_s is None else texts.WITH_TARGET
    took = {
        "took": format_seconds(now.request_s if now is not None else None),
        "target": format_seconds(told.target_s),
    }
    return {
        "answered": str(sum(row.answered for row in rows)),
        "missing": _missing_words(told),
        "share": _percent(now.share if now is not None else None),
        "least": _percent(LEAST_SHARE),
        "other": format_seconds(now.other_s if now is not None else None),
        "whole": took["took"],
        **{name: text.format(**took) for name, text in target.items()},
        "kept": (texts.KEPT if told.says(3) == "yes" else texts.KEPT_UNCLEAR)
        + (texts.OTHER_TOKENS if told.says(4) == "no" else ""),
    }


def _missing_words(told: Told) -> str:
    numbers = ", ".join(map(str, told.missing))
    rows, do = (f"row {numbers}", "does") if len(told.missing) == 1 else (f"rows {numbers}", "do")
    needed = any(told.says(number) == "not yet" for number in NEEDED)
    return (texts.MISSING if needed else texts.NOT_FOR_IT).format(rows=rows, do=do)


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.0f} %"
