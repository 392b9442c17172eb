"""On my prompts? The form of the second question: a shipped set, prompts typed one per line, or a file of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_parts import run_line, strategies_followed, strategies_group
from kvdemo.components.form_values import budget_s, in_table_order, notice, refusal
from kvdemo.components.markup import fragment, text
from kvdemo.components.prompt_source import SHIPPED, TYPED, UPLOADED, choose_file, chosen_prompts, uploaded_prompts
from kvdemo.components.server_fields import server_fields
from kvdemo.components.so_far import SoFar
from kvdemo.components.wiring import LIGHT, Updates, bound
from kvdemo.errors import KvdemoError
from kvdemo.experiments.pieces import label_of
from kvdemo.experiments.prompt_file import (
    MAX_PROMPTS,
    PromptRow,
    representative,
)
from kvdemo.experiments.question import Form, FormBackend, Page, Picker
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_ROUNDS, checked_int
from kvdemo.facts.units import format_count
from kvdemo.questions.prompts import words
from kvdemo.questions.prompts.spec import PromptSetResult, PromptSetSpec
from kvdemo.settings import Settings

__all__ = ["PAGE", "PromptsForm", "form"]

NEW_TOKENS, ROUNDS, BUDGET_MIN = 32, 1, 5


@dataclass(frozen=True, slots=True)
class SetParts:
    """The components that say which prompts are asked. about: what is in the set; notice: why a file is refused."""

    source: gr.Radio
    typed: gr.Textbox
    rows: gr.State
    about: gr.Markdown
    notice: gr.Markdown


@dataclass(frozen=True, slots=True)
class PromptsForm:
    """The settings as they come from the form, unchecked. rows: out of an uploaded file."""

    source: Any = SHIPPED
    typed: Any = ""
    rows: Any = ()
    strategies: Any = ("none", "dynamic")
    max_new_tokens: Any = NEW_TOKENS
    rounds: Any = ROUNDS
    as_chat: Any = True
    fixed_length: Any = True
    longest_tokens: Any = None
    budget_min: Any = BUDGET_MIN

    def prompts(self) -> tuple[PromptRow, ...]:
        return chosen_prompts(self.source, self.typed, self.rows)

    def spec(self, backend: FormBackend) -> PromptSetSpec:
        """Checked; InvalidRequest names the field or the row."""
        longest = self.longest_tokens
        return PromptSetSpec(
            prompts=self.prompts(),
            strategies=in_table_order(backend, self.strategies),
            max_new_tokens=checked_int("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS),
            rounds=checked_int("rounds", self.rounds, 1, MAX_ROUNDS),
            as_chat=self.as_chat is True,
            fixed_length=self.fixed_length is True,
            longest_tokens=None if longest is None else checked_int("longest_tokens", longest, 2, 10_000_000),
            time_budget_s=budget_s(self.budget_min),
        )


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks; its own events are wired here."""
    rows = gr.State(())
    with gr.Column(elem_classes="kv-card", elem_id="compare-prompts-form"):
        with gr.Row(elem_id="compare-prompts-line"):
            source = gr.Radio(
                [SHIPPED, TYPED, UPLOADED],
                value=SHIPPED,
                label="Prompts",
                scale=6,
                min_width=260,
                elem_id="compare-prompts-source",
            )
            new_tokens = gr.Number(
                NEW_TOKENS, label="New tokens", scale=1, min_width=104, elem_id="compare-prompts-new-tokens"
            )
            rounds = gr.Number(ROUNDS, label="Rounds", scale=1, min_width=90, elem_id="compare-prompts-rounds")
        typed = gr.Textbox(
            label="One prompt per line",
            lines=5,
            max_lines=14,
            visible=False,
            placeholder="Why is the sky blue?",
            elem_id="compare-prompts-typed",
        )
        with gr.Row(elem_classes="kv-file-line"):
            about = fragment(_about(representative(), SHIPPED), elem_id="compare-prompts-about")
            upload = choose_file("compare-prompts-upload")
        strategies, start, stop = run_line(lambda: strategies_group(backend, "compare-prompts-strategies"), "prompts")
        with gr.Accordion("More settings", open=False, elem_id="compare-prompts-settings", elem_classes="kv-more"):
            as_chat = gr.Checkbox(True, label="Send each prompt as a chat message", elem_id="compare-prompts-as-chat")
            fixed = gr.Checkbox(
                True,
                label="Fixed length: no end token, every strategy makes exactly as many tokens",
                elem_id="compare-prompts-fixed",
            )
            with gr.Row(elem_classes="kv-budget-line"):
                longest = gr.Number(
                    None,
                    label="Longest request I allow, tokens (empty: the model's own limit)",
                    min_width=200,
                    elem_id="compare-prompts-longest",
                )
                budget = gr.Number(
                    BUDGET_MIN,
                    label="Time budget, minutes (empty: none)",
                    min_width=200,
                    elem_id="compare-prompts-budget",
                )
        server = server_fields(backend, settings, "compare-prompts")
        place = fragment(elem_id="compare-prompts-notice")
    fields = [source, typed, rows, strategies, new_tokens, rounds, as_chat, fixed, longest, budget]
    parts = SetParts(source, typed, rows, about, place)
    showing = bound(show_source, parts)
    gr.on([source.input, typed.blur], showing, [source, typed, rows], [typed, about], **LIGHT)
    uploading = bound(take_file, parts, settings.limits.upload_bytes)
    upload.upload(uploading, upload, [rows, source, typed, about, place], **LIGHT)
    return Form(
        fields,
        start,
        stop,
        place,
        follows=((strategies, strategies_followed),),
        starts=(
            (new_tokens, lambda wanted: wanted.longest_answer_tokens),
            (longest, lambda wanted: wanted.longest_tokens),
        ),
        server=server,
    )


def show_source(parts: SetParts, source: Any, typed: Any, rows: Any) -> Updates:
    """The box for typing, and what is in the set; a set that cannot be read says so when it is to be run."""
    form = PromptsForm(source, typed, rows)
    try:
        about = _about(form.prompts(), str(source))
    except KvdemoError:
        words = "No prompt typed yet." if source == TYPED else "No file chosen yet: JSON, CSV or text, up to 5 MB."
        about = Markup('<div class="kv-small kv-about">{}</div>').format(words)
    return {parts.typed: gr.update(visible=source == TYPED), parts.about: about}


def take_file(parts: SetParts, limit_bytes: int, path: Any) -> Updates:
    """The prompts of a file, or what is wrong with it; then those of the file before stay."""
    try:
        name, found = uploaded_prompts(path, limit_bytes)
    except KvdemoError as error:
        return {parts.notice: notice(refusal(error))}
    return {
        parts.rows: found.rows,
        parts.source: UPLOADED,
        parts.typed: gr.update(visible=False),
        parts.about: _about(found.rows, name, found.unused),
        parts.notice: "",
    }


def _about(rows: tuple[PromptRow, ...], name: str, unused: tuple[str, ...] = ()) -> str:
    """How many prompts there are, how long, the first names, and what else is in the file."""
    if len(rows) > MAX_PROMPTS:
        return ""
    sizes = sorted(len(row.prompt) + len(row.system) for row in rows)
    named = [row.id for row in rows if not row.id.startswith("row ")]
    names = f": {', '.join(named[:4])}{' ...' if len(named) > 4 else ''}" if named else ""
    count = "one prompt" if len(rows) == 1 else f"{format_count(len(rows))} prompts"
    size = f"{format_count(sizes[0])} to {format_count(sizes[-1])} characters"
    rest = f". Not used: {', '.join(unused)}" if unused else ""
    return Markup('<div class="kv-small kv-about">{}</div>').format(text(f"{name[:80]}: {count}, {size}{names}{rest}"))


def _candidates(result: PromptSetResult) -> list[tuple[str, str]]:
    return [(label_of(result.strategies, key), key) for key in result.spec.strategies[1:]]


PAGE = Page(
    form=form,
    read=lambda backend, *values: PromptsForm(*values).spec(backend),
    figures=("set", "ratios"),
    live=lambda _spec, _rows: SoFar(words.so_far),
    pickers=(Picker("candidate", "Which one, beside the first", _candidates),),
)
