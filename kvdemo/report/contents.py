"""What a report says, part by part, before any form is given to it. Every word of a question's own comes from its row."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import FORMULAS
from kvdemo.experiments.evidence import of_setting, of_way_back
from kvdemo.experiments.notices import notices
from kvdemo.experiments.pieces import TIMED, plain
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.experiments.tables import runs_table
from kvdemo.facts.decision import CacheAdvice, CacheDecision
from kvdemo.facts.endpoint import NOT_REPORTED
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.results import Environment
from kvdemo.facts.units import format_bytes, format_parameters
from kvdemo.facts.workload import Workload
from kvdemo.questions.table import Table
from kvdemo.questions.verdict import Readiness, ready_to_decide
from kvdemo.questions.verdict_texts import SAID
from kvdemo.report.reproduce import is_local, model_switches, reproduce_script, to_fill_in

__all__ = ["command_line", "contents_of", "environment_rows", "readiness_of", "script_of"]


def contents_of(
    question: Question[Any, Any],
    result: AnyResult,
    decision: CacheDecision | None,
    change: CacheAdvice | None,
    readiness: Readiness,
) -> dict[str, Any]:
    """What both forms of the report say."""
    words = question.words
    pieces = words.headline(result)
    timed = TIMED if question.rows is None else ""
    return {
        "title": plain(pieces).split(". ")[0].rstrip("."),
        "pieces": pieces,
        "scope": words.scope(result),
        "notices": notices(question.runs(result)),
        "in_force": _in_force(question, decision, readiness),
        "conflicts": decision.conflicts if decision is not None else (),
        "unknown": words.open_points(result, decision),
        "readiness": readiness,
        "said": SAID,
        "rests_on": ", ".join(map(str, readiness.rests_on)),
        "arms": question.table(result),
        "arms_caption": words.CAPTION,
        "verdicts": [*words.verdicts(result), *words.remarks(result)],
        "runs": runs_table(question.runs(result), question.labels(result)),
        "timed": timed,
        "method": f"{words.METHOD} {timed}".rstrip(),
        "formulas": FORMULAS,
        "environment": environment_rows(result.model, result.environment),
        "request": words.request(result),
        "change": change,
        "command": command_line(question, result),
        "script": script_of(question, result),
        "to_fill_in": to_fill_in(result.model) if question.comparison(result) is not None else "",
    }


def _in_force(question: Question[Any, Any], decision: CacheDecision | None, readiness: Readiness) -> str:
    """As this question has seen it at work, where it looks at that; else as it was inspected."""
    seen = readiness.rows[0]
    if 1 in question.settles and seen.answered:
        return seen.words
    return decision.sentence() if decision is not None else "Not inspected."


def readiness_of(
    result: AnyResult, decision: CacheDecision | None, change: CacheAdvice | None, table: Table
) -> Readiness:
    """The verdict on this result alone, where nobody has one that rests on more."""
    beside = [*([of_setting(decision)] if decision is not None else [])]
    beside += [of_way_back(change.before)] if change is not None else []
    return ready_to_decide(Workload(), [result], beside=beside, table=table)


def script_of(question: Question[Any, Any], result: AnyResult) -> str:
    """The question's own lines, else the script of the comparison that stands for it; "" where there is none.

    A file of a later version may name a strategy that this one does not know.
    """
    if question.code:
        return question.code
    one = question.comparison(result)
    try:
        return "" if one is None else reproduce_script(one)
    except InvalidRequest:
        return ""


def command_line(question: Question[Any, Any], result: AnyResult, given: str | None = None) -> str:
    """The command that asks the same again; "" where switches cannot say it.

    given   the model as somebody named it on this machine, for a command that stays here
    """
    switches = question.words.command(result)
    model = result.model
    served = model.device == NOT_REPORTED  # by an engine behind a URL, which a report does not name
    asked = ["--url", "URL", "--model", model.name] if served else model_switches(model, given)
    words = ["python", "-m", "kvdemo", question.command, *asked, *switches]
    return shlex.join(words) if switches else ""


def environment_rows(model: ModelFacts, environment: Environment) -> list[tuple[str, str]]:
    """The model and the machine."""
    named, parameters = model.hub_id or model.name, format_parameters(model.num_parameters)
    source = "Weights from a folder or file of the machine that measured." if is_local(model) else model.source
    about = {
        "model": f"{named}, {parameters} parameters, {model.dtype} on {model.device}",
        "weights": f"{format_bytes(model.weight_bytes)}. {source}",
        "cache per token": format_bytes(model.cache_bytes_per_token),
        "attention": model.attention,
        "revision": model.revision,
        **asdict(environment),
        "on_page": {True: "yes", False: "no", None: "not known"}[environment.on_page],
    }
    return [(name.replace("_", " "), "none" if value is None else str(value)) for name, value in about.items()]
