"""What a watched program says to "Ready to decide?": which setting, whether the work goes through it, what it gains."""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.experiments.evidence import Evidence, rounds_words
from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.facts.units import format_count, format_ratio
from kvdemo.facts.workload import Workload
from kvdemo.questions.application.spec import AS_IS, ApplicationResult
from kvdemo.watching.words import verdict_sentence

__all__ = ["evidence"]


def evidence(result: ApplicationResult, workload: Workload) -> Sequence[Evidence]:
    """Rows 1 and 2 of what was seen; 3 and 4 where it was run without a cache, too."""
    seen = result.watched
    if not seen.calls:
        return (Evidence(2, "no", "generate was never called: this text comes from elsewhere."),)
    calls = f"{format_count(len(seen.calls))} {'call' if len(seen.calls) == 1 else 'calls'} of {result.spec.program}"
    deciders = ", ".join(sorted({call.use_cache.source for call in seen.calls}))
    found = [
        Evidence(1, "yes", f"Decided by: {deciders}.", calls, in_use=seen.cached),
        Evidence(2, "not yet" if seen.cached is None else "yes", verdict_sentence(seen), calls, in_use=seen.cached),
    ]
    if "none" in result.spec.compare and AS_IS in result.spec.compare:
        found += compared(result)
    return found


def compared(result: ApplicationResult) -> list[Evidence]:
    """As it is beside the cache off, whichever of them is the baseline."""
    one = next((item for item in result.comparisons if {item.baseline, item.candidate} == {"none", AS_IS}), None)
    if one is None or one.ratio is None:
        return []
    turned = one.candidate == "none"
    ratio = 1 / one.ratio if turned else one.ratio
    low = (1 / one.high if one.high else None) if turned else one.low
    rests_on = rounds_words(one.rounds)
    words = f"{format_ratio(ratio)} times faster with the cache, in your program."
    clear = one.rounds >= MIN_ROUNDS and low is not None
    faster = Evidence(3, "not yet" if not clear else "yes" if (low or 0) > 1 else "no", words, rests_on)
    if one.same_output is None:
        return [faster]
    said = "The same tokens in every call." if one.same_output else "The tokens of some calls differ."
    return [faster, Evidence(4, "yes" if one.same_output else "no", said, rests_on)]
