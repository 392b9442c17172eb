"""Is my endpoint caching? Short and long prompts, new and known beginnings, several at once: in rounds, within a budget.

An engine comes as a bench; what is judged from the times stands in judgement.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from kvdemo.errors import KvdemoError
from kvdemo.experiments.attempt import Place, attempt
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.comparison import StopReason
from kvdemo.experiments.rounds import Arm, Limits, Outcome, Rounds, Step
from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.facts.load import PAGED, Arrival, ManyFinished, ManyRecord, ManyRequest
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import MAX_NEW_TOKENS, GenerationRequest, Prompt
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress
from kvdemo.questions.endpoint.budget import Budget
from kvdemo.questions.endpoint.prompts import COUNT, END, TOKENS_A_WORD, Beginning, short
from kvdemo.questions.endpoint.spec import (
    AT_ONCE,
    SUBJECTS,
    AtOnce,
    Ended,
    EndpointResult,
    EndpointSpec,
    Judged,
    Subject,
)
from kvdemo.questions.endpoint.timings import judgements, step_of

__all__ = ["endpoint"]

O = TypeVar("O", bound=Outcome)  # noqa: E741 - an outcome

# Tokens of a long prompt: the first that takes clearly longer than a short one. Not below two of the largest pages.
LENGTHS = (640, 1280, 1920, 3840, 7680)
SMALLEST = 192  # where the first of them is too long for the server
TIMES_SHORT, TIMES_STEP = 3.0, 3.0  # what "clearly longer" is: of the short prompt's first token, and steps on top
SHORT_TOKENS = 100  # of a short prompt with its template, until the server has said how many
FEW_WORDS = 64  # of a prompt that only tells, beside a short one, how many tokens a word has
LONG_PROMPTS = 3 * MIN_ROUNDS + 1  # that are sent of the chosen length: long, cold, warm, and one to begin with
MOST_ROUNDS, MOST_PAIRS, LOOK_EVERY = 2 * MIN_ROUNDS, 3 * MIN_ROUNDS, 3
TOLD_EVERY_S = 0.5
MARGIN_TOKENS = 64  # of an answer, and of a template
LOOSE_TOKENS = 16  # by which two prompts of one length may differ
MORE_WORDS = FEW_WORDS + len(END.split()) - len(COUNT.split())  # than in a short prompt
REQUESTS = 5 + 4 * MIN_ROUNDS + 1 + MIN_ROUNDS * sum(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What fits this server: words of a long prompt (0: none can be had) and their tokens; tokens of each kind of answer."""

    words: int
    long_tokens: int
    short_answer: int
    long_answer: int
    many_answer: int


def endpoint(spec: EndpointSpec, bench: Bench) -> Iterator[Step | Judged | EndpointResult]:
    """What does the engine do, as far as its times tell? Every subject is yielded as soon as it is judged.

    InvalidRequest where the first request is refused (a wrong model, a wrong key ...).
    """

    def steps() -> Generator[Step | Judged | EndpointResult, None, None]:
        check = Check(spec, bench)
        sizes = yield from check.sized()
        for subject, measure in check.parts(sizes):
            yield from measure()
            yield Judged(subject, judgements(check.result())[subject])
        yield check.result()

    return steps()


class Check:
    """The requests of one question, and what may still be spent on it."""

    def __init__(self, spec: EndpointSpec, bench: Bench) -> None:
        self.spec, self.bench = spec, bench
        self.budget = Budget(spec, bench.clock, bench.limit_s)
        self.tokens_a_word = TOKENS_A_WORD
        self.short_tokens = SHORT_TOKENS
        self.lengths: list[RunRecord] = []
        self.runs: list[RunRecord] = []
        self.at_once: list[AtOnce] = []
        self.ends: list[Ended] = []
        self.told, self.told_s = ("", 0), 0.0

    def result(self) -> EndpointResult:
        """Everything so far."""
        ended: Ended = next((why for why in ENDS if why in self.ends), "measured")
        return EndpointResult(
            spec=self.spec,
            model=self.bench.model,
            environment=self.bench.environment,
            lengths=tuple(self.lengths),
            runs=tuple(self.runs),
            at_once=tuple(self.at_once),
            requests_sent=self.budget.requests_sent,
            tokens_used=self.budget.tokens_used,
            stopped_because=ended,
            page_tokens=self.bench.page_tokens,
        )

    def parts(self, sizes: Sizes | None) -> list[tuple[Subject, Callable[[], Iterator[Step]]]]:
        """The three parts in their order. Each leaves time for the ones behind it."""

        def skip() -> Iterator[Step]:
            return iter(())

        if sizes is None:
            return [(subject, skip) for subject in SUBJECTS]
        long = sizes.words > 0
        return [
            ("kv_cache", (lambda: self.short_and_long(sizes, self.budget.left_s / 2)) if long else skip),
            ("prefix_reuse", (lambda: self.cold_and_warm(sizes, self.budget.left_s / 2)) if long else skip),
            ("batching", lambda: self.together(sizes, self.budget.left_s)),
        ]

    # --- which lengths can be told apart? ----------------------------------------------------------------------------

    def sized(self) -> Generator[Step, None, Sizes | None]:
        """None where not even a short prompt is answered. The first request is not timed: it may have to wake the server."""
        first = yield from self.length(Beginning(FEW_WORDS).prompt(), 2, SMALLEST, warmup=True)
        if first is None:
            return None
        alone = yield from self.length(short(), 16, self.short_tokens)
        if alone is None or not alone.ttft_s:
            return None
        if first.prompt_tokens and alone.prompt_tokens:
            self.short_tokens = alone.prompt_tokens
            self.tokens_a_word = max(1.0, (first.prompt_tokens - alone.prompt_tokens) / MORE_WORDS)
        step_s = step_of(alone) or 0.0
        clearly_s = max(TIMES_SHORT * alone.ttft_s, alone.ttft_s + TIMES_STEP * step_s)
        words, long = (yield from self.longest(clearly_s)) or (0, alone)
        # Where requests are served one after the other, all those of several at once must fit into the last third of the time.
        many_s = min(1.0, self.budget.left_s / 3 / (MIN_ROUNDS * sum(AT_ONCE)) - alone.ttft_s)
        return Sizes(
            words=words,
            long_tokens=long.prompt_tokens or self.tokens_of(words),
            short_answer=_between(6, 3.0 / step_s if step_s else 96, 96),
            long_answer=_between(6, 3.0 / (long.ttft_s or 1.0), 32),
            many_answer=_between(6, many_s / step_s if step_s else 48, 48),
        )

    def longest(self, clearly_s: float) -> Generator[Step, None, tuple[int, RunRecord] | None]:
        """The first length whose first token takes that long, else the longest that can be had; its words and its run."""
        found: tuple[int, RunRecord] | None = None
        for tokens in LENGTHS:
            run = yield from self.long(tokens, found)
            if run is None:
                break
            found = run
            if (run[1].ttft_s or 0.0) >= clearly_s:
                break
        if found is None and not self.ended():
            found = yield from self.long(SMALLEST, None)
        if found is None and all(run.status == "ok" for run in self.lengths):
            self.spent()
        return found

    def long(
        self, tokens: int, before: tuple[int, RunRecord] | None
    ) -> Generator[Step, None, tuple[int, RunRecord] | None]:
        """A fresh prompt of so many tokens; None where all that would be sent of this length do not fit, or it is refused.

        before: a shorter one, which tells how long they will take.
        """
        limit = self.bench.model.context_limit
        takes_s = 0.0
        if before is not None:
            words, shorter = before
            takes_s = (shorter.ttft_s or 0.0) * tokens / (shorter.prompt_tokens or self.tokens_of(words))
        if (
            (limit is not None and tokens + MARGIN_TOKENS > limit)
            or LONG_PROMPTS * (tokens + MARGIN_TOKENS) > 0.5 * self.budget.left_tokens
            or LONG_PROMPTS * takes_s > 0.6 * self.budget.left_s
        ):
            return None
        words = max(1, int((tokens - self.short_tokens) / self.tokens_a_word))
        run = yield from self.length(Beginning(words).prompt(), 2, tokens)
        if run is None or not run.ttft_s:
            return None
        if run.prompt_tokens:
            self.tokens_a_word = max(1.0, (run.prompt_tokens - self.short_tokens) / words)
        return words, run

    def tokens_of(self, words: int) -> int:
        """Of a prompt with a beginning of so many words: what stands around it is about as long as a short prompt."""
        return self.short_tokens + int(words * self.tokens_a_word)

    def length(
        self, prompt: Prompt, answer: int, prompt_tokens: int, *, warmup: bool = False
    ) -> Generator[Step, None, RunRecord | None]:
        """One request outside the rounds; None where it was not answered, or nothing may be spent any more."""
        if self.ended(1, prompt_tokens + answer):
            return None
        yield self.progress("finding lengths that can be told apart")
        place = Place(len(self.lengths), 1, warmup=warmup, arm="length")
        run = yield from self.send(prompt, answer, prompt_tokens, place)
        self.lengths.append(run)
        if run.status == "ok":
            return run
        if prompt_tokens <= SMALLEST or self.runs:  # not just a prompt that is too long here
            self.ends.append("failed")
        return None

    # --- the rounds --------------------------------------------------------------------------------------------------

    def short_and_long(self, sizes: Sizes, allowed_s: float) -> Iterator[Step]:
        """Fresh prompts of either length, each with an answer."""

        def play(key: str) -> Callable[[Place], Generator[Step, None, RunRecord]]:
            def one(place: Place) -> Generator[Step, None, RunRecord]:
                if key == "short":
                    return (yield from self.send(short(), sizes.short_answer, self.short_tokens, place))
                fresh = Beginning(sizes.words).prompt()
                return (yield from self.send(fresh, sizes.long_answer, sizes.long_tokens, place))

            return one

        arms = [Arm("short", "A short prompt", play("short")), Arm("long", "A long prompt", play("long"))]
        most = max(self.short_tokens + sizes.short_answer, sizes.long_tokens + sizes.long_answer)
        return self.rounds("kv_cache", arms, 1, most, allowed_s, self.runs)

    def cold_and_warm(self, sizes: Sizes, allowed_s: float) -> Iterator[Step]:
        """A beginning that is new, and the one that was sent last with another end."""
        last: list[Beginning] = []

        def cold(place: Place) -> Generator[Step, None, RunRecord]:
            new = Beginning(sizes.words)
            run = yield from self.send(new.prompt(), 3, sizes.long_tokens, place)
            if run.status == "ok":  # else the server may not have seen it
                last[:] = [new]
            return run

        def warm(place: Place) -> Generator[Step, None, RunRecord]:
            return (yield from self.send(last[0].prompt(), 3, sizes.long_tokens, place))

        def steps() -> Iterator[Step]:
            first = Beginning(sizes.words)
            if (yield from self.length(first.prompt(), 3, sizes.long_tokens)) is None:
                return
            last.append(first)
            arms = [Arm("warm", "A known beginning", warm), Arm("cold", "A new beginning", cold)]
            yield from self.rounds("prefix_reuse", arms, 1, sizes.long_tokens + 3, allowed_s, self.runs)

        return steps()

    def together(self, sizes: Sizes, allowed_s: float) -> Iterator[Step]:
        """1, 2, 4 and 8 short requests at once."""
        if self.bench.run_many is None:
            return iter(())

        def play(number: int) -> Callable[[Place], Generator[Step, None, AtOnce]]:
            return lambda place: self.send_together(number, sizes.many_answer, place)

        arms = [Arm(f"{number}", f"{number} at once", play(number)) for number in AT_ONCE]
        most = max(AT_ONCE)
        return self.rounds(
            "batching", arms, most, most * (self.short_tokens + sizes.many_answer), allowed_s, self.at_once
        )

    def rounds(
        self, subject: Subject, arms: list[Arm[O]], requests: int, tokens: int, allowed_s: float, into: list[O]
    ) -> Iterator[Step]:
        """requests, tokens: the most that a run of an arm takes; no run begins that might not fit. into: where runs go.

        Six rounds; where their times leave it open, up to twelve, and up to eighteen where those take few tokens. Looked at
        every third round, not at every one: who looks often enough finds what he looks for.
        """
        spent, number = False, 0
        few = requests == 1 and MOST_PAIRS * len(arms) * tokens <= self.budget.left_tokens / 3
        most = MOST_PAIRS if few else MOST_ROUNDS
        before = list(into)

        def keep(done: int) -> Iterable[Step]:
            nonlocal number
            number = done
            into[:] = [*before, *(outcome for _, _, outcome in rounds.outcomes)]
            return ()

        def enough() -> bool:
            if number % LOOK_EVERY:
                return False
            judged = judgements(self.result())[subject]
            return number >= most or judged.verdict != "cannot tell" or not judged.may_clear_up

        def stop() -> bool:
            nonlocal spent
            spent = not self.budget.allows(requests, tokens + requests * LOOSE_TOKENS)
            return spent or self.bench.stop()

        limits = Limits(MIN_ROUNDS, allowed_s, enough, allowed_s)
        rounds: Rounds[O] = Rounds(arms, limits, clock=self.bench.clock, stop=stop)
        playing = rounds.go(warm_up=False, after_round=keep)
        why: StopReason = "rounds"
        try:
            while True:
                step: Step = next(playing)
                if not isinstance(step, Progress):
                    yield step
                elif self.is_news(step.phase):
                    yield self.progress(f"{SUBJECTS[subject]}. {step.phase}")
        except StopIteration as end:
            why = end.value
        finally:
            playing.close()
            keep(number)
        if why in ("limit", "budget") or (why == "stopped" and spent):
            self.spent()
        elif why == "stopped":
            self.ends.append("stopped")
        elif why == "failed":
            self.ends.append("failed")

    # --- one request -------------------------------------------------------------------------------------------------

    def send(
        self, prompt: Prompt, answer: int, prompt_tokens: int, place: Place
    ) -> Generator[ArmEvent | ArmFailed, None, RunRecord]:
        """One request, counted whatever comes of it."""
        request = GenerationRequest(prompt, answer, fixed_length=True, timeout_s=max(0.1, self.budget.left_s))
        run = yield from attempt(self.bench.run, request, place)
        self.budget.count([run], 1, prompt_tokens + answer)
        return run

    def send_together(self, number: int, answer: int, place: Place) -> Generator[Step, None, AtOnce]:
        """So many at once. What could not be sent, or was not answered, is a record that failed."""
        run_many = self.bench.run_many
        request = ManyRequest(
            "continuous",  # all of them are sent at once: what becomes of them is the server's affair
            tuple(Arrival(short(), answer) for _ in range(number)),
            PAGED,
            timeout_s=max(0.1, self.budget.left_s),
        )
        record = ManyRecord(request.serving, request.strategy, "failed", (), forwards=None, error="it did not say why")
        events = run_many(request) if run_many is not None else iter(())
        try:
            for event in events:
                if isinstance(event, ManyFinished):
                    record = event.record
                else:
                    yield ArmEvent(f"{number}", place.round, place.warmup, event)
        except KvdemoError as error:
            record = replace(record, error=str(error))
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()
        self.budget.count(record.runs, number, self.short_tokens + answer)
        return AtOnce(number, place.round, place.order, record)

    def progress(self, phase: str) -> Progress:
        planned = min(max(REQUESTS, self.budget.requests_sent), self.spec.requests)
        return Progress(phase, self.budget.requests_sent, planned, self.budget.elapsed_s)

    def is_news(self, phase: str) -> bool:
        """Another request, or half a second: a server tells every piece by itself, and a page would draw each."""
        now_s = self.bench.clock()
        if (phase, self.budget.requests_sent) == self.told and now_s - self.told_s < TOLD_EVERY_S:
            return False
        self.told, self.told_s = (phase, self.budget.requests_sent), now_s
        return True

    def ended(self, requests: int = 1, tokens: int = 0) -> bool:
        """Is it over, before so much more is spent?"""
        if self.bench.stop():
            self.ends.append("stopped")
            return True
        if not self.budget.allows(requests, tokens + requests * LOOSE_TOKENS):
            self.spent()
            return True
        return False

    def spent(self) -> None:
        self.ends.append("limit" if self.budget.by_operator and self.budget.left_s <= 0 else "budget")


ENDS: tuple[Ended, ...] = ("stopped", "limit", "budget", "failed")
"""Of several reasons the gravest is told."""


def _between(low: int, value: float, high: int) -> int:
    return max(low, min(high, int(value), MAX_NEW_TOKENS))
