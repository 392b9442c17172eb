"""What does a user notice? A complete request: what is spent elsewhere, prefill and decode, without a cache and with one."""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.gain import NO_CACHE, Gain
from kvdemo.experiments.pieces import factor
from kvdemo.experiments.summary import arms
from kvdemo.facts.units import format_seconds

__all__ = ["CompleteRequest", "RequestTimes", "complete_request", "request_words", "target_words"]


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """One complete request in its parts, s; of a measured arm: medians.

    prefill_s   None: not known apart; then decode_s is the whole generation
    strategy    key of the strategies table; None: not known
    """

    label: str
    other_s: float
    prefill_s: float | None
    decode_s: float
    strategy: str | None = None

    @property
    def generation_s(self) -> float:
        return (self.prefill_s or 0.0) + self.decode_s

    @property
    def request_s(self) -> float:
        return self.other_s + self.generation_s

    @property
    def share(self) -> float | None:
        """Of generation in the complete request; None where that takes no time."""
        return self.generation_s / self.request_s if self.request_s else None


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """The same request without a cache and with one; None: that one was not measured."""

    without: RequestTimes | None
    cached: RequestTimes | None


def complete_request(result: ComparisonResult, gain: Gain, other_s: float) -> CompleteRequest:
    """The medians of both arms, with what a request spends elsewhere."""

    def times(key: str) -> RequestTimes | None:
        arm = next((arm for arm in arms(result) if arm.strategy == key), None)
        if arm is None or arm.ttft_s is None or arm.generation_s is None:
            return None
        prefill_s = arm.ttft_s.median
        return RequestTimes(arm.label, other_s, prefill_s, max(0.0, arm.generation_s.median - prefill_s), key)

    return CompleteRequest(times(NO_CACHE), times(gain.cached))


def request_words(request: CompleteRequest) -> str:
    """ "Generation: 17.3 to 4.1 s. Complete request: 19.1 to 5.9 s, 3.2 times faster, because 1.8 s are spent elsewhere."."""
    without, cached = request.without, request.cached
    if without is None or cached is None or not cached.request_s:
        known = cached or without
        if known is None:
            return ""
        return (
            f"{known.label}: {format_seconds(known.generation_s)} generation, {format_seconds(known.request_s)} in all."
        )
    why = f", because {format_seconds(cached.other_s)} are spent elsewhere" if cached.other_s else ""
    return (
        f"Generation: {_from_to(without.generation_s, cached.generation_s)}. Complete request: "
        f"{_from_to(without.request_s, cached.request_s)}, {factor(without.request_s / cached.request_s)}{why}."
    )


def target_words(request: CompleteRequest, target_s: float | None) -> str:
    """ "Your target of 10.0 s is met with the cache, missed without it."; "" where there is nothing to say."""
    if target_s is None:
        return ""
    said = [
        f"{'met' if times.request_s <= target_s else 'missed'} {which}"
        for times, which in ((request.cached, "with the cache"), (request.without, "without it"))
        if times is not None
    ]
    return f"Your target of {format_seconds(target_s)} is {', '.join(said)}." if said else ""


def _from_to(before_s: float, after_s: float) -> str:
    """ "17.3 to 4.1 s": the unit once where both have the same one."""
    before, after = format_seconds(before_s), format_seconds(after_s)
    number, _, unit = before.partition(" ")
    return f"{number} to {after}" if after.partition(" ")[2] == unit else f"{before} to {after}"
