"""What requests served together say to "Ready to decide?": does it hold with as many users as somebody expects?"""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.experiments.evidence import Evidence, rounds_words
from kvdemo.experiments.pieces import in_sentence
from kvdemo.facts.units import format_count, format_seconds, format_speed
from kvdemo.facts.workload import Workload
from kvdemo.questions.load.spec import LoadResult, mode_of
from kvdemo.questions.load.summary import summarise_mode

__all__ = ["evidence"]


def evidence(result: LoadResult, workload: Workload) -> Sequence[Evidence]:
    """Row 7: of the ways that use a cache the fastest. Where nobody says how many users, it is as many as were asked for."""
    cached = [key for key in result.spec.modes if mode_of(key).strategy != "none"]
    if not cached or not result.points:
        return ()
    wanted = workload.at_once or result.spec.requests
    point = next((point for point in result.sweep if point.requests >= wanted), None)
    if point is None:
        most = format_count(result.sweep[-1].requests)
        return (Evidence(7, "not yet", f"Measured with up to {most} at once; you expect {format_count(wanted)}."),)
    served = [one for key in cached if (one := summarise_mode(result.spec, point, key)).throughput_tokens_per_s]
    if not served:
        return (Evidence(7, "no", f"With {format_count(point.requests)} at once not every request was answered."),)
    best = max(served, key=lambda one: one.throughput_tokens_per_s or 0.0)
    words = (
        f"{format_count(point.requests)} at once, {in_sentence(mode_of(best.mode).label)}: "
        f"{format_speed(best.throughput_tokens_per_s)} together"
    )
    rests_on = rounds_words(best.rounds).replace("paired ", "")
    if best.failed:
        return (Evidence(7, "no", f"{words}, and {format_count(best.failed)} failed.", rests_on),)
    if workload.target_s is None:
        return (Evidence(7, "yes", f"{words}.", rests_on),)
    if best.request_s is None:
        return (Evidence(7, "not yet", f"{words}; how long a request took is not known.", rests_on),)
    slowest_s = best.request_s.p95 + (workload.other_s or 0.0)
    met = slowest_s <= workload.target_s
    target = f"19 of 20 requests in {format_seconds(slowest_s)}, target {format_seconds(workload.target_s)}"
    return (Evidence(7, "yes" if met else "no", f"{words}; {target}.", rests_on),)
