"""The rounds of one comparison while they run: which run comes next, what is known so far, when it is enough.

It measures budgets and time left by the clock it is given; the figures of a result come from the runs' own records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from kvdemo.experiments.attempt import Place, Run, Stop, attempt, ends_a_wake_up
from kvdemo.experiments.statistics import MIN_ROUNDS, is_clear, paired_ratios
from kvdemo.experiments.summary import first_difference, paired
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import MAX_ROUNDS, CompareSpec, GenerationRequest
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress

__all__ = ["CacheSlots", "Course", "Step", "rotated"]

Step = Progress | ArmEvent | ArmFailed
CacheSlots = Callable[[int, int], int]
"""(prompt tokens, new tokens) -> positions that a cache of fixed size should reserve."""

WARMUP_TOKENS = 8
CLEAR_WITHIN = 0.05


def rotated(rows: Sequence[StrategyRow], number: int) -> tuple[StrategyRow, ...]:
    """The order of round `number` (from 1): AB, BA, AB ...; ABC, BCA, CAB ..."""
    shift = (number - 1) % len(rows)
    return (*rows[shift:], *rows[:shift])


class Course:
    """The rounds of one comparison while they run: the records so far and the time they took."""

    def __init__(
        self,
        spec: CompareSpec,
        rows: tuple[StrategyRow, ...],
        run: Run,
        clock: Callable[[], float],
        stop: Stop,
        prompt_tokens: int | None,
        cache_slots: CacheSlots | None,
        limit_s: float | None,
    ) -> None:
        self.spec, self.rows, self.run, self.clock, self.stop = spec, rows, run, clock, stop
        self.cache_slots, self.limit_s = cache_slots, limit_s
        self.prompt_tokens = prompt_tokens
        self.runs: list[RunRecord] = []
        self.misses = dict.fromkeys(spec.strategies, 0)
        self.expected_s: dict[str, float] = {}
        self.started = clock()
        self.num_planned = len(rows) * spec.rounds if spec.time_budget_s is None else None

    def go(self, warm_up: bool) -> Generator[Step, None, str]:
        """All runs, one after the other; returns why they ended (a word of STOP_REASONS)."""
        if warm_up:
            if self.num_planned is not None:
                self.num_planned += len(self.rows)
            for order, row in enumerate(self.rows, 1):
                if reason := (yield from self.one(row, Place(0, order, warmup=True))):
                    return reason
        number = 0
        while True:
            number += 1
            for order, row in enumerate(rotated(self.rows, number), 1):
                if self.misses[row.key] < 2 and (reason := (yield from self.one(row, Place(number, order)))):
                    return reason
            if reason := self.enough(number):
                return reason

    def one(self, row: StrategyRow, place: Place) -> Generator[Step, None, str | None]:
        """One run with its progress; returns why the comparison must end here, None when it goes on."""
        if self.stop():
            return "stopped"
        if self.limit_s is not None and self.elapsed_s() >= self.limit_s:
            return "limit"
        phase = self.phase(row, place)
        began = self.clock()
        yield self.progress(phase, row, place)
        attempted = attempt(self.run, self.request(row, place), place)
        try:
            while True:
                step = next(attempted)
                yield step
                if isinstance(step, ArmEvent) and ends_a_wake_up(step.event):
                    yield self.progress(phase, row, place, running_s=self.clock() - began)
        except StopIteration as end:
            record: RunRecord = end.value
        finally:
            attempted.close()
        self.runs.append(record)
        self.prompt_tokens = self.prompt_tokens or record.prompt_tokens or None
        if record.status == "ok":
            self.expected_s[row.key] = self.expectation(record, self.clock() - began)
        elif record.status == "cancelled":
            return "stopped"
        else:
            self.misses[row.key] += 2 if place.warmup else 1
        return None

    def request(self, row: StrategyRow, place: Place) -> GenerationRequest:
        slots, new_tokens = None, self.spec.max_new_tokens
        if row.fixed_size and self.cache_slots is not None and self.prompt_tokens is not None:
            slots = self.cache_slots(self.prompt_tokens, new_tokens)
        # A short warm-up has the shapes of a timed run, except where the cache is cut to the request or code is
        # compiled for what it meets.
        if place.warmup and not row.compiles and (slots is not None or not row.fixed_size):
            new_tokens = min(new_tokens, WARMUP_TOKENS)
        return GenerationRequest(
            prompt=self.spec.prompt_of_run(),
            max_new_tokens=new_tokens,
            strategy=row.key,
            sampling=self.spec.sampling,
            fixed_length=self.spec.fixed_length,
            cache_slots=slots,
        )

    def phase(self, row: StrategyRow, place: Place) -> str:
        if place.warmup and row.compiles:
            return f"{row.label}: compiling, about a minute the first time"
        if place.warmup:
            return f"{row.label}: warming up, not timed"
        of = "" if self.spec.time_budget_s is not None else f" of {self.spec.rounds}"
        return f"{row.label}: round {place.round}{of}"

    def progress(
        self, phase: str, row: StrategyRow | None = None, place: Place | None = None, running_s: float = 0.0
    ) -> Progress:
        left_s = self.left_s(row, place, running_s) if row and place else None
        return Progress(phase, len(self.runs), self.num_planned, self.elapsed_s(), left_s)

    def left_s(self, row: StrategyRow, place: Place, running_s: float) -> float | None:
        """Time left by what each arm's last run took, None while an arm has not run."""
        if self.spec.time_budget_s is not None:
            return max(0.0, self.spec.time_budget_s - self.elapsed_s())
        alive = [other for other in self.rows if self.misses[other.key] < 2]
        if place.warmup or any(other.key not in self.expected_s for other in alive):
            return None
        coming = rotated(self.rows, place.round)[place.order :]
        this_s = max(0.0, self.expected_s[row.key] - running_s)
        later_s = sum(self.expected_s[other.key] for other in coming if other in alive)
        rounds_s = (self.spec.rounds - place.round) * sum(self.expected_s[other.key] for other in alive)
        return this_s + later_s + rounds_s

    def expectation(self, record: RunRecord, took_s: float) -> float:
        """How long the arm's next timed run will take, a short warm-up drawn out to the full length."""
        missing = self.spec.max_new_tokens - record.new_tokens if record.warmup else 0
        return took_s + missing * (record.tpot_s or 0.0)

    def enough(self, number: int) -> str | None:
        """Why no further round is needed after this one, None when one is."""
        alive = [row for row in self.rows if self.misses[row.key] < 2]
        if self.rows[0] not in alive or len(alive) < 2:
            return "failed"
        if self.spec.time_budget_s is None:
            return "rounds" if number >= self.spec.rounds else None
        if number < max(MIN_ROUNDS, self.spec.rounds):
            return None
        if all(is_clear(self.ratios(row.key), CLEAR_WITHIN) for row in alive[1:]):
            return "clear"
        if self.elapsed_s() >= self.spec.time_budget_s:
            return "budget"
        return "rounds" if number >= MAX_ROUNDS else None

    def ratios(self, candidate: str) -> tuple[float, ...]:
        pairs = paired(self.runs, self.rows[0].key, candidate)
        return paired_ratios((one.generation_s, other.generation_s) for one, other in pairs)

    def to_measure_gaps(self, dtype: str) -> list[StrategyRow]:
        """Candidates whose tokens may differ from the baseline's without a fault, and that have made some."""
        exact = self.rows[0].exact and dtype == "float32"
        return [row for row in self.rows[1:] if not (exact and row.exact) and self.common_tokens(row.key)]

    def common_tokens(self, candidate: str) -> tuple[int, ...]:
        """The tokens of the first paired round up to the first difference."""
        for one, other in paired(self.runs, self.rows[0].key, candidate):
            return one.token_ids[: first_difference(one.token_ids, other.token_ids)]
        return ()

    def elapsed_s(self) -> float:
        return self.clock() - self.started
