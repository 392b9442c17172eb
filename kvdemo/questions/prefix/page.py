"""Does a shared prefix pay? The form of the fourth question: one long system prompt, several questions after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.components.form_parts import run_line
from kvdemo.components.form_values import budget_s
from kvdemo.components.markup import fragment
from kvdemo.components.server_fields import server_fields
from kvdemo.components.so_far import SoFar
from kvdemo.experiments.prompt_file import representative
from kvdemo.experiments.question import Form, FormBackend, Page
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.requests import MAX_NEW_TOKENS, checked_int
from kvdemo.questions.prefix import words
from kvdemo.questions.prefix.spec import PrefixSpec
from kvdemo.settings import Settings

__all__ = ["PAGE", "PrefixForm", "copyable", "form"]

ARTICLE = "news-bus-lanes"
NEW_TOKENS, BUDGET_MIN = 16, 5
QUESTIONS = (
    "What is the article about?",
    "Who is in favour, and why?",
    "Who is against, and why?",
    "Which figures does it give?",
    "What is still open?",
    "Give it a shorter headline.",
)


@dataclass(frozen=True, slots=True)
class PrefixForm:
    """The settings as they come from the form, unchecked."""

    system_prompt: Any
    questions: Any
    strategy: Any = "dynamic"
    max_new_tokens: Any = NEW_TOKENS
    budget_min: Any = BUDGET_MIN

    def spec(self, backend: FormBackend) -> PrefixSpec:
        """Checked; InvalidRequest names the field."""
        typed = self.questions if isinstance(self.questions, str) else ""
        return PrefixSpec(
            system_prompt=self.system_prompt,
            questions=tuple(line.strip() for line in typed.splitlines() if line.strip()),
            strategy=self.strategy,
            max_new_tokens=checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS),
            time_budget_s=budget_s(self.budget_min),
        )


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks."""
    with gr.Column(elem_classes="kv-card", elem_id="compare-prefix-form"):
        with gr.Row(elem_id="compare-prefix-line"):
            system_prompt = gr.Textbox(
                _system_prompt(),
                label="System prompt that every question shares",
                lines=8,
                max_lines=8,
                min_width=260,
                elem_id="compare-prefix-system-prompt",
            )
            questions = gr.Textbox(
                "\n".join(QUESTIONS),
                label="Questions, one per line",
                lines=8,
                max_lines=8,
                min_width=260,
                elem_id="compare-prefix-questions",
            )
        strategy, start, stop = run_line(
            lambda: gr.Radio(
                copyable(backend.strategies()),
                value="dynamic",
                label="Cache that is kept and copied",
                scale=6,
                elem_id="compare-prefix-strategy",
            ),
            "prefix",
        )
        with (
            gr.Accordion("More settings", open=False, elem_id="compare-prefix-settings", elem_classes="kv-more"),
            gr.Row(elem_classes="kv-budget-line"),
        ):
            new_tokens = gr.Number(
                NEW_TOKENS, label="New tokens for each answer", min_width=160, elem_id="compare-prefix-new-tokens"
            )
            budget = gr.Number(
                BUDGET_MIN, label="Time budget, minutes (empty: none)", min_width=200, elem_id="compare-prefix-budget"
            )
        server = server_fields(backend, settings, "compare-prefix")
        notice = fragment(elem_id="compare-prefix-notice")
    fields = [system_prompt, questions, strategy, new_tokens, budget]
    return Form(fields, start, stop, notice, follows=((strategy, _copyable_followed),), server=server)


def copyable(rows: tuple[StrategyRow, ...]) -> list[tuple[str, str]]:
    """(label, key) of the strategies whose cache can be copied for each question."""
    return [(row.label, row.key) for row in rows if row.unavailable_reason is None and row.keeping in ("crop", "copy")]


def _copyable_followed(rows: tuple[StrategyRow, ...]) -> Any:
    return gr.update(choices=copyable(rows))


def _system_prompt() -> str:
    article = next((row.prompt for row in representative() if row.id == ARTICLE), representative()[-1].prompt)
    _, _, text = article.partition("\n\n")
    return f"Answer questions about this article in one or two sentences.\n\n{text or article}"


PAGE = Page(
    form=form,
    read=lambda backend, *values: PrefixForm(*values).spec(backend),
    figures=("first-tokens",),
    live=lambda _spec, _rows: SoFar(words.so_far),
    labels={"questions": "Questions"},
)
