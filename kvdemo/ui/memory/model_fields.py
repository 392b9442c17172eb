"""The fields of the model's choice: which are seen, and the two kinds that a button reads, a config.json and a hub id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.wiring import LIGHT, SLOW, Updates, bound
from kvdemo.errors import KvdemoError
from kvdemo.settings import Settings
from kvdemo.ui.memory.models import BY_HAND, CONFIG, HUB, can_be_typed, uploaded
from kvdemo.ui.memory.parts import MemoryParts
from kvdemo.ui.memory.planning import answer, asked_by_form
from kvdemo.ui.memory.plans import Shown, hint, problem

__all__ = ["fields_of_model", "read", "upload", "wire_models"]


def wire_models(parts: MemoryParts, backend: Backend, settings: Settings) -> None:
    model = parts.choice["model"]
    boxes = [parts.config_box, parts.hub_box, parts.hand_box, parts.use_hand]
    model.change(bound(fields_of_model, parts), [model, parts.shown], [*boxes, parts.notice], **LIGHT)
    typed = [parts.choice[name] for name in ("layers", "kv_heads", "head_dim")]
    outputs = [parts.config, parts.hand_box, parts.use_hand, *typed, *parts.planned]
    gr.on(
        [parts.read.click, parts.ask.click], bound(read, parts, backend), [parts.config, *parts.asked], outputs, **SLOW
    )
    uploading = bound(upload, parts, backend, settings.limits.upload_bytes)
    parts.upload.upload(uploading, [parts.upload, *parts.asked], outputs, **SLOW)
    parts.use_hand.click(choose_by_hand, None, model, **LIGHT)


def fields_of_model(parts: MemoryParts, model: Any, shown: Shown | None) -> Updates:
    """Which fields a choice of the model needs, and what to do with them."""
    boxes = {CONFIG: parts.config_box, HUB: parts.hub_box, BY_HAND: parts.hand_box}
    seen: Updates = {box: gr.update(visible=model == kind) for kind, box in boxes.items()}
    words = {
        CONFIG: "Paste the config.json of a model and press Read it, or upload the file.",
        HUB: "Type a hub id and press Fetch its config.json. Nothing else is fetched.",
    }.get(model if isinstance(model, str) else "")
    noticed = {parts.notice: hint(words, shown)} if words else {}
    return {**seen, parts.use_hand: gr.update(visible=False), **noticed}


def choose_by_hand() -> str:
    return BY_HAND


def read(
    parts: MemoryParts, backend: Backend, config: Any, found: Any, shown: Shown | None, measured: Any, *values: Any
) -> Iterator[Updates]:
    """The geometry of a config.json, or of the hub's: the model's own code is asked, which takes a moment."""
    choice, beside, form = asked_by_form(values, measured)
    words = "Asking the hub for its config.json." if choice.model == HUB else "Reading the config."
    yield {parts.notice: hint(f"{words} The model's own code is asked: a moment.", shown)}
    try:
        geometry = choice.architecture(backend, config)
        planned = answer(parts, backend, geometry, choice, beside, form, shown, new=True)
    except KvdemoError as error:
        typed = to_type(parts, backend, config) if choice.model == CONFIG and can_be_typed(error) else {}
        yield {**typed, parts.notice: problem(error, shown)}
        return
    yield {parts.hand_box: gr.update(visible=False), parts.use_hand: gr.update(visible=False), **planned}


def upload(
    parts: MemoryParts,
    backend: Backend,
    limit_bytes: int,
    path: Any,
    found: Any,
    shown: Shown | None,
    measured: Any,
    *values: Any,
) -> Iterator[Updates]:
    """The text of an uploaded file goes where a pasted one would be; the file is deleted."""
    try:
        config = uploaded(path, limit_bytes)
    except KvdemoError as error:
        yield {parts.notice: problem(error, shown)}
        return
    for changes in read(parts, backend, config, found, shown, measured, *values):
        yield {parts.config: config, **changes}


def to_type(parts: MemoryParts, backend: Backend, config: Any) -> Updates:
    """The fields for typing by hand, filled with what the refused config says about itself."""
    said = backend.fields_of_config(config) if isinstance(config, str) else {}
    heads = said.get("kv_heads")
    return {
        parts.hand_box: gr.update(visible=True),
        parts.use_hand: gr.update(visible=True),
        parts.choice["layers"]: said.get("layers"),
        parts.choice["kv_heads"]: "" if heads is None else str(heads),
        parts.choice["head_dim"]: said.get("head_dim"),
    }
