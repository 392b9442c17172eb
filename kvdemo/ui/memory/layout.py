"""The parts of the tab Memory and where they stand: the form on the left, the answer on the right. Wires nothing."""

from __future__ import annotations

import math
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import fragment
from kvdemo.facts.plans import CACHE_DTYPES
from kvdemo.ui.memory.form import (
    AS_MODEL,
    GROWS,
    KEEPINGS,
    LONGEST_LOG2,
    SHORTEST_LOG2,
    WEIGHTS,
    MemoryForm,
)
from kvdemo.ui.memory.models import LOADED, MOST_OTHERS, choices
from kvdemo.ui.memory.parts import MemoryParts
from kvdemo.ui.memory.words import budget_line, limit_mark

__all__ = ["build"]

FIRST = MemoryForm()
STATES: dict[str, Any] = {"geometry": None, "shown": None, "measured": (), "looked": False}
EMPTY = Markup(
    '<div class="kv-card kv-headline kv-headline-empty"><p>'
    "The answer stands here: how big the cache gets, how it grows, where it sits and "
    "what fits.</p></div>"
)


def build(backend: Backend, mode: str) -> MemoryParts:
    """Lay out the tab inside the current Blocks."""
    with gr.Row(elem_classes="kv-columns", elem_id="memory-columns"):
        with gr.Column(scale=3, min_width=260, elem_classes="kv-card", elem_id="memory-form"):
            left = _form(backend, mode)
        with gr.Column(scale=10, min_width=320, elem_id="memory-results"):
            right = _results()
    beside = {"by": right.pop("by"), "models": left.pop("others")}
    states = {name: gr.State(value) for name, value in STATES.items()}
    return MemoryParts(**left, **right, **states, beside=beside)


def _form(backend: Backend, mode: str) -> dict[str, Any]:
    usual = backend.usual_budget()
    link_notice = fragment(elem_id="memory-link-notice")
    parts = _model(backend, mode)
    seq_len = gr.Number(FIRST.seq_len, label="Sequence length, tokens", elem_id="memory-length")
    with gr.Column(elem_id="memory-slider-box"):
        slider = gr.Slider(
            SHORTEST_LOG2,
            LONGEST_LOG2,
            value=math.log2(FIRST.seq_len),
            step=0.05,
            label="Sequence length as a power of two",
            show_label=False,
            container=False,
            elem_id="memory-slider",
        )
        limit = fragment(limit_mark(None), elem_id="memory-limit")
    batch = gr.Number(FIRST.batch_size, label="Requests at once", elem_id="memory-batch")
    keeping = gr.Dropdown(
        [(label, key) for key, label in KEEPINGS.items()],
        value=FIRST.keeping,
        label="Cache",
        filterable=False,
        elem_id="memory-keeping",
    )
    dtype = gr.Dropdown(
        [AS_MODEL, *CACHE_DTYPES],
        value=FIRST.cache_dtype,
        label="Cache dtype",
        filterable=False,
        elem_id="memory-dtype",
    )
    with gr.Row(elem_classes="kv-pair"):
        budget = gr.Number(usual.gib, label="Budget, GiB", min_width=100, elem_id="memory-budget")
        free = gr.Number(FIRST.keep_free_percent, label="Keep free, %", min_width=100, elem_id="memory-free")
    budget_from = fragment(budget_line(usual), elem_id="memory-budget-from")
    page_size = gr.Number(FIRST.page_tokens, label="Page of an engine, tokens", elem_id="memory-page-size")
    others = gr.Dropdown(
        backend.catalogue(),
        value=[],
        multiselect=True,
        max_choices=MOST_OTHERS,
        label="Beside it in the chart, up to three",
        elem_id="memory-others",
    )
    with gr.Accordion("More settings", open=False, elem_id="memory-settings", elem_classes="kv-more"):
        weights = gr.Dropdown(
            list(WEIGHTS),
            value=AS_MODEL,
            label="Weights dtype",
            info="As the model: as published; of the loaded model, as loaded.",
            filterable=False,
            elem_id="memory-weights",
        )
        devices = gr.Number(
            1,
            label="Devices (tensor parallel)",
            info="KV heads and weights are divided; figures are those of one device.",
            elem_id="memory-parallel",
        )
        encoder = gr.Number(
            None,
            label="Encoder length, tokens",
            info="For encoder-decoders: what cross-attention keeps. Empty: the model's own.",
            elem_id="memory-encoder",
        )
    weigh = gr.Button("Measure on the loaded model", elem_id="memory-measure")
    stop = gr.Button("Stop", visible=False, elem_id="memory-stop")
    line = fragment(elem_id="memory-line")
    link = fragment(elem_id="memory-link")
    return parts | {
        "link_notice": link_notice,
        "slider": slider,
        "limit": limit,
        "form": {
            "seq_len": seq_len,
            "batch_size": batch,
            "keeping": keeping,
            "cache_dtype": dtype,
            "budget_gib": budget,
            "keep_free_percent": free,
            "weights_dtype": weights,
            "tensor_parallel": devices,
            "encoder_len": encoder,
            "page_tokens": page_size,
        },
        "budget_from": budget_from,
        "usual": gr.State(usual.gib),
        "others": others,
        "weigh": weigh,
        "stop": stop,
        "line": line,
        "link": link,
    }


def _model(backend: Backend, mode: str) -> dict[str, Any]:
    model = gr.Dropdown(choices(backend, mode), value=LOADED, label="Model", elem_id="memory-model")
    with gr.Column(visible=False, elem_id="memory-config-box", elem_classes="kv-box") as config_box:
        config = gr.Textbox(
            label="config.json", lines=6, max_lines=12, placeholder='{ "model_type": ... }', elem_id="memory-config"
        )
        with gr.Row(elem_classes="kv-pair"):
            upload = gr.UploadButton(
                "Upload", type="filepath", file_types=[".json"], size="sm", min_width=80, elem_id="memory-upload"
            )
            read = gr.Button("Read it", size="sm", min_width=80, elem_id="memory-read")
    with gr.Column(visible=False, elem_id="memory-hub-box", elem_classes="kv-box") as hub_box:
        hub = gr.Textbox(label="Hub id", placeholder="owner/name", max_lines=1, elem_id="memory-hub")
        ask = gr.Button("Fetch its config.json", size="sm", elem_id="memory-ask")
    with gr.Column(visible=False, elem_id="memory-hand-box", elem_classes="kv-box") as hand_box:
        with gr.Row(elem_classes="kv-pair"):
            layers = gr.Number(None, label="Layers", min_width=80, elem_id="memory-layers-typed")
            head_dim = gr.Number(None, label="head_dim", min_width=80, elem_id="memory-head-dim")
        kv_heads = gr.Textbox(
            label="KV heads", placeholder="8, or one per layer: 8, 8, 4 ...", max_lines=2, elem_id="memory-kv-heads"
        )
        parameters = gr.Number(None, label="Parameters, billions (for the weights)", elem_id="memory-parameters")
        use_hand = gr.Button("Use these numbers", size="sm", visible=False, elem_id="memory-use-hand")
    about = fragment(elem_id="memory-about")
    return {
        "choice": {
            "model": model,
            "hub_id": hub,
            "layers": layers,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "parameters": parameters,
        },
        "config": config,
        "upload": upload,
        "read": read,
        "config_box": config_box,
        "hub_box": hub_box,
        "ask": ask,
        "hand_box": hand_box,
        "use_hand": use_hand,
        "about": about,
    }


def _results() -> dict[str, Any]:
    notice = fragment(elem_id="memory-notice")
    headline = fragment(EMPTY, elem_id="memory-headline")
    with gr.Row(elem_id="memory-answer", elem_classes="kv-columns"):
        with gr.Column(scale=5, min_width=320, elem_id="memory-wide"):
            with gr.Column(elem_classes="kv-card kv-chart"):
                by = gr.Radio(
                    [(label, key) for key, label in GROWS.items()],
                    value="length",
                    label="Grows with",
                    show_label=False,
                    container=False,
                    elem_id="memory-by",
                )
                growth = gr.Plot(show_label=False, container=False, elem_id="memory-growth")
            arithmetic = fragment(elem_id="memory-arithmetic")
            figures = fragment(elem_id="memory-figures")
        with gr.Column(scale=3, min_width=280, elem_id="memory-narrow"):
            with gr.Column(elem_classes="kv-card kv-chart"):
                layers = gr.Plot(show_label=False, container=False, elem_id="memory-layers")
            fits = fragment(elem_id="memory-fits")
            with gr.Column(elem_classes="kv-card kv-chart"):
                sharing = gr.Plot(show_label=False, container=False, elem_id="memory-sharing")
    card = fragment(elem_id="memory-measured")
    return {
        "by": by,
        "notice": notice,
        "headline": headline,
        "growth": growth,
        "layers": layers,
        "arithmetic": arithmetic,
        "fits": fits,
        "sharing": sharing,
        "figures": figures,
        "card": card,
    }
