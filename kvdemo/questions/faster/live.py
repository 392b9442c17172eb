"""A comparison while it runs: a fold over its steps, and the columns in which the arms stream, as a fragment.

One column per arm, always all of them, so that nothing moves when the next arm begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from kvdemo.charts.arms import key_classes
from kvdemo.components.markup import text
from kvdemo.components.run_view import RunView
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.facts.events import TokenEmitted
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress
from kvdemo.facts.units import format_count, format_seconds, format_speed

__all__ = ["ArmView", "CompareRun", "finished_columns", "running"]

WOULD_END = "an answer would have ended here"


@dataclass(frozen=True, slots=True)
class ArmView:
    """One arm so far.

    pieces    the text of its latest timed run, one piece per token
    message   why its latest run failed, "" when it did not
    """

    row: StrategyRow
    run: RunView = field(default_factory=RunView)
    round: int = 0
    warmup: bool = False
    pieces: tuple[str, ...] = ()
    message: str = ""

    def after(self, step: ArmEvent) -> ArmView:
        """The arm after one more event of one of its runs."""
        same_run = (step.round, step.warmup) == (self.round, self.warmup)
        run = (self.run if same_run else RunView(strategy=self.row.key)).after(step.event)
        pieces = self.pieces if same_run or step.warmup else ()
        if isinstance(step.event, TokenEmitted) and not step.warmup:
            pieces = (*pieces, step.event.text)
        return replace(self, run=run, round=step.round, warmup=step.warmup, pieces=pieces, message="")

    def status(self, wanted_tokens: int) -> str:
        """One line: what this arm is doing, or how its latest run went."""
        if self.message:
            return "failed"
        if not self.round and not self.warmup:
            return "waits for its turn"
        if self.warmup:
            return "warmed up, waits for its turn" if self.run.phase == "finished" else "warming up, not timed"
        if self.run.phase == "finished" and self.run.record is not None:
            return self._finished()
        if not self.run.tokens:
            return "computing its first token"
        so_far = f"{format_count(self.run.tokens)} of {format_count(wanted_tokens)} tokens"
        return f"{so_far} · {format_speed(self.run.tokens_per_s)}" if self.run.tokens_per_s else so_far

    def _finished(self) -> str:
        record = self.run.record
        if record is None or record.status != "ok":
            return "stopped" if record is not None and record.status == "cancelled" else "ended at the time limit"
        done = f"done in {format_seconds(record.generation_s)}"
        return done if record.decode_tokens_per_s is None else f"{done} · {format_speed(record.decode_tokens_per_s)}"


@dataclass(frozen=True, slots=True)
class CompareRun:
    """A comparison so far: its arms in the order asked for, and the latest progress."""

    arms: dict[str, ArmView]
    wanted_tokens: int
    progress: Progress | None = None

    def after(self, step: object) -> CompareRun:
        """The comparison after one more step; steps of an unknown kind change nothing."""
        if isinstance(step, Progress):
            return replace(self, progress=step)
        if isinstance(step, ArmEvent) and step.arm in self.arms:
            return replace(self, arms={**self.arms, step.arm: self.arms[step.arm].after(step)})
        if isinstance(step, ArmFailed) and step.arm in self.arms:
            arm = replace(self.arms[step.arm], message=step.message, round=step.round, warmup=step.warmup)
            return replace(self, arms={**self.arms, step.arm: arm})
        return self

    def fragment(self) -> str:
        """The arms beside each other."""
        return Markup('<div class="kv-arms">{}</div>').format(
            Markup("").join(_column(arm, self.wanted_tokens) for arm in self.arms.values())
        )

    def ended(self) -> str:
        """The texts stay as they ended."""
        return self.fragment()


def running(spec: CompareSpec, strategies: Mapping[str, StrategyRow]) -> CompareRun:
    """Before the first run. A strategy that does not exist has no column: it is refused before anything runs."""
    known = all(key in strategies for key in spec.strategies)
    return CompareRun(
        {row.key: ArmView(row) for row in spec.arm_rows(strategies)} if known else {}, spec.max_new_tokens
    )


def finished_columns(result: ComparisonResult) -> str:
    """The arms of a result that was not run here: the text of each one's last run that counts."""
    arms = {}
    for key in result.spec.arms:
        row, counted = result.row(key), result.counted(key)
        if counted:
            record = counted[-1]
            run = RunView(strategy=key, phase="finished", text=record.text, record=record)
            arms[key] = ArmView(row, run, record.round or 1, pieces=(record.text,))
        else:
            arms[key] = ArmView(row, message="No run of this one was completed.")
    return CompareRun(arms, result.spec.max_new_tokens).fragment()


def _column(arm: ArmView, wanted_tokens: int) -> str:
    again = f"round {arm.round} · " if arm.round > 1 and not arm.warmup else ""
    body = Markup('<p class="kv-failed">{}</p>').format(text(arm.message)) if arm.message else _body(arm)
    return Markup(
        '<div class="kv-card kv-arm"><p class="kv-arm-head"><span class="kv-key {}"></span>'
        '<strong>{}</strong><span class="kv-arm-status">{}</span></p>'
        '<div class="kv-arm-text" tabindex="0" role="group" title="Text of {}">{}</div></div>'
    ).format(
        text(key_classes(arm.row.key)),
        text(arm.row.label),
        text(again + arm.status(wanted_tokens)),
        text(arm.row.label),
        body,
    )


def _body(arm: ArmView) -> str:
    record = arm.run.record
    written = "".join(arm.pieces).lstrip()
    if record is not None and not arm.warmup and record.would_end_at is not None:
        if len(arm.pieces) != record.new_tokens:  # from a file: its tokens have no texts of their own
            where = f"An answer would have ended at token {record.would_end_at + 1}."
            return Markup('<div><div class="kv-text">{}</div><p class="kv-small">{}</p></div>').format(
                text(written), where
            )
        before = "".join(arm.pieces[: record.would_end_at])
        after = (
            record.text[len(before) :] if record.text.startswith(before) else "".join(arm.pieces[record.would_end_at :])
        )
        mark = Markup('<span class="kv-would-end">{}</span>').format(WOULD_END)
        return Markup('<div class="kv-text">{}{}<span class="kv-after-end">{}</span></div>').format(
            text(before.lstrip()), mark, text(after)
        )
    running = arm.run.phase not in ("finished", "asked") and not arm.warmup
    cursor = Markup('<span class="kv-cursor"></span>') if running else ""
    return Markup('<div class="kv-text">{}{}</div>').format(text(written), cursor)
