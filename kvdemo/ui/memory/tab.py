"""The tab Memory: how big the cache gets, for any model, length and number of users. Wires what memory_layout.py lays out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kvdemo.backend.protocol import Backend
from kvdemo.components.markup import text
from kvdemo.components.wiring import LIGHT, MODEL, SLOW, owner_of, stopping, unhurried
from kvdemo.errors import KvdemoError
from kvdemo.facts.plans import USUAL_BUDGET, Architecture, Budget
from kvdemo.settings import Settings
from kvdemo.ui.memory.form import MemoryForm, slider_place
from kvdemo.ui.memory.layout import MemoryParts, build
from kvdemo.ui.memory.links import asked_by, link_line
from kvdemo.ui.memory.measured import measure
from kvdemo.ui.memory.models import BY_HAND, CONFIG, HUB, LOADED, ModelChoice, can_be_typed, uploaded
from kvdemo.ui.memory.plans import Beside, hint, plan_view, problem
from kvdemo.ui.memory.words import budget_line, limit_mark, model_line

__all__ = ["PLACE", "MemoryTab", "build_memory_tab"]

PLACE = "memory"
CHOICE, BESIDE = 6, 2
"""How many values the model's choice and what stands beside the plan take of the form's."""
BUDGET = MemoryForm.names().index("budget_gib")

Chosen = tuple[tuple[Any, ...], Architecture]
"""A choice's key, and the geometry that was found for it."""


@dataclass(frozen=True, slots=True)
class MemoryTab:
    """What the page needs of the tab: what to do when it is opened or when the model has come, and what a link sets.

    budget   the budget where nobody has said one: another for another model, and when the accelerator is known
    """

    show: Callable[..., list[Any]]
    inputs: list[Any]
    outputs: list[Any]
    opened: Callable[[Mapping[str, Any]], list[Any]]
    linked: list[Any]
    budget: Callable[..., list[Any]]
    budget_inputs: list[Any]
    budget_outputs: list[Any]


def build_memory_tab(backend: Backend, settings: Settings) -> MemoryTab:
    """Lay out the tab inside the current Blocks and wire its events."""
    parts = build(backend, settings.mode)
    chosen, shown, measured = gr.State(None), gr.State(None), gr.State(())
    plan = _plan(backend)
    inputs = [chosen, shown, measured, *parts.choice, *parts.beside, *parts.form]
    outputs = [chosen, parts.about, parts.limit, parts.link, shown, *parts.drawn]
    changes = [part.change for part in (*parts.choice, *parts.beside, *parts.form)]
    gr.on(changes, plan, inputs, outputs, trigger_mode="always_last", **LIGHT)
    _wire_models(backend, settings, parts, [*inputs], [*outputs])
    seq_len = parts.form[0]
    parts.slider.input(from_slider, parts.slider, seq_len, trigger_mode="always_last", **LIGHT)
    seq_len.input(to_slider, seq_len, parts.slider, trigger_mode="always_last", **LIGHT)
    weighing_outputs = [parts.line, parts.card, measured, parts.weigh, parts.stop]
    weighing = parts.weigh.click(_measure(backend), seq_len, weighing_outputs, **MODEL)
    weighing.success(plan, inputs, outputs, **LIGHT)
    weighing.failure(lambda: _buttons(running=False), None, [parts.weigh, parts.stop], **LIGHT)
    parts.stop.click(stopping(backend, PLACE), **LIGHT)
    budget, budgets = _budget(backend), [parts.form[BUDGET], parts.usual, parts.budget_from]
    asking = [parts.choice[0], *budgets[:2]]
    parts.choice[0].change(budget, asking, budgets, **LIGHT)
    linked = [parts.link_notice, parts.slider, *parts.choice, *parts.beside, *parts.form, *budgets[1:]]
    return MemoryTab(plan, inputs, outputs, _opened(backend, settings), linked, budget, asking, budgets)


def _wire_models(
    backend: Backend, settings: Settings, parts: MemoryParts, inputs: list[Any], outputs: list[Any]
) -> None:
    """The model's fields: which are seen, and the two that are asked for by a button."""
    model, _, layers, kv_heads, head_dim, _ = parts.choice
    notice = parts.drawn[0]
    boxes = [parts.config_box, parts.hub_box, parts.hand_box, parts.use_hand]
    model.change(fields_of_model, [model, inputs[1]], [*boxes, notice], **LIGHT)
    asked = [parts.config, parts.hand_box, parts.use_hand, layers, kv_heads, head_dim, *outputs]
    read = _read(backend)
    parts.read.click(read, [parts.config, *inputs], asked, **SLOW)
    parts.ask.click(read, [parts.config, *inputs], asked, **SLOW)
    parts.upload.upload(_upload(backend, settings.limits.upload_bytes), [parts.upload, *inputs], asked, **SLOW)
    parts.use_hand.click(lambda: BY_HAND, None, model, **LIGHT)


def _plan(backend: Backend) -> Callable[..., list[Any]]:
    def plan(chosen: Chosen | None, shown: Any, measured: Any, *values: Any) -> list[Any]:
        """The plan for the form as it is now; the model's geometry is found when another one was chosen."""
        choice, beside, form = _split(values, measured)
        if choice.asks and (chosen is None or chosen[0] != key_of(choice)):
            return _skipped()
        if choice.model == BY_HAND and not choice.complete:
            return _skipped(notice=hint("Type the number of layers, of KV heads, and head_dim.", shown))
        try:
            return _answer(backend, chosen, choice, beside, form, shown)
        except KvdemoError as error:
            return _skipped(notice=problem(error, shown))

    return plan


def _budget(backend: Backend) -> Callable[..., list[Any]]:
    def budget(model: Any, budget_gib: Any, usual_gib: Any) -> list[Any]:
        """The usual budget for this choice of a model, in the place of the one before; one that somebody typed stays."""
        usual = _usual(backend, model)
        if usual.gib == usual_gib:
            return [gr.skip() for _ in range(3)]
        return [usual.gib if budget_gib == usual_gib else gr.skip(), usual.gib, budget_line(usual)]

    return budget


def _usual(backend: Backend, model: Any) -> Budget:
    return backend.usual_budget() if model == LOADED else USUAL_BUDGET


def _read(backend: Backend) -> Callable[..., Iterator[list[Any]]]:
    def read(config: Any, chosen: Any, shown: Any, measured: Any, *values: Any) -> Iterator[list[Any]]:
        """The geometry of a config.json, or of the hub's: the model's own code is asked, which takes a moment."""
        choice, beside, form = _split(values, measured)
        words = "Asking the hub for its config.json." if choice.model == HUB else "Reading the config."
        yield [*_untouched(), *_skipped(notice=hint(f"{words} The model's own code is asked: a moment.", shown))]
        try:
            found = (key_of(choice), choice.architecture(backend, config))
            answer = _answer(backend, found, choice, beside, form, shown, new=True)
        except KvdemoError as error:
            typed = _to_type(backend, config) if choice.model == CONFIG and can_be_typed(error) else _untouched()[1:]
            yield [gr.skip(), *typed, *_skipped(notice=problem(error, shown))]
            return
        yield [gr.skip(), gr.update(visible=False), gr.update(visible=False), *_untouched()[3:], *answer]

    return read


def _upload(backend: Backend, limit_bytes: int) -> Callable[..., Iterator[list[Any]]]:
    read = _read(backend)

    def upload(path: Any, chosen: Any, shown: Any, *values: Any) -> Iterator[list[Any]]:
        """The text of an uploaded file goes where a pasted one would be; the file is deleted."""
        try:
            config = uploaded(path, limit_bytes)
        except KvdemoError as error:
            yield [*_untouched(), *_skipped(notice=problem(error, shown))]
            return
        for first, *rest in read(config, chosen, shown, *values):
            yield [config if first == gr.skip() else first, *rest]

    return upload


def _answer(
    backend: Backend,
    chosen: Chosen | None,
    choice: ModelChoice,
    beside: Beside,
    form: MemoryForm,
    shown: Any,
    *,
    new: bool = False,
) -> list[Any]:
    """The outputs of a plan, those of the model only where it is a new one."""
    if chosen is None or chosen[0] != key_of(choice):
        chosen, new = (key_of(choice), choice.architecture(backend)), True
    geometry = chosen[1]
    view = plan_view(backend, geometry, form, beside, shown)
    good = view.notice == ""
    link = link_line(choice, form, beside) if good else gr.skip()
    about = [chosen, model_line(geometry), limit_mark(geometry)] if new else [gr.skip(), gr.skip(), gr.skip()]
    return [*about, link, *view.parts()]


def _split(values: tuple[Any, ...], measured: Any) -> tuple[ModelChoice, Beside, MemoryForm]:
    choice = ModelChoice(*values[:CHOICE])
    by, names = values[CHOICE : CHOICE + BESIDE]
    points = tuple(measured or ()) if choice.model == LOADED else ()
    return choice, Beside(by, names or (), points), MemoryForm(*values[CHOICE + BESIDE :])


def key_of(choice: ModelChoice) -> tuple[Any, ...]:
    """What a geometry was found for: of a config.json or a hub id that a button has read it, else the choice itself."""
    if choice.model == BY_HAND:
        return (BY_HAND, choice.layers, choice.kv_heads, choice.head_dim, choice.parameters)
    return (choice.model,)


def fields_of_model(model: Any, shown: Any) -> list[Any]:
    """Which fields a choice of the model needs, and what to do with them."""
    seen = [gr.update(visible=model == kind) for kind in (CONFIG, HUB, BY_HAND)]
    words = {
        CONFIG: "Paste the config.json of a model and press Read it, or upload the file.",
        HUB: "Type a hub id and press Fetch its config.json. Nothing else is fetched.",
    }.get(model if isinstance(model, str) else "")
    return [*seen, gr.update(visible=False), hint(words, shown) if words else gr.skip()]


def from_slider(power: float) -> int:
    """A length with three figures, as people say them; powers of two stay exact."""
    exact = round(2**power)
    if abs(power - round(power)) < 1e-9 or exact < 1000:
        return exact
    digits = len(str(exact)) - 3
    return round(exact, -digits)


def to_slider(seq_len: Any) -> Any:
    place = slider_place(seq_len)
    return gr.skip() if place is None else place


def _to_type(backend: Backend, config: Any) -> list[Any]:
    """The fields for typing by hand, filled with what the refused config says about itself."""
    said = backend.fields_of_config(config) if isinstance(config, str) else {}
    heads = said.get("kv_heads")
    return [
        gr.update(visible=True),
        gr.update(visible=True),
        said.get("layers"),
        "" if heads is None else str(heads),
        said.get("head_dim"),
    ]


def _untouched() -> list[Any]:
    """The config's text and the five parts for typing by hand, as they are."""
    return [gr.skip() for _ in range(6)]


def _skipped(notice: Any = None) -> list[Any]:
    """Every output of a plan as it is, but for the notice."""
    return [*(gr.skip() for _ in range(5)), gr.skip() if notice is None else notice, *(gr.skip() for _ in range(7))]


def _measure(backend: Backend) -> Callable[..., Iterator[list[Any]]]:
    def measure_caches(seq_len: Any, request: gr.Request) -> Iterator[list[Any]]:
        for now in unhurried(measure(backend, owner_of(request, PLACE), seq_len)):
            card, points = (gr.skip() if part is None else part for part in (now.card, now.points))
            yield [now.line, card, points, *_buttons(running=not now.done)]

    measure_caches.__name__ = "measure"
    return measure_caches


def _buttons(*, running: bool) -> list[Any]:
    return [gr.update(visible=not running), gr.update(visible=running)]


def _opened(backend: Backend, settings: Settings) -> Callable[[Mapping[str, Any]], list[Any]]:
    known = backend.catalogue()

    def opened(query: Mapping[str, Any]) -> list[Any]:
        """The form that the address asks for, and what in it could not be read."""
        machine = backend.usual_budget()
        asked = asked_by(query, known, hub=settings.mode == "local", machine_gib=machine.gib)
        words = " ".join(f"{problem}." for problem in asked.problems)
        notice = (
            f'<div class="kv-notice" role="alert">The link could not be read as a whole. {text(words)}</div>'
            if words
            else ""
        )
        choice, form = asked.choice, asked.form
        return [
            notice,
            to_slider(form.seq_len),
            *(choice.model, choice.hub_id, choice.layers, choice.kv_heads, choice.head_dim, choice.parameters),
            *(asked.beside.by, list(asked.beside.models)),
            *(getattr(form, name) for name in MemoryForm.names()),
            *((usual := _usual(backend, choice.model)).gib, budget_line(usual)),
        ]

    return opened
