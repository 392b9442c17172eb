"""A server in the place of the model that is loaded here: address, model and key, as fields of a form.

The key goes with the request that it is typed for, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_values import refusal
from kvdemo.components.markup import fragment, text
from kvdemo.components.wiring import LIGHT, Updates, bound
from kvdemo.errors import KvdemoError
from kvdemo.experiments.question import FormBackend
from kvdemo.facts.endpoint import Endpoint
from kvdemo.settings import Settings

__all__ = ["SERVER_LABELS", "ServerFields", "address_field", "model_and_key", "server_fields", "server_in"]

SERVER_LABELS = {"url": "Address", "model": "Model", "key": "Key"}
LEFT_OUT = (
    "With an address here, that server is asked, and not the model above. What it does not say of its cache is shown as "
    "not reported."
)
ServerFields = list[Any]
"""[address, model, key]: components, in the order in which `server_in` takes their values."""


def server_in(values: Sequence[Any]) -> Endpoint | None:
    """The server that the fields name; None without an address. InvalidRequest names the field."""
    url, model, key = (value.strip() if isinstance(value, str) else "" for value in (*values, "", "", "")[:3])
    return Endpoint(url, model or None, key or None) if url else None


def server_fields(backend: FormBackend, settings: Settings, place: str) -> ServerFields:
    """Folded away, in the current Blocks. Where no server may be asked, nobody sees them."""
    usable = settings.mode == "local" or bool(settings.allowed_endpoints)
    with gr.Accordion(
        "Ask a server instead", open=False, visible=usable, elem_id=f"{place}-server", elem_classes="kv-more"
    ):
        url = address_field(place)
        model, key = model_and_key(backend, place, url, LEFT_OUT)
    return [url, model, key]


def address_field(place: str) -> gr.Textbox:
    return gr.Textbox(
        label="Address of an OpenAI-compatible server",
        placeholder="http://127.0.0.1:8000/v1",
        max_lines=1,
        scale=6,
        elem_id=f"{place}-url",
    )


def model_and_key(backend: FormBackend, place: str, url: gr.Textbox, words: str = "") -> tuple[gr.Dropdown, gr.Textbox]:
    """The models are listed as soon as the address is known. words: what stands below before."""
    with gr.Row(elem_classes="kv-budget-line"):
        model = gr.Dropdown(
            [],
            value=None,
            label="Model (empty: the first that it lists)",
            allow_custom_value=True,
            scale=3,
            min_width=200,
            elem_id=f"{place}-model",
        )
        key = gr.Textbox(
            label="Key, for this run only; kept nowhere",
            type="password",
            max_lines=1,
            scale=3,
            min_width=200,
            elem_id=f"{place}-key",
        )
    below = fragment(_said(words), elem_id=f"{place}-server-words")
    listing = bound(list_models, backend, model, below, words)
    gr.on([url.submit, url.blur, key.blur], listing, [url, key], [model, below], trigger_mode="always_last", **LIGHT)
    return model, key


def list_models(
    backend: FormBackend, model: gr.Dropdown, below: gr.Markdown, words: str, url: Any, key: Any
) -> Updates:
    """What the server lists, or why it does not."""
    try:
        server = server_in((url, "", key))
        if server is None:
            return {model: gr.update(choices=[]), below: _said(words)}
        found = backend.endpoint_models(server)
    except KvdemoError as error:
        return {model: gr.update(choices=[]), below: _said(refusal(error, SERVER_LABELS), "alert")}
    names = [item.name for item in found]
    count = "one model" if len(names) == 1 else f"{len(names):,} models"
    return {model: gr.update(choices=names), below: _said(f"It answers, and lists {count}: {', '.join(names)[:300]}.")}


def _said(words: str, role: str = "status") -> str:
    return Markup('<p class="kv-small" role="{}">{}</p>').format(role, text(words)) if words else ""
