"""What a comparison on one prompt says to "Ready to decide?": faster, same tokens, and the complete request."""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.experiments.comparison import Comparison, ComparisonResult
from kvdemo.experiments.complete_request import complete_request, request_words, target_words
from kvdemo.experiments.evidence import Answer, Evidence, rounds_words
from kvdemo.experiments.gain import Gain, beside_no_cache
from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.facts.units import format_count
from kvdemo.facts.workload import Workload

__all__ = ["evidence"]


def evidence(result: ComparisonResult, workload: Workload) -> Sequence[Evidence]:
    """Rows 3, 4 and 9; nothing where no cache ran beside none."""
    rows = {row.key: row for row in result.strategies}
    found = beside_no_cache((item for item in result.comparisons if item.metric == "generation_s"), rows)
    if found is None:
        return ()
    gain, item = found
    enough = item.rounds >= MIN_ROUNDS
    clear = enough and gain.low is not None and gain.low > 1
    within_noise = result.noise is not None and result.noise.covers(gain.ratio)
    faster: Answer = "not yet" if not enough else "yes" if clear and not within_noise else "no"
    return (
        Evidence(3, faster, _faster(result, gain, item, within_noise), rounds_words(item.rounds)),
        _tokens(result, gain, item),
        _complete(result, gain, item, faster, workload),
    )


def _faster(result: ComparisonResult, gain: Gain, item: Comparison, within_noise: bool) -> str:
    said = f"{result.row(gain.cached).label} beside no cache: {gain.words()}"
    if item.rounds < MIN_ROUNDS:
        return f"First look: {said}. Run {MIN_ROUNDS} rounds."
    return f"{said}: two identical runs differ as much." if within_noise else f"{said}."


def _tokens(result: ComparisonResult, gain: Gain, item: Comparison) -> Evidence:
    verdict, rests_on = item.verdict, rounds_words(item.rounds)
    if verdict.same_output is None:
        return Evidence(4, "not yet", "The tokens were not named, so they cannot be compared.", rests_on)
    if verdict.same_output:
        counted = result.counted(gain.cached)
        many = format_count(counted[-1].new_tokens) if counted else ""
        return Evidence(4, "yes", f"The same {many} tokens in every round.", rests_on)
    where = format_count((verdict.first_difference or 0) + 1)
    why = "in greedy float32 this is a fault" if verdict.expected_equal else "this is no test of quality"
    return Evidence(4, "no", f"They differ from token {where} on: {why}.", rests_on)


def _complete(result: ComparisonResult, gain: Gain, item: Comparison, faster: Answer, workload: Workload) -> Evidence:
    if workload.other_s is None:
        words = "Say under Your workload how much of a request is spent elsewhere."
        return Evidence(9, "not yet", words)
    request, rests_on = complete_request(result, gain, workload.other_s), rounds_words(item.rounds)
    if request.cached is None or request.without is None or faster == "not yet":
        return Evidence(9, "not yet", f"Run {MIN_ROUNDS} rounds, without a cache and with one.", rests_on)
    missed = workload.target_s is not None and request.cached.request_s > workload.target_s
    said = f"{request_words(request)} {target_words(request, workload.target_s)}".rstrip()
    answer: Answer = "yes" if faster == "yes" and not missed else "no"
    return Evidence(9, answer, said, rests_on, request=request)
