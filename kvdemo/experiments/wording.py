"""A comparison in words that are as strong as its evidence. Pure: a result in, sentences out.

A sentence is a list of pieces (text, strong), so that the page, the report and the terminal each mark the strong
parts in their own way. It knows nothing of HTML or Markdown.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.experiments.statistics import median
from kvdemo.experiments.summary import paired
from kvdemo.facts.results import Comparison, ComparisonResult
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds, format_speed

__all__ = ["DEMONSTRATION_PROMPT", "Piece", "Pieces", "headline", "plain", "scope_line"]

Piece = tuple[str, bool]
Pieces = list[Piece]

DEMONSTRATION_PROMPT = "The red cat was"
FEW_TOKENS = 64  # below it a short prompt leaves little to recompute
NO_DIFFERENCE = 0.05  # in a first look, ratios this near to 1 are called no difference


def plain(pieces: Pieces) -> str:
    """The words without their marks."""
    return "".join(text for text, _ in pieces)


def scope_line(result: ComparisonResult) -> str:
    """What was this measured on? Model, dtype, machine, prompt."""
    parts = [result.model.name.rsplit("/", 1)[-1], result.model.dtype, _machine(result)]
    prompt_tokens = next((run.prompt_tokens for run in reversed(result.runs) if run.prompt_tokens), None)
    if prompt_tokens is not None:
        parts.append(f"{format_count(prompt_tokens)} prompt {_tokens(prompt_tokens)}")
    return f"{', '.join(parts)}. Other models, machines and lengths give other numbers."


def headline(result: ComparisonResult, candidate: str | None = None) -> Pieces:
    """What came out? About `candidate`, by default the fastest of the arms beside the baseline."""
    known = [item for item in result.comparisons if item.metric == "generation_s" and item.ratio is not None]
    if candidate is not None:
        known = [item for item in known if item.candidate == candidate]
    if not known:
        return [*_nothing(result), *_ending(result)]
    best = max(known, key=lambda item: item.ratio or 0.0)
    finding = _Finding.of(result, best)
    pieces = [
        *finding.time_and_ratio(),
        *finding.tokens(),
        *finding.held(),
        *finding.request(),
        *_other_arms(result, known, best),
        *_ending(result),
    ]
    if finding.num_rounds < 2 or finding.only_range:
        pieces.append((" Enough to go on, not enough to decide: run 6 rounds.", False))
    if result.spec.prompt.strip() == DEMONSTRATION_PROMPT:
        pieces.append((" This is the demonstration prompt. Your decision needs your prompts.", False))
    return pieces


@dataclass(frozen=True, slots=True)
class _Finding:
    """One comparison, turned round where the baseline is the arm with a cache and the candidate is not."""

    result: ComparisonResult
    comparison: Comparison
    subject: str
    other: str
    ratio: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, result: ComparisonResult, comparison: Comparison) -> _Finding:
        ratio, low, high = comparison.ratio or 0.0, comparison.low, comparison.high
        if comparison.candidate == "none" and ratio > 0:
            turned_low, turned_high = (1 / high if high else None), (1 / low if low else None)
            return cls(
                result, comparison, comparison.baseline, comparison.candidate, 1 / ratio, turned_low, turned_high
            )
        return cls(result, comparison, comparison.candidate, comparison.baseline, ratio, low, high)

    @property
    def num_rounds(self) -> int:
        return self.comparison.rounds

    @property
    def only_range(self) -> bool:
        return self.comparison.range_only

    def time_and_ratio(self) -> Pieces:
        first = self.num_rounds < 2 or self.only_range
        unclear = (
            abs(self.ratio - 1) <= NO_DIFFERENCE
            if first or self.low is None or self.high is None
            else self.low <= 1 <= self.high
        )
        per_token = " per token" if self.comparison.per_token else ""
        if unclear:
            start = "First look: no difference we can see" if first else "No difference we can see"
            return [
                (f"{start}: {format_ratio(self.ratio)} times{per_token}", True),
                (f"{self._rounds()}.", False),
                (self._why_nothing(), False),
            ]
        slower = self.ratio < 1
        finding = (
            f"{format_ratio(1 / self.ratio)} times as long{per_token}"
            if slower
            else f"{format_ratio(self.ratio)} times faster{per_token}"
        )
        made_slower = f"{_capital(self._subject_name())} made this slower: " if slower else ""
        if first:
            return [
                ("First look: ", False),
                (f"{made_slower}{finding}", True),
                (f"{self._rounds(turned=slower)}.", False),
            ]
        return [
            (f"{made_slower}{self._both()}: {finding}", True),
            (f"{self._rounds(turned=slower)}.", False),
        ]

    def tokens(self) -> Pieces:
        """Are the tokens the same, and if not, is that a fault?"""
        verdict = self.comparison.verdict
        mine, others = self._new_tokens(self.subject), self._new_tokens(self.other)
        if verdict.same_output:
            return [(" ", False), (f"Same {format_count(mine)} {_tokens(mine)}.", True)]
        pieces: Pieces = []
        if mine != others:
            pieces.append(
                (f" The answers have {format_count(mine)} and {format_count(others)} tokens, "
                 "so the time per token is compared.", False)
            )  # fmt: skip
        if verdict.first_difference is None:
            return pieces
        where = f"differ from token {format_count(verdict.first_difference + 1)} on"
        if verdict.expected_equal:
            return [*pieces, (f" The tokens {where}: in greedy float32 this is a fault.", True)]
        return [*pieces, (f" The tokens {where}: {self._why_different()}. This is no test of quality.", False)]

    def held(self) -> Pieces:
        held = [run.cache_bytes for run in self.result.counted(self.subject)]
        return [(f" It held {format_bytes(held[-1])}.", False)] if held and held[-1] else []

    def request(self) -> Pieces:
        """A gain in the generation that is missing in the complete request is worth a sentence."""
        whole = self.result.comparison(self.comparison.candidate, "request_s")
        if whole is None or whole.ratio is None or self.num_rounds < 2 or self.comparison.candidate == "none":
            return []
        gained = self.low is not None and self.low > 1
        if gained and whole.low is not None and whole.low <= 1:
            return [(f" The complete request shows no such gain: {format_ratio(whole.ratio)} times.", False)]
        return []

    def _both(self) -> str:
        return f"{self._time(self.subject)} {_with(self)}, {self._time(self.other)} {_without(self)}"

    def _time(self, strategy: str) -> str:
        pairs = paired(self.result.runs, self.comparison.baseline, self.comparison.candidate)
        runs = [run for pair in pairs for run in pair if run.strategy == strategy]
        if self.comparison.per_token:
            return format_speed(median(run.decode_tokens_per_s for run in runs))
        return format_seconds(median(run.generation_s for run in runs))

    def _rounds(self, turned: bool = False) -> str:
        if self.low is None or self.high is None or self.num_rounds < 2:
            return " in one round"
        low, high = (1 / self.high, 1 / self.low) if turned and self.low > 0 else (self.low, self.high)
        between = f"{format_ratio(low)} to {format_ratio(high)}"
        if self.only_range:
            return f" in {self.num_rounds} rounds (range {between})"
        return f" ({between} in {self.num_rounds} paired rounds)"

    def _why_nothing(self) -> str:
        made = self._new_tokens(self.subject)
        if self.other == "none" and made <= FEW_TOKENS:
            return f" At {made} new {_tokens(made)} there is little to recompute; try a longer prompt or answer."
        return " Try a longer prompt or answer."

    def _why_different(self) -> str:
        rows = (self.result.row(self.subject), self.result.row(self.other))
        if not all(row.exact for row in rows):
            return "a lossy cache may change them"
        if not self.result.spec.sampling.greedy:
            return "the answers were sampled"
        return f"in {self.result.model.dtype} the two round differently"

    def _new_tokens(self, strategy: str) -> int:
        runs = self.result.counted(strategy)
        return runs[-1].new_tokens if runs else 0

    def _subject_name(self) -> str:
        return "the cache" if self._is_simple() else _label(self.result, self.subject)

    def _is_simple(self) -> bool:
        return self.other == "none" and len(self.result.spec.strategies) == 2


def _with(finding: _Finding) -> str:
    return "with the cache" if finding._is_simple() else f"with {_label(finding.result, finding.subject)}"


def _without(finding: _Finding) -> str:
    return "without" if finding.other == "none" else f"with {_label(finding.result, finding.other)}"


def _other_arms(result: ComparisonResult, known: list[Comparison], best: Comparison) -> Pieces:
    """One short clause for each further arm."""
    clauses = []
    for item in known:
        if item is best or item.ratio is None:
            continue
        between = (
            "" if item.low is None or item.high is None else f" ({format_ratio(item.low)} to {format_ratio(item.high)})"
        )
        clauses.append(f"{_label(result, item.candidate)} {format_ratio(item.ratio)} times{between}")
    return [(f" Beside {_label(result, best.baseline)}: {', '.join(clauses)}.", False)] if clauses else []


def _nothing(result: ComparisonResult) -> Pieces:
    """No round in which two arms finished: say so, and what went wrong."""
    errors = [
        f"{_label(result, run.strategy)} {_ENDED[run.status]}{f' ({run.error})' if run.error else ''}"
        for run in result.runs
        if run.status in _ENDED
    ]
    return [
        ("No round was completed, so there is nothing to compare.", True),
        *([(f" {'; '.join(dict.fromkeys(errors))}.", False)] if errors else []),
    ]


def _ending(result: ComparisonResult) -> Pieces:
    """Why the rounds ended, where that is not simply that all were done; and the runs that count in nothing."""
    done = max((run.round or 0 for run in result.runs if run.counts), default=0)
    spec = result.spec
    sentence = {
        "clear": f" Clear after {done} rounds: the interval is within 5 % of the ratio.",
        "budget": f" The time budget ended after {done} rounds, before the interval was within 5 % of the ratio.",
        "stopped": f" Stopped in round {done + 1}."
        if spec.time_budget_s
        else f" Stopped after {done} of {spec.rounds} rounds.",
        "limit": f" The time limit of this page ended it after {done} {'round' if done == 1 else 'rounds'}.",
    }.get(result.stopped_because, "")
    out = sum(run.status in ("failed", "timed_out") for run in result.runs)
    if out:
        sentence += (
            f" {out} {'run' if out == 1 else 'runs'} did not finish and {'counts' if out == 1 else 'count'} in nothing."
        )
    return [(sentence, False)] if sentence else []


_ENDED = {"failed": "failed", "timed_out": "ran past its time limit", "cancelled": "was stopped"}


def _label(result: ComparisonResult, strategy: str) -> str:
    """The strategy's label inside a sentence: "dynamic cache", but "FP8 cache"."""
    label = result.row(strategy).label
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _machine(result: ComparisonResult) -> str:
    environment = result.environment
    if result.model.device.startswith("cpu"):
        return f"{environment.cpu_cores} CPU {'core' if environment.cpu_cores == 1 else 'cores'}"
    return environment.accelerator or result.model.device


def _tokens(count: int) -> str:
    return "token" if count == 1 else "tokens"
