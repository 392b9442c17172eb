"""One comparison in words: how much faster, same tokens or not, what it held. Pure.

A sentence is a list of pieces (text, strong); words.py puts them together and adds what concerns the whole result.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.experiments.comparison import Comparison, ComparisonResult
from kvdemo.experiments.pieces import Pieces, capital, tokens_word
from kvdemo.experiments.statistics import median
from kvdemo.experiments.summary import paired
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds, format_speed

__all__ = ["Finding", "label"]

FEW_TOKENS = 64  # below it a short prompt leaves little to recompute
NO_DIFFERENCE = 0.05  # in a first look, ratios this near to 1 are called no difference


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison, turned round where the baseline is the arm with a cache and the candidate is not."""

    result: ComparisonResult
    comparison: Comparison
    subject: str
    other: str
    ratio: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, result: ComparisonResult, comparison: Comparison) -> Finding:
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
        noise = self.result.noise
        unclear = (
            abs(self.ratio - 1) <= NO_DIFFERENCE
            if first or self.low is None or self.high is None
            else self.low <= 1 <= self.high
        ) or (noise is not None and noise.covers(self.ratio))
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
        made_slower = f"{capital(self._subject_name())} made this slower: " if slower else ""
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
            return [(" ", False), (f"Same {format_count(mine)} {tokens_word(mine)}.", True)]
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
        gap = (
            ""
            if verdict.largest_gap is None
            else f" (largest difference of logits up to there {verdict.largest_gap:.2g})"
        )
        return [*pieces, (f" The tokens {where}{gap}: {self._why_different()}. This is no test of quality.", False)]

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
        runs = [run for pair in pairs for run in pair if run.arm_key == strategy]
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
        noise = self.result.noise
        if noise is not None and noise.covers(self.ratio):
            return f" Two identical runs differ by up to {noise.words()} on this machine."
        made = self._new_tokens(self.subject)
        if self.other == "none" and made <= FEW_TOKENS:
            return f" At {made} new {tokens_word(made)} there is little to recompute; try a longer prompt or answer."
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
        return "the cache" if self._is_simple() else label(self.result, self.subject)

    def _is_simple(self) -> bool:
        return self.other == "none" and len(self.result.spec.strategies) == 2


def _with(finding: Finding) -> str:
    return "with the cache" if finding._is_simple() else f"with {label(finding.result, finding.subject)}"


def _without(finding: Finding) -> str:
    return "without" if finding.other == "none" else f"with {label(finding.result, finding.other)}"


def label(result: ComparisonResult, strategy: str) -> str:
    """The strategy's label inside a sentence: "dynamic cache", but "FP8 cache"."""
    label = result.row(strategy).label
    return label[:1].lower() + label[1:] if label[1:2].islower() else label
