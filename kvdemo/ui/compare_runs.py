"""What happens in a comparison: the form is checked, the arms run and stream, the result is drawn, saved on demand.

Handlers take plain values, make one backend call and give back a CompareView; the tab maps it to components.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import gradio as gr

from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_ROUNDS, CompareSpec, Message, checked_int
from kvdemo.facts.results import ComparisonResult
from kvdemo.facts.units import format_count
from kvdemo.ui.compare_arms import ArmView, CompareRun, columns, progress_card
from kvdemo.ui.compare_results import EMPTY, charts, empty_result, headline_card, result_tables
from kvdemo.ui.markup import text
from kvdemo.ui.wiring import PACE_S

__all__ = ["AS_CHAT", "AS_TEXT", "CompareForm", "CompareView", "count", "failed", "run"]

AS_TEXT, AS_CHAT = "As text", "As a chat message"
COUNTED_CHARS = 50_000


@dataclass(frozen=True, slots=True)
class CompareForm:
    """The settings of a comparison as they come from the form, unchecked."""

    prompt: Any
    mode: Any = AS_TEXT
    strategies: Any = ("none", "dynamic")
    max_new_tokens: Any = 64
    rounds: Any = 1
    fixed_length: Any = True
    system_prompt: Any = ""

    def spec(self) -> CompareSpec:
        """Checked; InvalidRequest names the field."""
        if not isinstance(self.strategies, list | tuple):
            raise InvalidRequest("strategies", "choose at least two")
        return CompareSpec(
            prompt=self.prompt,
            strategies=tuple(self.strategies),
            max_new_tokens=checked_int("new tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS),
            rounds=checked_int("rounds", self.rounds, 1, MAX_ROUNDS),
            as_chat=self.mode == AS_CHAT,
            system_prompt=self.system_prompt if self.mode == AS_CHAT and isinstance(self.system_prompt, str) else "",
            fixed_length=self.fixed_length is True,
        )


@dataclass(frozen=True, slots=True)
class CompareView:
    """What the comparison shows next, in the order of the tab's outputs; gr.skip() leaves a part as it is."""

    notice: Any = field(default_factory=gr.skip)
    headline: Any = field(default_factory=gr.skip)
    arms: Any = field(default_factory=gr.skip)
    tables: Any = field(default_factory=gr.skip)
    charts: tuple[Any, ...] = field(default_factory=lambda: tuple(gr.skip() for _ in range(4)))
    result: Any = field(default_factory=gr.skip)
    running: bool | None = None

    def parts(self) -> list[Any]:
        """The values, charts one by one; `running` last."""
        return [self.notice, self.headline, self.arms, self.tables, *self.charts, self.result]


def count(backend: Any, prompt: object, mode: object, system_prompt: object) -> str:
    """The prompt's length in tokens as the model will see it, as a fragment; empty where it cannot be known."""
    if not isinstance(prompt, str) or not prompt.strip():
        return ""
    if len(prompt) > COUNTED_CHARS:
        return f'<div class="kv-count">{format_count(len(prompt))} characters</div>'
    try:
        told: str | tuple[Message, ...] = prompt
        if mode == AS_CHAT:
            system = system_prompt if isinstance(system_prompt, str) else ""
            told = (*((Message("system", system),) if system.strip() else ()), Message("user", prompt))
        tokens = backend.count_tokens(told)
    except KvdemoError:
        return ""
    return f'<div class="kv-count">{format_count(tokens)} {"token" if tokens == 1 else "tokens"}</div>'


def run(
    backend: Any, form: CompareForm, owner: str, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[CompareView]:
    """Run the comparison: views at most every PACE_S while arms stream, the result at the end, all of it kept."""
    try:
        spec = form.spec()
        backend.describe()
        rows = {row.key: row for row in backend.strategies()}
        arms = {key: ArmView(rows[key]) for key in spec.strategies if key in rows}
        so_far = CompareRun(arms, spec.max_new_tokens, spec.rounds)
        yield CompareView("", progress_card(so_far), columns(so_far), "", result=None, running=True)
        # Before the clock runs: drawing libraries take seconds to import.
        import kvdemo.reports.compare_charts
        import kvdemo.reports.frames  # noqa: F401

        steps = backend.compare(spec, owner=owner)
        shown_at = -PACE_S
        try:
            for step in steps:
                if isinstance(step, ComparisonResult):
                    yield _done(step, so_far)
                    return
                so_far = so_far.after(step)
                if clock() - shown_at >= PACE_S:
                    shown_at = clock()
                    yield CompareView(headline=progress_card(so_far), arms=columns(so_far))
        finally:
            steps.close()
    except KvdemoError as error:
        yield CompareView(notice=_notice(str(error)), headline=empty_result(EMPTY), running=False)


def failed() -> CompareView:
    """After a fault of ours: nothing runs any more."""
    words = "Something went wrong on our side; the log of this program says what. Your settings are as you left them."
    return CompareView(notice=_notice(words), headline=empty_result(EMPTY), running=False)


def _done(result: ComparisonResult, so_far: CompareRun) -> CompareView:
    view = CompareView("", headline_card(result), columns(so_far), result_tables(result), result=result, running=False)
    if not any(result.counted(key) for key in result.spec.strategies):
        return view
    return replace(view, charts=tuple(charts(result)))


def _notice(words: str) -> str:
    return f'<div class="kv-notice" role="alert">{text(words)}</div>'
