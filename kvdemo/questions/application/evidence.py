"""What a watched program says to "Ready to decide?": which setting, whether the work goes through it, what it gains.

A program that is run once for every request is its own complete request: its whole time is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvdemo.experiments.complete_request import CompleteRequest, RequestTimes, request_words, target_words
from kvdemo.experiments.evidence import Answer, Evidence, rounds_words
from kvdemo.experiments.gain import NO_CACHE, Gain, gain_in
from kvdemo.experiments.pieces import capital
from kvdemo.experiments.statistics import MIN_ROUNDS, median
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.facts.workload import Workload
from kvdemo.questions.application.spec import AS_IS, PYTHON, ApplicationResult, Ratio
from kvdemo.watching.words import cache_words, places, proof_words, verdict_sentence

__all__ = ["evidence"]


@dataclass(frozen=True, slots=True)
class Beside:
    """A way of running it with a cache beside one without: keys of arms, and both gains of the first over the second."""

    without: str
    cached: str
    generation: Gain
    whole: Gain | None
    one: Ratio


def evidence(result: ApplicationResult, workload: Workload) -> Sequence[Evidence]:
    """Rows 1, 2 and 9 of what was seen; 3, 4, 5 and 9 where it was run with a cache and without one."""
    seen = result.watched
    if not seen.calls:
        return (Evidence(2, "no", verdict_sentence(seen)),)
    many = len(seen.calls) + seen.calls_left_out
    calls = f"{format_count(many)} {'call' if many == 1 else 'calls'} of {result.spec.program}"
    setting = ". ".join(dict.fromkeys(capital(cache_words(one[0])) for one in places(seen)))
    telling = next((call for call in seen.calls if call.cached is False), seen.calls[0])
    through = "Only what is new is computed." if seen.cached else verdict_sentence(seen)
    proof = f"{capital(proof_words(telling))}. {through}"
    found = [
        Evidence(1, "yes", f"{setting}.", calls, in_use=seen.cached),
        Evidence(2, "not yet" if seen.cached is None else "yes", proof, calls, in_use=seen.cached),
    ]
    beside = _beside(result)
    return [*found, *([_once(result, calls)] if beside is None else _compared(result, beside, workload))]


def _beside(result: ApplicationResult) -> Beside | None:
    """The program as it is, where it is one of the two; else the cache that gained most. None: no cache ran beside none.

    What was run in another environment differs in more than its cache.
    """
    here = [arm for arm in result.arms if not arm.key.startswith(PYTHON)]
    without = {NO_CACHE, *(arm.key for arm in here if arm.cached is False)}
    cached = {arm.key for arm in here if arm.cached} - without
    found = []
    for one in result.comparisons:
        arms = {one.baseline, one.candidate}
        if one.metric != "generation_s" or len(arms & without) != 1 or len(arms & cached) != 1:
            continue
        (off,), (on,) = arms & without, arms & cached
        whole = result.compared(one.candidate, "wall_s")
        if (generation := gain_in(one, on)) is not None:
            found.append(Beside(off, on, generation, gain_in(whole, on) if whole is not None else None, one))
    return max(found, key=lambda each: (AS_IS in (each.without, each.cached), each.generation.ratio), default=None)


def _compared(result: ApplicationResult, beside: Beside, workload: Workload) -> list[Evidence]:
    one, gain, rests_on = beside.one, beside.generation, rounds_words(beside.one.rounds)
    enough = one.rounds >= MIN_ROUNDS and gain.low is not None
    faster: Answer = "not yet" if not enough else "yes" if (gain.low or 0) > 1 else "no"
    said, more = (gain.words(), "") if enough else (f"First look: {gain.words()}", f" Run {MIN_ROUNDS} rounds.")
    found = [
        Evidence(3, faster, f"{said} with the cache, in your program.{more}", rests_on),
        Evidence(5, faster, f"{said} on what your program asks: {_lengths(result)}.{more}", rests_on),
        _complete(result, beside, faster, workload),
    ]
    if one.same_output is None:
        return found
    same = "The same tokens in every call." if one.same_output else "The tokens of some calls differ."
    return [*found, Evidence(4, "yes" if one.same_output else "no", same, rests_on)]


def _complete(result: ApplicationResult, beside: Beside, faster: Answer, workload: Workload) -> Evidence:
    """Row 9: the whole of it, from its first line to its end."""
    request = CompleteRequest(_times(result, beside.without), _times(result, beside.cached))
    rests_on = rounds_words(beside.one.rounds)
    if request.cached is None or request.without is None or beside.whole is None or faster == "not yet":
        return Evidence(9, "not yet", f"Run {MIN_ROUNDS} rounds, without a cache and with one.", rests_on)
    missed = workload.target_s is not None and request.cached.request_s > workload.target_s
    shorter = beside.whole.low is not None and beside.whole.low > 1
    words = f"{request_words(request)} {target_words(request, workload.target_s)}".rstrip()
    return Evidence(9, "yes" if shorter and not missed else "no", words, rests_on, request=request)


def _once(result: ApplicationResult, calls: str) -> Evidence:
    """Row 9 of a program that was watched once: where its time goes is known, and what another cache does to it is not."""
    script, cached = result.watched.script, result.watched.cached
    strategy = _strategy(cached, [call.cache_class for call in result.watched.calls])
    times = RequestTimes(result.spec.program, script.other_s, None, script.generation_s, strategy)
    request = CompleteRequest(None if cached else times, times if cached else None)
    share = "" if times.share is None else f" ({100 * times.share:.0f} %)"
    words = (
        f"Generation is {format_seconds(times.generation_s)} of {format_seconds(times.request_s)}{share}. What the whole "
        f"gains: kvdemo watch --compare {'none,as-is' if cached else 'as-is,dynamic'} tells."
    )
    return Evidence(9, "not yet", words, calls, request=request)


def _times(result: ApplicationResult, key: str) -> RequestTimes | None:
    """Medians over the runs that count."""
    runs = [run for run in result.runs if run.arm == key and run.counts]
    generation_s, wall_s = median(run.generation_s for run in runs), median(run.wall_s for run in runs)
    if generation_s is None or wall_s is None:
        return None
    arm = next(arm for arm in result.arms if arm.key == key)
    strategy = _strategy(arm.cached, arm.cache_classes) if key == AS_IS else key
    return RequestTimes(result.label(key), max(0.0, wall_s - generation_s), None, generation_s, strategy)


def _strategy(cached: bool | None, classes: Sequence[str | None]) -> str | None:
    """The strategy that a program has by itself; None where it is none of the usual ones."""
    if cached is False:
        return NO_CACHE
    return (
        {"DynamicCache": "dynamic", "StaticCache": "static"}.get(classes[0] or "") if len(set(classes)) == 1 else None
    )


def _lengths(result: ApplicationResult) -> str:
    """ "3 calls of 200 to 241 prompt tokens and 50 new ones"."""
    calls = result.watched.calls
    many = "one call" if len(calls) == 1 else f"{format_count(len(calls))} calls"
    prompt, new = (_range([getattr(call, name) for call in calls]) for name in ("prompt_tokens", "new_tokens"))
    return f"{many} of {prompt} prompt tokens and {new} new ones"


def _range(found: Sequence[int | None]) -> str:
    known = sorted(value for value in found if value is not None)
    if not known or known[0] == known[-1]:
        return format_count(known[0] if known else None)
    return f"{format_count(known[0])} to {format_count(known[-1])}"
