"""Is it faster? The form of the first question: one prompt, two or more strategies, rounds until it is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.components.choices import strategy_choices, strategy_notes
from kvdemo.components.form_values import Question, budget_s, in_table_order
from kvdemo.components.markup import fragment
from kvdemo.experiments.wording import DEMONSTRATION_PROMPT
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_ROUNDS, CompareSpec, checked_int

__all__ = ["AS_CHAT", "AS_TEXT", "FASTER", "CompareForm", "FasterForm", "faster_form"]

AS_TEXT, AS_CHAT = "As text", "As a chat message"
NEW_TOKENS, ROUNDS, BUDGET_MIN = 64, 6, 5
EMPTY = (
    "Run generates the same text once per strategy and round, one after the other, and times every token. Then you see "
    "here how many times faster one is, whether the tokens are the same, and where the time went. Run measures this "
    "machine (about 2 min)."
)


@dataclass(frozen=True, slots=True)
class CompareForm:
    """The settings of a comparison as they come from the form, unchecked."""

    prompt: Any
    mode: Any = AS_TEXT
    strategies: Any = ("none", "dynamic")
    max_new_tokens: Any = NEW_TOKENS
    rounds: Any = ROUNDS
    until_clear: Any = False
    budget_min: Any = BUDGET_MIN
    fixed_length: Any = True
    system_prompt: Any = ""

    def spec(self, backend: Any) -> CompareSpec:
        """Checked; InvalidRequest names the field."""
        return CompareSpec(
            prompt=self.prompt,
            strategies=in_table_order(backend, self.strategies),
            max_new_tokens=checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS),
            rounds=checked_int("rounds", self.rounds, 1, MAX_ROUNDS),
            as_chat=self.mode == AS_CHAT,
            system_prompt=self.system_prompt if self.mode == AS_CHAT and isinstance(self.system_prompt, str) else "",
            fixed_length=self.fixed_length is True,
            time_budget_s=budget_s(self.budget_min) if self.until_clear is True else None,
        )


FASTER = Question(
    key="faster",
    title="Is it faster?",
    empty=EMPTY,
    read=lambda backend, *form: CompareForm(*form).spec(backend),
    method="compare",
    charts=("arrival", "step-cost", "time-split", "work", "bytes"),
)


@dataclass(frozen=True, slots=True)
class FasterForm:
    """The form's parts; fields in the order of CompareForm."""

    fields: list[Any]
    counted: list[Any]
    count: gr.Markdown
    strategies: gr.CheckboxGroup
    notes: gr.Markdown
    start: gr.Button
    stop: gr.Button
    notice: gr.Markdown


def faster_form(backend: Any) -> FasterForm:
    """Lay the form out in the current Blocks."""
    rows = backend.strategies()
    with gr.Column(elem_classes="kv-card", elem_id="compare-form"):
        with gr.Row(elem_id="compare-line"):
            prompt = gr.Textbox(
                DEMONSTRATION_PROMPT,
                label="Prompt",
                lines=2,
                max_lines=10,
                scale=6,
                min_width=260,
                elem_id="compare-prompt",
            )
            with gr.Column(scale=3, min_width=200, elem_id="compare-mode"):
                mode = gr.Radio([AS_TEXT, AS_CHAT], value=AS_TEXT, label="The model reads it", elem_id="compare-as")
                count = fragment(elem_id="compare-count")
            # No bounds here: Gradio would refuse without naming the field; the request does.
            new_tokens = gr.Number(NEW_TOKENS, label="New tokens", scale=1, min_width=104, elem_id="compare-new-tokens")
            rounds = gr.Number(ROUNDS, label="Rounds", scale=1, min_width=90, elem_id="compare-rounds")
        with gr.Row(elem_classes="kv-arms-line"):
            strategies = gr.CheckboxGroup(
                strategy_choices(rows),
                value=["none", "dynamic"],
                label="Compare, the first with every other",
                scale=6,
                elem_id="compare-strategies",
            )
            start = gr.Button(
                "Run", variant="primary", scale=0, min_width=110, elem_id="compare-run", elem_classes="kv-run"
            )
            stop = gr.Button(
                "Stop", scale=0, min_width=110, visible=False, elem_id="compare-stop", elem_classes="kv-run"
            )
        with gr.Accordion("More settings", open=False, elem_id="compare-settings", elem_classes="kv-more"):
            with gr.Row(elem_classes="kv-budget-line"):
                until_clear = gr.Checkbox(
                    False,
                    label="Go on until the answer is clear: the interval within 5 % of the ratio",
                    scale=4,
                    elem_id="compare-until-clear",
                )
                budget = gr.Number(
                    BUDGET_MIN, label="at most, minutes", scale=1, min_width=130, elem_id="compare-budget"
                )
            fixed = gr.Checkbox(
                True,
                label="Fixed length: no end token, every strategy makes exactly as many tokens",
                elem_id="compare-fixed",
            )
            system_prompt = gr.Textbox(
                label="System prompt, for a chat message", lines=2, max_lines=8, elem_id="compare-system-prompt"
            )
            notes = fragment(strategy_notes(rows), elem_id="compare-strategy-notes")
        notice = fragment(elem_id="compare-notice")
    fields = [prompt, mode, strategies, new_tokens, rounds, until_clear, budget, fixed, system_prompt]
    return FasterForm(fields, [prompt, mode, system_prompt], count, strategies, notes, start, stop, notice)
