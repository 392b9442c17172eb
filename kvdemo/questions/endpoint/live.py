"""A check of an endpoint while it runs, and what stays of it beside the result: three lines and the message to copy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from markupsafe import Markup

from kvdemo.components.markup import code_block, text
from kvdemo.components.so_far import SoFar
from kvdemo.facts.results import Progress
from kvdemo.questions.endpoint import words
from kvdemo.questions.endpoint.message import message
from kvdemo.questions.endpoint.spec import SUBJECTS, EndpointResult
from kvdemo.questions.endpoint.timings import judgements

__all__ = ["EndpointRun", "verdict_card"]


@dataclass(frozen=True, slots=True)
class EndpointRun:
    """A fold over its steps. result: once there is one."""

    going: SoFar = field(default_factory=lambda: SoFar(words.so_far))
    result: EndpointResult | None = None

    @property
    def progress(self) -> Progress | None:
        return self.going.progress

    def after(self, step: object) -> EndpointRun:
        """The same after one more step."""
        if isinstance(step, EndpointResult):
            return replace(self, result=step)
        return replace(self, going=self.going.after(step))

    def fragment(self) -> str:
        """Which of them are judged so far."""
        return self.going.fragment()

    def ended(self) -> str:
        """The three lines and the message stay."""
        return "" if self.result is None else verdict_card(self.result)


def verdict_card(result: EndpointResult) -> str:
    """Each verdict with its evidence, and the message to copy."""
    lines = Markup("").join(
        (
            Markup("<p><strong>{}: {}.</strong> {}</p>").format(
                text(SUBJECTS[subject]), text(judged.verdict), text(judged.evidence)
            )
            for subject, judged in judgements(result).items()
        )
    )
    return Markup(
        '<div class="kv-card kv-endpoint"><h2 class="kv-card-title">What its times tell</h2>{}'
        '<h2 class="kv-card-title">To ask whoever runs it</h2>{}</div>'
    ).format(lines, code_block(message(result), wrapped=True))
