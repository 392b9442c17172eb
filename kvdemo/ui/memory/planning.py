"""The plan for the form as it is now, part by part: only what changes is sent."""

from __future__ import annotations

from typing import Any

from kvdemo.backend.protocol import Backend
from kvdemo.components.wiring import Updates, updates
from kvdemo.errors import KvdemoError
from kvdemo.facts.plans import Architecture
from kvdemo.ui.memory.form import MemoryForm
from kvdemo.ui.memory.links import link_line
from kvdemo.ui.memory.models import BY_HAND, LOADED, ModelChoice
from kvdemo.ui.memory.parts import MemoryParts
from kvdemo.ui.memory.plans import Beside, Shown, hint, plan_view, problem
from kvdemo.ui.memory.words import limit_mark, model_line

__all__ = ["Found", "answer", "asked_by_form", "key_of", "plan", "planned"]

CHOICE, BESIDE = 6, 2
"""How many values the model's choice and what stands beside the plan take of the form's."""

Found = tuple[tuple[Any, ...], Architecture]
"""A choice's key, and the geometry that was found for it."""


def plan(
    parts: MemoryParts, backend: Backend, found: Found | None, shown: Shown | None, measured: Any, *values: Any
) -> Updates:
    """What another value of the form changes."""
    return updates(planned(parts, backend, found, shown, measured, *values))


def planned(
    parts: MemoryParts, backend: Backend, found: Found | None, shown: Shown | None, measured: Any, *values: Any
) -> Updates:
    """The plan for these values, or why there is none; the model's geometry is found when another one was chosen."""
    choice, beside, form = asked_by_form(values, measured)
    if choice.asks and (found is None or found[0] != key_of(choice)):
        return {}
    if choice.model == BY_HAND and not choice.complete:
        return {parts.notice: hint("Type the number of layers, of KV heads, and head_dim.", shown)}
    try:
        if found is not None and found[0] == key_of(choice):
            return answer(parts, backend, found[1], choice, beside, form, shown)
        return answer(parts, backend, choice.architecture(backend), choice, beside, form, shown, new=True)
    except KvdemoError as error:
        return {parts.notice: problem(error, shown)}


def answer(
    parts: MemoryParts,
    backend: Backend,
    geometry: Architecture,
    choice: ModelChoice,
    beside: Beside,
    form: MemoryForm,
    shown: Shown | None,
    *,
    new: bool = False,
) -> Updates:
    """A plan as values of the components. new: the model is another one than before."""
    view = plan_view(backend, geometry, form, beside, shown)
    changes: Updates = {getattr(parts, name): value for name, value in view.items()}
    if view["notice"] == "":
        changes[parts.link] = link_line(choice, form, beside)
    if new:
        changes |= {
            parts.geometry: (key_of(choice), geometry),
            parts.about: model_line(geometry),
            parts.limit: limit_mark(geometry),
        }
    return changes


def asked_by_form(values: tuple[Any, ...], measured: Any) -> tuple[ModelChoice, Beside, MemoryForm]:
    """The form's values, in its order. Measured points belong to the loaded model alone."""
    choice = ModelChoice(*values[:CHOICE])
    by, names = values[CHOICE : CHOICE + BESIDE]
    points = tuple(measured or ()) if choice.model == LOADED else ()
    return choice, Beside(by, names or (), points), MemoryForm(*values[CHOICE + BESIDE :])


def key_of(choice: ModelChoice) -> tuple[Any, ...]:
    """What a geometry was found for: of a config.json or a hub id that a button has read it, else the choice itself."""
    if choice.model == BY_HAND:
        return (BY_HAND, choice.layers, choice.kv_heads, choice.head_dim, choice.parameters)
    return (choice.model,)
