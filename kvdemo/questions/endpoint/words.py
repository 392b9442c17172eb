"""An endpoint in words: three verdicts, each as strong as its evidence. Pure."""

from __future__ import annotations

from kvdemo.experiments.pieces import Pieces, asked_rows, capital
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.questions.endpoint.message import message
from kvdemo.questions.endpoint.spec import SUBJECTS, EndpointResult, Judged, Judgement
from kvdemo.questions.endpoint.timings import judgements

METHOD = (
    "Judged from outside, by times alone. Every prompt began with something new, unless reuse was the question. Requests went in "
    "rounds whose order rotates; ratios are taken inside a round, and a verdict needs the whole interval of their median on one "
    "side of its threshold."
)
CAPTION = "One row per subject: the verdict and the ratio that it rests on"


def headline(result: EndpointResult) -> Pieces:
    """The three verdicts."""
    judged = judgements(result)
    said = [f"{SUBJECTS[subject]}: {found.verdict}." for subject, found in judged.items()]
    pieces: Pieces = [(" ".join(said), True)]
    known = sum(found.verdict != "cannot tell" for found in judged.values())
    if not known:
        pieces.append((" Nothing could be told from outside; the evidence says why.", False))
    ends = {
        "budget": " The budget was used up before all was measured.",
        "limit": " The time limit ended it before all was measured.",
        "stopped": " Stopped before all was measured.",
        "failed": " The server did not answer every request.",
    }
    if result.stopped_because in ends:
        pieces.append((ends[result.stopped_because], False))
    return pieces


def scope(result: EndpointResult) -> str:
    """What was it measured on, and what did it cost?"""
    return (
        f"{result.model.name}, from this machine: {format_count(result.requests_sent)} requests and "
        f"{format_count(result.tokens_used)} tokens. Another load, length or hour can give another answer."
    )


def verdict_line(judged: Judgement, subject: str) -> str:
    """ "KV cache: in use. The evidence." """
    return f"{subject}: {judged.verdict}. {judged.evidence}"


def so_far(step: object) -> str:
    """A subject that is judged."""
    return f"{SUBJECTS[step.subject]}: {step.judgement.verdict}" if isinstance(step, Judged) else ""


def verdicts(result: EndpointResult) -> list[str]:
    """Each with its evidence."""
    return [verdict_line(judged, SUBJECTS[subject]) for subject, judged in judgements(result).items()]


def settling(result: EndpointResult) -> list[str]:
    """What would settle each of them."""
    return [f"{SUBJECTS[subject]}, {judged.verdict}: {judged.settle}" for subject, judged in judgements(result).items()]


def open_points(result: EndpointResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell: first what could not be told at all. decision: of this machine; it says nothing of an endpoint."""
    untold = [
        f"{SUBJECTS[subject]}: cannot tell. {capital(judged.settle)}"
        for subject, judged in judgements(result).items()
        if judged.verdict == "cannot tell"
    ]
    return [
        *untold,
        "Which engine it is, who set it so, and how large its cache is: the message asks.",
        "Other replicas: every request may have met another one.",
        "How it does under your users' load.",
    ]


def request(result: EndpointResult) -> list[tuple[str, str]]:
    """What was allowed."""
    spec = result.spec
    return asked_rows(
        {
            "most requests": format_count(spec.requests),
            "most tokens": format_count(spec.tokens),
            "most time": format_seconds(spec.seconds),
            "model": result.model.name,
        }
    )


def remarks(result: EndpointResult) -> list[str]:
    """What would settle it, and the message to whoever runs it, line by line."""
    lines = [line for line in message(result).splitlines() if line]
    return [*settling(result), "To copy, for whoever runs it:", *lines]


def command(result: EndpointResult) -> list[str]:
    """The switches that ask the same again; the address is for whoever repeats it to fill in."""
    spec = result.spec
    return ["--requests", str(spec.requests), "--tokens", str(spec.tokens), "--seconds", f"{spec.seconds:g}"]
