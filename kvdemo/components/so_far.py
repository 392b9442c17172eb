"""A question while it runs: what each finished part came to, one line each, and the run that goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.facts.events import TokenEmitted
from kvdemo.facts.results import ArmEvent, ArmFailed, Progress
from kvdemo.facts.units import format_count

__all__ = ["SoFar"]

LINES = 12


@dataclass(frozen=True, slots=True)
class SoFar:
    """line: a step -> what is said of it, "" for nothing. tokens: new ones of the run that goes on; failed: why the last
    one failed."""

    line: Callable[[object], str]
    lines: tuple[str, ...] = ()
    progress: Progress | None = None
    tokens: int = 0
    failed: str = ""

    def after(self, step: object) -> SoFar:
        """The same after one more step; steps of an unknown kind change nothing."""
        if isinstance(step, Progress):
            return replace(self, progress=step)
        if isinstance(step, ArmFailed):
            return replace(self, failed=step.message)
        if isinstance(step, ArmEvent):
            return replace(self, tokens=step.event.index + 1 if isinstance(step.event, TokenEmitted) else 0)
        line = self.line(step)
        return replace(self, lines=(*self.lines, line), tokens=0) if line else self

    def fragment(self) -> str:
        """The latest lines, and the run that goes on."""
        now = (
            f"{format_count(self.tokens)} new tokens in the run that goes on"
            if self.tokens
            else "computing a first token"
        )
        hidden = len(self.lines) - LINES
        earlier = Markup('<p class="kv-small">{} before</p>').format(hidden) if hidden > 0 else ""
        lines = Markup("").join(Markup("<li>{}</li>").format(text(line)) for line in self.lines[-LINES:])
        failed = Markup('<p class="kv-failed">{}</p>').format(text(self.failed)) if self.failed else ""
        return Markup(
            '<div class="kv-card kv-so-far"><h2 class="kv-card-title">So far</h2>{}<ul>{}</ul>'
            '<p class="kv-small">{}</p>{}</div>'
        ).format(earlier, lines, text(now), failed)

    def ended(self) -> str:
        """Nothing stays: the table tells it."""
        return ""
