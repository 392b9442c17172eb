"""Is my endpoint caching? The form: its address, the model and the key, and what may be spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_parts import run_line
from kvdemo.components.markup import fragment, text
from kvdemo.components.server_fields import address_field, model_and_key
from kvdemo.experiments.question import Form, FormBackend, Page
from kvdemo.facts.requests import checked_int, checked_number
from kvdemo.questions.endpoint.live import EndpointRun, verdict_card
from kvdemo.questions.endpoint.spec import REQUESTS, SECONDS, TOKENS, EndpointResult, EndpointSpec
from kvdemo.questions.endpoint.words import settling
from kvdemo.settings import Settings

__all__ = ["PAGE", "EndpointForm", "form"]


@dataclass(frozen=True, slots=True)
class EndpointForm:
    """The settings as they come from the form, unchecked."""

    requests: Any = REQUESTS
    tokens: Any = TOKENS
    seconds: Any = SECONDS

    def spec(self) -> EndpointSpec:
        """Checked; InvalidRequest names the field."""
        return EndpointSpec(
            requests=checked_int("requests", self.requests, 1, 10_000),
            tokens=checked_int("tokens", self.tokens, 1, 100_000_000),
            seconds=checked_number("seconds", self.seconds, 1, 86_400),
        )


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks."""
    with gr.Column(elem_classes="kv-card", elem_id="compare-endpoint-form"):
        url, start, stop = run_line(lambda: address_field("compare-endpoint"), "endpoint")
        model, key = model_and_key(backend, "compare-endpoint", url)
        with (
            gr.Accordion("What may be spent", open=False, elem_id="compare-endpoint-settings", elem_classes="kv-more"),
            gr.Row(elem_classes="kv-budget-line"),
        ):
            requests = gr.Number(REQUESTS, label="Requests", min_width=150, elem_id="compare-endpoint-requests")
            tokens = gr.Number(
                TOKENS, label="Tokens, prompts and answers", min_width=200, elem_id="compare-endpoint-tokens"
            )
            seconds = gr.Number(SECONDS, label="Seconds", min_width=150, elem_id="compare-endpoint-seconds")
        place = fragment(elem_id="compare-endpoint-notice")
    return Form([requests, tokens, seconds], start, stop, place, server=[url, model, key])


def settle_card(result: EndpointResult) -> str:
    """Beside the last chart: what would settle each of them."""
    lines = Markup("").join(Markup("<p>{}</p>").format(text(line)) for line in settling(result))
    return Markup('<div class="kv-card kv-verdict"><h2 class="kv-card-title">What would settle it</h2>{}</div>').format(
        lines
    )


PAGE = Page(
    form=form,
    read=lambda _backend, *values: EndpointForm(*values).spec(),
    figures=("steps", "pairs", "together"),
    live=lambda _spec, _rows: EndpointRun(),
    finished=verdict_card,
    aside=settle_card,
    lines=False,
    labels={
        "requests": "Requests",
        "tokens": "Tokens",
        "seconds": "Seconds",
    },
)
