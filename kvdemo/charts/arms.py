"""A comparison's arms as charts want them: summary, runs that count, the palette's meaning, a label that is safe to draw.

Knows nothing about plotly or pandas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from kvdemo.charts.plain_text import clean
from kvdemo.experiments import summary as summaries
from kvdemo.experiments.comparison import AGAIN, ArmSummary, ComparisonResult
from kvdemo.facts.records import RunRecord
from kvdemo.palette import MEANINGS, Meaning, of_strategy

__all__ = ["Arm", "arms_of", "key_classes", "meaning_of"]


def meaning_of(strategy: str | None) -> Meaning:
    """How a strategy is drawn; one that the palette does not know (an old or foreign result, an engine) in grey."""
    try:
        return of_strategy(strategy or "")
    except KeyError:
        return MEANINGS["weights"]


def key_classes(arm: str) -> str:
    """The style sheet's classes for the arm's mark: its strategy's colour, dotted where it is the same once more."""
    return f"kv-of-{arm.removesuffix(AGAIN)}" + (" kv-again" if arm.endswith(AGAIN) else "")


@dataclass(frozen=True)  # no slots: what is worked out once is kept
class Arm:
    """One strategy that has at least one run to draw, its counted runs in the order of the rounds."""

    summary: ArmSummary
    runs: tuple[RunRecord, ...]

    @property
    def label(self) -> str:
        """As it stands within a sentence, escaped: "dynamic cache", "8-bit float cache"."""
        label = self.summary.label
        return clean(label[:1].lower() + label[1:] if label[1:2].islower() else label, max_chars=32)

    @property
    def meaning(self) -> Meaning:
        key = self.summary.strategy
        meaning = meaning_of(key.removesuffix(AGAIN))
        return replace(meaning, dash="dot", marker="x") if key.endswith(AGAIN) else meaning

    @cached_property
    def token_times_s(self) -> tuple[float, ...]:
        """When does token i arrive? Median over the rounds, s, for as many tokens as every round made; () where a round
        does not say it token by token."""
        return tuple(median(times) for times in zip(*(run.times_by_token_s for run in self.runs), strict=False))


def arms_of(result: ComparisonResult) -> tuple[Arm, ...]:
    """The arms with at least one token to draw, in the order of the request."""
    arms = []
    for summary in summaries.arms(result):
        runs = tuple(run for run in result.counted(summary.strategy) if run.token_times_s)
        if runs:
            arms.append(Arm(summary, tuple(sorted(runs, key=lambda run: run.round or 0))))
    return tuple(arms)
