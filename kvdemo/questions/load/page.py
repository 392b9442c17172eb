"""With many at once? The form: which prompts, how many requests and how they arrive, the modes, and a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_parts import run_line
from kvdemo.components.form_values import budget_s, lengths, notice, refusal, typed_number
from kvdemo.components.markup import code_block, fragment, text
from kvdemo.components.prompt_source import SHIPPED, TYPED, UPLOADED, choose_file, chosen_prompts, uploaded_prompts
from kvdemo.components.server_fields import server_fields
from kvdemo.components.so_far import SoFar
from kvdemo.components.wiring import LIGHT, bound
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.experiments.question import Form, FormBackend, Page
from kvdemo.facts.load import MAX_REQUESTS
from kvdemo.facts.requests import MAX_NEW_TOKENS, MAX_ROUNDS, checked_int, checked_number
from kvdemo.facts.workload import Workload
from kvdemo.questions.load import words
from kvdemo.questions.load.code import WHEN, engine_commands
from kvdemo.questions.load.spec import HERE, LoadResult, LoadSpec
from kvdemo.settings import Settings

__all__ = ["PAGE", "LoadForm", "form"]

PROMPT = "The red cat was"
REQUESTS, NEW_TOKENS, ROUNDS, BUDGET_MIN = 8, 32, 1, 5
CHOSEN = ("one-by-one", "padded", "continuous")


@dataclass(frozen=True, slots=True)
class LoadForm:
    """The settings as they come from the form, unchecked. rows: out of an uploaded file."""

    source: Any = TYPED
    typed: Any = PROMPT
    rows: Any = ()
    requests: Any = REQUESTS
    new_tokens: Any = NEW_TOKENS
    rounds: Any = ROUNDS
    modes: Any = CHOSEN
    rate: Any = None
    sweep: Any = ""
    target_ttft: Any = None
    target_request: Any = None
    as_chat: Any = False
    page_size: Any = 128
    pages: Any = None
    budget_min: Any = BUDGET_MIN

    def spec(self, backend: FormBackend) -> LoadSpec:
        """Checked; InvalidRequest names the field."""
        if not isinstance(self.modes, list | tuple) or not all(isinstance(key, str) for key in self.modes):
            raise InvalidRequest("modes", "choose at least one")
        pages = _number("num_pages", self.pages, 1, 1_000_000)
        return LoadSpec(
            prompts=chosen_prompts(self.source, self.typed, self.rows),
            requests=checked_int("requests", self.requests, 1, MAX_REQUESTS),
            modes=tuple(self.modes),
            max_new_tokens=checked_int("max_new_tokens", self.new_tokens, 1, MAX_NEW_TOKENS),
            rounds=checked_int("rounds", self.rounds, 1, MAX_ROUNDS),
            rate_per_s=_number("rate_per_s", self.rate, 0.001, 1000),
            sweep=lengths("sweep", "" if self.sweep is None else self.sweep),
            target_ttft_s=_number("target_ttft_s", self.target_ttft, 0.001, 86_400),
            target_request_s=_number("target_request_s", self.target_request, 0.001, 86_400),
            as_chat=self.as_chat is True,
            page_size=checked_int("page_size", self.page_size, 4, 4096),
            num_pages=None if pages is None else checked_int("num_pages", pages, 1, 1_000_000),
            time_budget_s=budget_s(self.budget_min),
        )


def _number(name: str, typed: Any, low: float, high: float) -> float | None:
    """A number that may be left out."""
    number = typed_number(name, typed)
    return None if number is None else checked_number(name, number, low, high)


def _optional(label: str, nothing: str, elem_id: str) -> gr.Textbox:
    """A number that may be left out."""
    return gr.Textbox(label=label, placeholder=nothing, max_lines=1, min_width=200, elem_id=elem_id)


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks; its own events are wired here."""
    rows = gr.State(())
    with gr.Column(elem_classes="kv-card", elem_id="compare-load-form"):
        with gr.Row(elem_id="compare-load-line"):
            source = gr.Radio(
                [TYPED, SHIPPED, UPLOADED],
                value=TYPED,
                label="Prompts, taken in turn",
                scale=6,
                min_width=260,
                elem_id="compare-load-source",
            )
            requests = gr.Number(
                REQUESTS, label="Requests at once", scale=1, min_width=150, elem_id="compare-load-requests"
            )
            new_tokens = gr.Number(
                NEW_TOKENS, label="New tokens", scale=1, min_width=104, elem_id="compare-load-new-tokens"
            )
            rounds = gr.Number(ROUNDS, label="Rounds", scale=1, min_width=90, elem_id="compare-load-rounds")
        typed = gr.Textbox(PROMPT, label="One prompt per line", lines=2, max_lines=10, elem_id="compare-load-typed")
        upload = choose_file("compare-load-upload", visible=False)
        modes, start, stop = run_line(
            lambda: gr.CheckboxGroup(
                [(mode.label, mode.key) for mode in HERE],
                value=list(CHOSEN),
                label="Ways to serve: the first is compared with each other one",
                scale=6,
                elem_id="compare-load-modes",
            ),
            "load",
        )
        with gr.Accordion("More settings", open=False, elem_id="compare-load-settings", elem_classes="kv-more"):
            with gr.Row(elem_classes="kv-budget-line"):
                rate = _optional("Requests a second", "all together", "compare-load-rate")
                sweep = gr.Textbox(
                    label="Further numbers of requests",
                    placeholder="none; or 1, 2, 4, 16",
                    min_width=220,
                    elem_id="compare-load-sweep",
                )
            with gr.Row(elem_classes="kv-budget-line"):
                target_ttft = _optional("Target, first token, s", "none", "compare-load-target-ttft")
                target_request = _optional("Target, complete request, s", "none", "compare-load-target-request")
            with gr.Row(elem_classes="kv-budget-line"):
                page_size = gr.Number(128, label="Tokens of a page", min_width=160, elem_id="compare-load-page-size")
                pages = _optional("Pages", "enough for all", "compare-load-num-pages")
                budget = gr.Number(
                    BUDGET_MIN,
                    label="Time budget, minutes (empty: none)",
                    min_width=200,
                    elem_id="compare-load-budget",
                )
            as_chat = gr.Checkbox(False, label="Send each prompt as a chat message", elem_id="compare-load-as-chat")
        server = server_fields(backend, settings, "compare-load")
        place = fragment(elem_id="compare-load-notice")
    fields = [
        *(source, typed, rows, requests, new_tokens, rounds, modes, rate, sweep),
        *(target_ttft, target_request, as_chat, page_size, pages, budget),
    ]
    source.input(show_source, source, [typed, upload], **LIGHT)
    uploading: Callable[..., dict[Any, Any]] = bound(uploaded, settings.limits.upload_bytes, rows, place)
    upload.upload(uploading, upload, [rows, place], **LIGHT)
    starts = (
        (requests, lambda wanted: min(wanted.at_once, MAX_REQUESTS) if wanted.at_once is not None else None),
        (new_tokens, lambda wanted: wanted.longest_answer_tokens),
        (target_request, target_here),
    )
    return Form(fields, start, stop, place, starts=starts, server=server)


def target_here(wanted: Workload) -> str | None:
    """Of the target what is left for the model, as it is typed; None where nobody said one, or nothing is left."""
    left_s = None if wanted.target_s is None else wanted.target_s - (wanted.other_s or 0.0)
    return None if left_s is None or left_s <= 0 else f"{left_s:.6g}"


def show_source(source: Any) -> list[Any]:
    """The box for typing, or the button for a file."""
    return [gr.update(visible=source == TYPED), gr.update(visible=source == UPLOADED)]


def uploaded(limit_bytes: int, rows: Any, place: Any, path: Any) -> dict[Any, Any]:
    """The prompts of a file, or what is wrong with it; then those of the file before stay."""
    try:
        name, found = uploaded_prompts(path, limit_bytes)
    except KvdemoError as error:
        return {place: notice(refusal(error))}
    return {rows: found.rows, place: notice(f"{name[:80]}: {len(found.rows):,} prompts.")}


def engine_card(result: LoadResult) -> str:
    """When to leave this page for an engine, and with which command."""
    commands = engine_commands(result)
    if not commands:
        return ""
    return Markup(
        '<div class="kv-card kv-verdict"><h2 class="kv-card-title">When is it time for a serving engine?</h2>'
        '<p class="kv-small">{}</p>{}</div>'
    ).format(text(WHEN), code_block(commands, wrapped=True))


PAGE = Page(
    form=form,
    read=lambda backend, *values: LoadForm(*values).spec(backend),
    figures=("timeline", "pages", "throughput", "latency"),
    live=lambda _spec, _rows: SoFar(words.so_far),
    aside=engine_card,
    labels={
        "requests": "Requests at once",
        "modes": "Served how?",
        "rate_per_s": "Requests a second",
        "sweep": "Further numbers of requests",
        "target_ttft_s": "Target, first token",
        "target_request_s": "Target, complete request",
        "page_size": "Tokens of a page",
        "num_pages": "Pages",
    },
)
