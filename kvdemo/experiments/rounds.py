"""Rounds over arms: which run comes next, what is expected, when it is enough. One loop for every question.

An arm is whatever can be run again and again beside another: a strategy, a prefix kept or not, a way of serving many
requests. It measures budgets and time left by the clock it is given; figures come from what the arms hand over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kvdemo.experiments.attempt import Place, Stop, ends_a_wake_up, never
from kvdemo.experiments.comparison import StopReason
from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.facts.requests import MAX_ROUNDS
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress

__all__ = ["WARMUP_TOKENS", "Arm", "Limits", "Rounds", "Step", "rotated"]

Step = Progress | ArmEvent | ArmFailed

WARMUP_TOKENS = 8


class Outcome(Protocol):
    """What a run of an arm hands over; "ok", "cancelled" (somebody stopped it) or another word: it counts in nothing."""

    @property
    def status(self) -> str: ...


O = TypeVar("O", bound=Outcome)  # noqa: E741 - an outcome
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arm(Generic[O]):
    """One of the things compared.

    play        runs it once, at a place: yields the run's steps, returns its outcome
    warming     what its warm-up is called
    expected_s  (outcome, seconds it took) -> seconds its next timed run will take; differs for a short warm-up
    """

    key: str
    label: str
    play: Callable[[Place], Generator[Step, None, O]]
    warming: str = "warming up, not timed"
    expected_s: Callable[[O, float], float] = lambda _, took_s: took_s


@dataclass(frozen=True, slots=True)
class Limits:
    """When rounds end.

    rounds          as many as are asked for
    budget_s        None: exactly `rounds`; else what the person allows
    until_clear     with a budget: go on after `rounds` (at least six) until this says that it is enough
    limit_s         the operator's: no new run begins after it
    """

    rounds: int
    budget_s: float | None = None
    until_clear: Callable[[], bool] | None = None
    limit_s: float | None = None


class Rounds(Generic[O]):
    """The rounds of one comparison while they run: the outcomes so far and the time they took."""

    def __init__(
        self,
        arms: Sequence[Arm[O]],
        limits: Limits,
        *,
        clock: Callable[[], float],
        stop: Stop = never,
        name: str = "round",
    ) -> None:
        """name: what a round is called ("round", "question")."""
        self.arms, self.limits, self.clock, self.stop, self.name = tuple(arms), limits, clock, stop, name
        self.outcomes: list[tuple[Arm[O], Place, O]] = []
        self.misses = {arm.key: 0 for arm in arms}
        self.expected_s: dict[str, float] = {}
        self.started = clock()
        self.num_planned = None if limits.until_clear else len(self.arms) * limits.rounds

    def go(
        self, warm_up: bool = True, after_round: Callable[[int], Iterable[T]] = lambda _: ()
    ) -> Generator[Step | T, None, StopReason]:
        """All runs, one after the other; returns why they ended: rounds, clear, budget, stopped, limit or failed.

        Each round runs every arm once and the order rotates. after_round: what is known after a round, to be passed on.
        An arm that failed its warm-up, or failed twice, is not run again.
        """
        if warm_up:
            if self.num_planned is not None:
                self.num_planned += len(self.arms)
            for order, arm in enumerate(self.arms, 1):
                if reason := (yield from self._one(arm, Place(0, order, warmup=True, arm=arm.key))):
                    return reason
        number = 0
        while True:
            number += 1
            for order, arm in enumerate(rotated(self.arms, number), 1):
                reason = None
                if self.misses[arm.key] < 2:
                    reason = yield from self._one(arm, Place(number, order, arm=arm.key))
                if reason:
                    yield from after_round(number)
                    return reason
            yield from after_round(number)
            if reason := self._enough(number):
                return reason

    def of_round(self, number: int) -> dict[str, O]:
        """What each arm handed over in this round; 0 is the warm-up."""
        return {arm.key: outcome for arm, place, outcome in self.outcomes if place.round == number}

    def alive(self) -> list[Arm[O]]:
        """The arms that are still run."""
        return [arm for arm in self.arms if self.misses[arm.key] < 2]

    def progress(self, phase: str, left_s: float | None = None) -> Progress:
        return Progress(phase, len(self.outcomes), self.num_planned, self.elapsed_s(), left_s)

    def elapsed_s(self) -> float:
        return self.clock() - self.started

    def _one(self, arm: Arm[O], place: Place) -> Generator[Step, None, StopReason | None]:
        """One run with its progress; returns why the rounds must end here, None when they go on."""
        if self.stop():
            return "stopped"
        if late := self._late(place):
            return late
        phase = self._phase(arm, place)
        began = self.clock()
        yield self.progress(phase, self._left_s(arm, place, 0.0))
        playing = arm.play(place)
        try:
            while True:
                step = next(playing)
                yield step
                if isinstance(step, ArmEvent) and ends_a_wake_up(step.event):
                    yield self.progress(phase, self._left_s(arm, place, self.clock() - began))
        except StopIteration as end:
            outcome: O = end.value
        finally:
            playing.close()
        self.outcomes.append((arm, place, outcome))
        if outcome.status == "ok":
            self.expected_s[arm.key] = arm.expected_s(outcome, self.clock() - began)
        elif outcome.status == "cancelled":
            return "stopped"
        else:
            self.misses[arm.key] += 2 if place.warmup else 1
        return None

    def _late(self, place: Place) -> StopReason | None:
        """Is it too late for another run? A budget without "until clear" ends between rounds."""
        named: list[tuple[float | None, StopReason]] = [(self.limits.limit_s, "limit")]
        if self.limits.until_clear is None and not place.warmup and place.order == 1:
            named.append((self.limits.budget_s, "budget"))
        over = [(allowed_s, why) for allowed_s, why in named if allowed_s is not None and self.elapsed_s() >= allowed_s]
        return min(over)[1] if over else None

    def _phase(self, arm: Arm[O], place: Place) -> str:
        if place.warmup:
            return f"{arm.label}: {arm.warming}"
        of = "" if self.limits.until_clear else f" of {self.limits.rounds}"
        return f"{arm.label}: {self.name} {place.round}{of}"

    def _left_s(self, arm: Arm[O], place: Place, running_s: float) -> float | None:
        """Time left by what each arm's last run took, None while an arm has not run."""
        if self.limits.until_clear and self.limits.budget_s is not None:
            return max(0.0, self.limits.budget_s - self.elapsed_s())
        alive = self.alive()
        if place.warmup or any(other.key not in self.expected_s for other in alive):
            return None
        coming = rotated(self.arms, place.round)[place.order :]
        this_s = max(0.0, self.expected_s[arm.key] - running_s)
        later_s = sum(self.expected_s[other.key] for other in coming if other in alive)
        rounds_s = (self.limits.rounds - place.round) * sum(self.expected_s[other.key] for other in alive)
        return this_s + later_s + rounds_s

    def _enough(self, number: int) -> StopReason | None:
        """Why no further round is needed after this one, None when one is."""
        alive = self.alive()
        if self.arms[0] not in alive or len(alive) < min(2, len(self.arms)):
            return "failed"
        if self.limits.until_clear is None:
            return "rounds" if number >= self.limits.rounds else None
        if number < max(MIN_ROUNDS, self.limits.rounds):
            return None
        if self.limits.until_clear():
            return "clear"
        if self.limits.budget_s is not None and self.elapsed_s() >= self.limits.budget_s:
            return "budget"
        return "rounds" if number >= MAX_ROUNDS else None


def rotated(arms: Sequence[T], number: int) -> tuple[T, ...]:
    """The order of round `number` (from 1): AB, BA, AB ...; ABC, BCA, CAB ..."""
    shift = (number - 1) % len(arms)
    return (*arms[shift:], *arms[:shift])
