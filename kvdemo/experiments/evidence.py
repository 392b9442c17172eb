"""What is known to the ten rows of "Ready to decide?". A question says it of its own results; three rows need no run.

What the rows ask, and what follows from all of them, stands in questions/verdict.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvdemo.experiments.complete_request import CompleteRequest
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.plans import MemoryPlan
from kvdemo.facts.units import format_bytes, format_count

__all__ = ["Answer", "Evidence", "of_plan", "of_setting", "of_way_back", "rounds_words"]

Answer = Literal["yes", "no", "not yet"]
"""not yet: too little was measured, or said, to tell."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one result says to one row.

    row        1 to 10
    words      a sentence: what was found, or what is missing
    rests_on   the runs behind it: "6 paired rounds"; "" where there are none
    in_use     rows 1 and 2: does what was looked at use a cache? None: it cannot be told, or was not the question
    endpoint   row 2: the work is done by an engine behind a URL
    request    row 9: what the complete request takes
    """

    row: int
    answer: Answer
    words: str
    rests_on: str = ""
    in_use: bool | None = None
    endpoint: bool = False
    request: CompleteRequest | None = None


def rounds_words(rounds: int) -> str:
    """ "6 paired rounds"."""
    return "one round" if rounds == 1 else f"{rounds} paired rounds"


def of_setting(decision: CacheDecision) -> Evidence:
    """Row 1: which cache a plain call of generate uses, and who decided."""
    answer: Answer = "no" if decision.value is None else "yes"
    return Evidence(1, answer, f"In force: {decision.sentence()}", in_use=decision.value)


def of_plan(plan: MemoryPlan) -> Evidence:
    """Row 8: does the longest request fit, as often as it comes at once? Predicted, with a share kept free."""
    request, capacity = plan.request, plan.capacity
    if capacity is None:
        return Evidence(8, "not yet", "Say how much memory there is for it.")
    if plan.weight_bytes is None:
        return Evidence(8, "not yet", "How much the weights take is not known.")
    many = "one request" if request.batch_size == 1 else f"{format_count(request.batch_size)} requests"
    words = (
        f"Predicted: weights and {many} of {format_count(request.seq_len)} tokens take "
        f"{format_bytes(plan.weight_bytes + plan.held_bytes)} of {format_bytes(capacity.budget_bytes)}"
    )
    spare = f"with {request.keep_free:.0%} kept free".replace("%", " %")
    return Evidence(
        8, "yes" if capacity.fits else "no", f"{words}: {'it fits' if capacity.fits else 'it does not fit'} {spare}."
    )


def of_way_back(before: CacheDecision) -> Evidence:
    """Row 10: the exact calls there and back are known with a comparison, and what was in force before."""
    return Evidence(10, "yes", f"By one call, which stands under Go back: {before.sentence()}")
