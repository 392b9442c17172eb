"""What growth says to "Ready to decide?": is it still faster at the longest request that somebody allows?"""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.experiments.evidence import Evidence, rounds_words
from kvdemo.experiments.gain import gain_of
from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.facts.units import format_count
from kvdemo.facts.workload import Workload
from kvdemo.questions.grow.spec import GrowthResult

__all__ = ["evidence"]

NO_DIFFERENCE = 0.05  # in a first look, a gain no larger than this is none that can be seen


def evidence(result: GrowthResult, workload: Workload) -> Sequence[Evidence]:
    """Row 6; nothing where no cache ran beside none. Where nobody says the longest request, it is the longest asked for."""
    measured = [(point, gain) for point in result.points if (gain := gain_of(point.result)) is not None]
    if not measured:
        return ()
    point, gain = max(measured, key=lambda one: one[0].total_tokens)
    rounds = max(item.rounds for item in point.result.comparisons)
    rests_on = rounds_words(rounds)
    longest, reached = workload.longest_tokens, format_count(point.total_tokens)
    if longest is None and result.left_out:
        longest = max(map(sum, result.left_out))
    if longest is not None and point.total_tokens < longest:
        words = f"Measured up to {reached} tokens; your longest request has {format_count(longest)}."
        return (Evidence(6, "not yet", words, rests_on),)
    words = f"{gain.words()} at {reached} tokens, prompt and answer together."
    if rounds >= MIN_ROUNDS:
        return (Evidence(6, "yes" if gain.low is not None and gain.low > 1 else "no", words, rests_on),)
    clear = gain.ratio > 1 + NO_DIFFERENCE
    more = "" if clear else f" Run {MIN_ROUNDS} rounds."
    return (Evidence(6, "yes" if clear else "not yet", f"First look: {words}{more}", rests_on),)
