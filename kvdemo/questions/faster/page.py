"""Is it faster? The form of the first question: one prompt, two or more strategies, rounds until it is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.choices import strategy_notes
from kvdemo.components.form_parts import run_line, strategies_followed, strategies_group
from kvdemo.components.form_values import budget_s, in_table_order
from kvdemo.components.markup import fragment
from kvdemo.components.server_fields import server_fields
from kvdemo.components.wiring import LIGHT, bound
from kvdemo.errors import KvdemoError
from kvdemo.experiments.comparison import MAX_LAYERS, CompareSpec, ComparisonResult
from kvdemo.experiments.pieces import tokens_word
from kvdemo.experiments.question import WATCHED, Form, FormBackend, Page, Picker
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_ROUNDS, Message, checked_int
from kvdemo.facts.units import format_count
from kvdemo.questions.faster.live import finished_columns, running
from kvdemo.questions.faster.verdict_card import verdict_card
from kvdemo.questions.faster.words import DEMONSTRATION_PROMPT
from kvdemo.settings import Settings

__all__ = ["AS_CHAT", "AS_TEXT", "PAGE", "CompareForm", "count_tokens", "form"]

AS_TEXT, AS_CHAT = "As text", "As a chat message"
NEW_TOKENS, ROUNDS, BUDGET_MIN = 64, 6, 5
COUNTED_CHARS = 50_000
NOISE = (
    "Runs the last of the chosen strategies twice in each round, to see how far two identical runs lie apart. From then on, "
    "a difference that is no larger counts as none."
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
    norms: Any = False
    layer: Any = 0
    head: Any = 0
    noise: Any = False

    def spec(self, backend: FormBackend) -> CompareSpec:
        """Checked; InvalidRequest names the field."""
        chosen = in_table_order(backend, self.strategies)
        return CompareSpec(
            prompt=self.prompt,
            # How noisy the machine is shows best where a run is short: the last of the chosen ones, beside itself.
            strategies=chosen[-1:] if self.noise is True else chosen,
            noise=self.noise is True,
            max_new_tokens=checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS),
            rounds=checked_int("rounds", self.rounds, 1, MAX_ROUNDS),
            as_chat=self.mode == AS_CHAT,
            system_prompt=self.system_prompt if self.mode == AS_CHAT and isinstance(self.system_prompt, str) else "",
            fixed_length=self.fixed_length is True,
            time_budget_s=budget_s(self.budget_min) if self.until_clear is True else None,
            norms=self._norms() if self.norms is True and self.noise is not True else None,
        )

    def _norms(self) -> tuple[int, int]:
        return checked_int("layer", self.layer, 0, MAX_LAYERS), checked_int("head", self.head, 0, MAX_LAYERS)


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks."""
    with gr.Column(elem_classes="kv-card", elem_id="compare-faster-form"):
        with gr.Row(elem_id="compare-faster-line"):
            prompt = gr.Textbox(
                DEMONSTRATION_PROMPT,
                label="Prompt",
                lines=2,
                max_lines=10,
                scale=6,
                min_width=260,
                elem_id="compare-faster-prompt",
            )
            with gr.Column(scale=3, min_width=200, elem_id="compare-faster-mode"):
                mode = gr.Radio(
                    [AS_TEXT, AS_CHAT], value=AS_TEXT, label="The model reads it", elem_id="compare-faster-as"
                )
                count = fragment(elem_id="compare-faster-count")
            # No bounds here: Gradio would refuse without naming the field; the request does.
            new_tokens = gr.Number(
                NEW_TOKENS, label="New tokens", scale=1, min_width=104, elem_id="compare-faster-new-tokens"
            )
            rounds = gr.Number(ROUNDS, label="Rounds", scale=1, min_width=90, elem_id="compare-faster-rounds")
        strategies, start, stop = run_line(lambda: strategies_group(backend, "compare-faster-strategies"), "faster")
        with gr.Accordion("More settings", open=False, elem_id="compare-faster-settings", elem_classes="kv-more"):
            with gr.Row(elem_classes="kv-noise-line"):
                noisy = gr.Button(
                    "How noisy is this machine?", size="sm", scale=0, min_width=220, elem_id="compare-faster-noise"
                )
                fragment(Markup('<p class="kv-small">{}</p>').format(NOISE), elem_id="compare-faster-noise-words")
            with gr.Row(elem_classes="kv-budget-line"):
                until_clear = gr.Checkbox(
                    False,
                    label="Go on until the answer is clear: the interval within 5 % of the ratio",
                    scale=4,
                    elem_id="compare-faster-until-clear",
                )
                budget = gr.Number(
                    BUDGET_MIN, label="at most, minutes", scale=1, min_width=130, elem_id="compare-faster-budget"
                )
            fixed = gr.Checkbox(
                True,
                label="Fixed length: no end token, every strategy makes exactly as many tokens",
                elem_id="compare-faster-fixed",
            )
            with gr.Row(elem_classes="kv-budget-line"):
                norms = gr.Checkbox(
                    False,
                    label="Record how long the keys and values are, after the timed runs",
                    scale=4,
                    elem_id="compare-faster-norms",
                )
                layer = gr.Number(0, label="layer", scale=1, min_width=80, elem_id="compare-faster-layer")
                head = gr.Number(0, label="KV head", scale=1, min_width=80, elem_id="compare-faster-head")
            system_prompt = gr.Textbox(
                label="System prompt, for a chat message", lines=2, max_lines=8, elem_id="compare-faster-system-prompt"
            )
            notes = fragment(strategy_notes(backend.strategies()), elem_id="compare-faster-strategy-notes")
        server = server_fields(backend, settings, "compare-faster")
        notice = fragment(elem_id="compare-faster-notice")
    noise, alone = gr.State(False), gr.State(True)
    fields = [
        prompt,
        mode,
        strategies,
        new_tokens,
        rounds,
        until_clear,
        budget,
        fixed,
        system_prompt,
        norms,
        layer,
        head,
    ]
    counted = [prompt, mode, system_prompt]
    counting = bound(count_tokens, backend)
    gr.on([item.change for item in counted], counting, counted, count, trigger_mode="always_last", **LIGHT)
    return Form(
        [*fields, noise],
        start,
        stop,
        notice,
        follows=((strategies, strategies_followed), (notes, strategy_notes)),
        counted=(counted, count, counting),
        asks=((noisy, [*fields, alone]),),
        starts=((new_tokens, lambda wanted: wanted.longest_answer_tokens),),
        server=server,
    )


def count_tokens(backend: FormBackend, prompt: object, mode: object, system_prompt: object) -> str:
    """The prompt's length in tokens as the model will see it, as a fragment; empty where it cannot be known."""
    if not isinstance(prompt, str) or not prompt.strip():
        return ""
    if len(prompt) > COUNTED_CHARS:
        return Markup('<div class="kv-count">{} characters</div>').format(format_count(len(prompt)))
    try:
        read: str | tuple[Message, ...] = prompt
        if mode == AS_CHAT:
            system = system_prompt if isinstance(system_prompt, str) else ""
            read = (*((Message("system", system),) if system.strip() else ()), Message("user", prompt))
        tokens = backend.count_tokens(read)
    except KvdemoError:
        return ""
    return Markup('<div class="kv-count">{} {}</div>').format(format_count(tokens), tokens_word(tokens))


def others(result: ComparisonResult) -> list[tuple[str, str]]:
    """What can be watched again beside the first: the fastest, which is shown at first, then the rest."""
    rest = result.spec.arms[1:]
    return [(result.row(arm).label, arm) for arm in sorted(rest, key=lambda arm: arm != result.fastest)]


PAGE = Page(
    form=form,
    read=lambda backend, *values: CompareForm(*values).spec(backend),
    figures=("arrival", "step-cost", "time-split", "work", "bytes"),
    live=running,
    finished=finished_columns,
    aside=verdict_card,
    pickers=(Picker(WATCHED, "Watch again, beside the first", others),),
)
