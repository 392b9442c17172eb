"""How does it grow? The form of the third question: lengths of prompt and answer, given or chosen, up to a longest request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.components.form_parts import run_line, strategies_followed, strategies_group
from kvdemo.components.form_values import budget_s, in_table_order, lengths
from kvdemo.components.markup import fragment
from kvdemo.components.so_far import SoFar
from kvdemo.experiments.pieces import label_of
from kvdemo.experiments.prompt_file import representative
from kvdemo.experiments.question import Form, FormBackend, Page, Picker
from kvdemo.facts.requests import MAX_ROUNDS, checked_int
from kvdemo.questions.grow import words
from kvdemo.questions.grow.spec import GrowthResult, GrowthSpec
from kvdemo.settings import Settings

__all__ = ["PAGE", "GrowthForm", "form"]

LONGEST, ROUNDS, BUDGET_MIN = 256, 1, 5


@dataclass(frozen=True, slots=True)
class GrowthForm:
    """The settings as they come from the form, unchecked."""

    longest_tokens: Any = LONGEST
    new_tokens: Any = ""
    prompt_tokens: Any = ""
    strategies: Any = ("none", "dynamic")
    rounds: Any = ROUNDS
    budget_min: Any = BUDGET_MIN
    prompt: Any = ""

    def spec(self, backend: FormBackend) -> GrowthSpec:
        """Checked; InvalidRequest names the field."""
        return GrowthSpec(
            prompt=self.prompt,
            strategies=in_table_order(backend, self.strategies),
            prompt_tokens=lengths("prompt_tokens", self.prompt_tokens),
            new_tokens=lengths("new_tokens", self.new_tokens),
            longest_tokens=checked_int("longest_tokens", self.longest_tokens, 2, 10_000_000),
            rounds=checked_int("rounds", self.rounds, 1, MAX_ROUNDS),
            time_budget_s=budget_s(self.budget_min),
        )


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks."""
    with gr.Column(elem_classes="kv-card", elem_id="compare-grow-form"):
        with gr.Row(elem_classes="kv-arms-line"):
            longest = gr.Number(
                LONGEST, label="Longest request I allow, tokens", min_width=220, elem_id="compare-grow-longest"
            )
            new_tokens = gr.Textbox(
                label="Answer lengths, tokens",
                placeholder="chosen for you; or 16, 64, 128",
                min_width=220,
                elem_id="compare-grow-answers",
            )
            prompt_tokens = gr.Textbox(
                label="Prompt lengths, tokens",
                placeholder="chosen for you; or 16, 128",
                min_width=220,
                elem_id="compare-grow-prompts",
            )
            rounds = gr.Number(ROUNDS, label="Rounds", min_width=90, elem_id="compare-grow-rounds")
        strategies, start, stop = run_line(lambda: strategies_group(backend, "compare-grow-strategies"), "grow")
        with gr.Accordion("More settings", open=False, elem_id="compare-grow-settings", elem_classes="kv-more"):
            budget = gr.Number(
                BUDGET_MIN, label="Time budget, minutes (empty: none)", min_width=200, elem_id="compare-grow-budget"
            )
            prompt = gr.Textbox(
                representative()[-1].prompt,
                label="Text from which prompts are cut, repeated where it is too short",
                lines=3,
                max_lines=8,
                elem_id="compare-grow-text",
            )
        notice = fragment(elem_id="compare-grow-notice")
    fields = [longest, new_tokens, prompt_tokens, strategies, rounds, budget, prompt]
    return Form(
        fields,
        start,
        stop,
        notice,
        follows=((strategies, strategies_followed),),
        starts=((longest, lambda wanted: wanted.longest_tokens),),
    )


def _candidates(result: GrowthResult) -> list[tuple[str, str]]:
    return [(label_of(result.strategies, key), key) for key in result.spec.strategies[1:]]


def _along(result: GrowthResult) -> list[tuple[str, str]]:
    return [("with the answer", "new_tokens"), ("with the prompt", "prompt_tokens")]


PAGE = Page(
    form=form,
    read=lambda backend, *values: GrowthForm(*values).spec(backend),
    figures=("ratio", "step", "held", "peak"),
    live=lambda _spec, _rows: SoFar(words.so_far),
    pickers=(
        Picker("along", "How does it grow", _along),
        Picker("candidate", "Which one, beside the first", _candidates),
    ),
)
