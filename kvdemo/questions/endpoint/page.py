"""Is my endpoint caching? The form: its address, the model and the key, and what may be spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_parts import run_line
from kvdemo.components.markup import fragment, text
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.question import Form, FormBackend, Page
from kvdemo.facts.endpoint import Endpoint
from kvdemo.facts.requests import checked_int, checked_number
from kvdemo.questions.endpoint.live import EndpointRun, verdict_card
from kvdemo.questions.endpoint.spec import REQUESTS, SECONDS, TOKENS, EndpointResult, EndpointSpec
from kvdemo.questions.endpoint.words import settling
from kvdemo.settings import Settings

__all__ = ["PAGE", "EndpointForm", "form"]


@dataclass(frozen=True, slots=True)
class EndpointForm:
    """The settings as they come from the form, unchecked."""

    url: Any = ""
    model: Any = ""
    key: Any = field(default="", repr=False)
    requests: Any = REQUESTS
    tokens: Any = TOKENS
    seconds: Any = SECONDS

    def endpoint(self) -> Endpoint:
        """The server, with the key that was typed: it lives as long as this object."""
        url, model, key = (part.strip() if isinstance(part, str) else "" for part in (self.url, self.model, self.key))
        if not url:
            raise InvalidRequest("url", "give the address of an OpenAI-compatible server")
        return Endpoint(url, model or None, key or None)

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
        url, start, stop = run_line(
            lambda: gr.Textbox(
                label="Address of an OpenAI-compatible server",
                placeholder="http://127.0.0.1:8000/v1",
                max_lines=1,
                scale=6,
                elem_id="compare-endpoint-url",
            ),
            "endpoint",
        )
        with gr.Row(elem_classes="kv-budget-line"):
            model = gr.Textbox(
                label="Model (empty: the first that it lists)",
                max_lines=1,
                scale=3,
                min_width=220,
                elem_id="compare-endpoint-model",
            )
            key = gr.Textbox(
                label="Key, for this run only; kept nowhere",
                type="password",
                max_lines=1,
                scale=3,
                min_width=220,
                elem_id="compare-endpoint-key",
            )
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
    return Form([url, model, key, requests, tokens, seconds], start, stop, place)


def settle_card(result: EndpointResult) -> str:
    """Beside the last chart: what would settle each of them."""
    lines = Markup("").join(Markup("<p>{}</p>").format(text(line)) for line in settling(result))
    return Markup('<div class="kv-card kv-verdict"><h2 class="kv-card-title">What would settle it</h2>{}</div>').format(
        lines
    )


PAGE = Page(
    form=form,
    read=lambda _backend, *values: EndpointForm(*values).spec(),
    endpoint=lambda *values: EndpointForm(*values).endpoint(),
    figures=("steps", "pairs", "together"),
    live=lambda _spec, _rows: EndpointRun(),
    finished=verdict_card,
    aside=settle_card,
    lines=False,
    labels={
        "requests": "Requests",
        "tokens": "Tokens",
        "seconds": "Seconds",
        "url": "Address",
        "model": "Model",
        "key": "Key",
    },
)
