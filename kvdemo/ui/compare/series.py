"""A further question while it runs: a fold over its steps, and what is known so far, one line per point, prompt or question."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvdemo.components.markup import text
from kvdemo.experiments.finding import factor
from kvdemo.facts.events import TokenEmitted
from kvdemo.facts.questions import GrowthPoint, PrefixPair, PromptResult
from kvdemo.facts.results import ArmEvent, ArmFailed, Comparison, ComparisonResult, Progress
from kvdemo.facts.units import format_count, format_seconds

__all__ = ["SeriesRun", "so_far"]

LINES = 12


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """lines: what each finished part came to; tokens: new tokens of the run that goes on; failed: why the last one failed."""

    lines: tuple[str, ...] = ()
    progress: Progress | None = None
    tokens: int = 0
    failed: str = ""

    def after(self, step: object) -> SeriesRun:
        """The series after one more step; steps of an unknown kind change nothing."""
        if isinstance(step, Progress):
            return replace(self, progress=step)
        if isinstance(step, ArmFailed):
            return replace(self, failed=step.message)
        if isinstance(step, ArmEvent):
            emitted = isinstance(step.event, TokenEmitted)
            return replace(self, tokens=step.event.index + 1 if emitted else 0)
        line = _line(step)
        return replace(self, lines=(*self.lines, line), tokens=0) if line else self


def so_far(run: SeriesRun) -> str:
    """The latest lines, and the run that goes on."""
    now = f"{format_count(run.tokens)} new tokens in the run that goes on" if run.tokens else "computing a first token"
    hidden = len(run.lines) - LINES
    earlier = f'<p class="kv-small">{hidden} before</p>' if hidden > 0 else ""
    lines = "".join(f"<li>{text(line)}</li>" for line in run.lines[-LINES:])
    failed = f'<p class="kv-failed">{text(run.failed)}</p>' if run.failed else ""
    return (
        f'<div class="kv-card kv-so-far"><h2 class="kv-card-title">So far</h2>{earlier}<ul>{lines}</ul>'
        f'<p class="kv-small">{text(now)}</p>{failed}</div>'
    )


def _line(step: object) -> str:
    if isinstance(step, GrowthPoint):
        size = f"{format_count(step.prompt_tokens)} prompt and {format_count(step.new_tokens)} new tokens"
        return f"{size}: {_factors(step.result)}"
    if isinstance(step, PromptResult):
        return f"{step.row.id[:60]}: {_factors(step.result)}"
    if isinstance(step, PrefixPair):
        times = f"{format_seconds(step.fresh.ttft_s)} processed, {format_seconds(step.kept.ttft_s)} kept"
        return f"{step.question[:60]}: first token after {times}"
    return ""


def _factors(result: ComparisonResult) -> str:
    known: list[Comparison] = [item for item in result.comparisons if item.metric == "generation_s" and item.ratio]
    words = [f"{factor(item.ratio or 1)} with {result.row(item.candidate).label}" for item in known]
    return ", ".join(words) or "no ratio"
