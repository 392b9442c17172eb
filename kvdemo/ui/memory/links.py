"""Memory's numbers in the address: what the form says as a link, and a link as values of the form.

An address is typed by anybody. What it asks for is checked like any input; what cannot be is said and left at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kvdemo.components.markup import link_to_copy
from kvdemo.errors import InvalidRequest, KvdemoError
from kvdemo.facts.plans import CACHE_DTYPES, MAX_BATCH, MAX_LENGTH, MOST_PAGE_TOKENS, USUAL_BUDGET
from kvdemo.facts.requests import checked_choice, checked_int, checked_number, checked_text
from kvdemo.ui.memory.form import AS_MODEL, GROWS, KEEPINGS, WEIGHTS, MemoryForm
from kvdemo.ui.memory.models import BY_HAND, CONFIG, HUB, LOADED, MOST_OTHERS, ModelChoice, heads_of
from kvdemo.ui.memory.plans import Beside

__all__ = ["Asked", "asked_by", "link_line", "query_of"]

MOST_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for, as far as there is such a thing; `problems` says in words what was left at its default."""

    choice: ModelChoice
    form: MemoryForm
    beside: Beside
    problems: tuple[str, ...] = ()


def query_of(choice: ModelChoice, form: MemoryForm, beside: Beside) -> str:
    """The form as the query of an address; defaults that nobody looks for are left out."""
    usual = MemoryForm()
    pairs: list[tuple[str, Any]] = [("tab", "memory")]
    if choice.model == BY_HAND:
        typed = {"layers": choice.layers, "kv_heads": choice.kv_heads, "head_dim": choice.head_dim}
        pairs += [(name, value) for name, value in (typed | {"parameters": choice.parameters}).items() if value]
    elif choice.model == HUB:
        pairs.append(("hub", choice.hub_id))
    elif choice.model not in (LOADED, CONFIG):
        pairs.append(("model", choice.model))
    pairs += [("seq_len", form.seq_len), ("batch", form.batch_size)]
    further = {
        "cache": (form.keeping, usual.keeping),
        "dtype": (form.cache_dtype, usual.cache_dtype),
        "free": (form.keep_free_percent, usual.keep_free_percent),
        "weights": (form.weights_dtype, usual.weights_dtype),
        "devices": (form.tensor_parallel, usual.tensor_parallel),
        "encoder": (form.encoder_len, usual.encoder_len),
        "page_size": (form.page_tokens, usual.page_tokens),
        "by": (beside.by, "length"),
    }
    pairs += [(name, value) for name, (value, default) in further.items() if value != default]
    pairs.append(("budget", "none" if form.budget_gib is None else form.budget_gib))
    pairs += [("with", name) for name in beside.models or ()]
    return "?" + urlencode([(name, _written(value)) for name, value in pairs])


def link_line(choice: ModelChoice, form: MemoryForm, beside: Beside) -> str:
    """The link of the present state, to open or to copy."""
    lacking = "A config.json is no part of it." if choice.model == CONFIG else ""
    return link_to_copy(query_of(choice, form, beside), "Link to these numbers", lacking)


def asked_by(
    query: Mapping[str, Any], known: Sequence[str], *, hub: bool, machine_gib: float = USUAL_BUDGET.gib
) -> Asked:
    """The form that an address asks for.

    known         names of models
    hub           may a hub id be entered here?
    machine_gib   the budget of the loaded model where the address names none
    """
    reader = _Reader(query)
    choice = _choice(reader, known, hub)
    usual = MemoryForm(budget_gib=machine_gib if choice.model == LOADED else USUAL_BUDGET.gib)
    form = MemoryForm(
        seq_len=reader.read("seq_len", _whole("seq_len", MAX_LENGTH), usual.seq_len),
        batch_size=reader.read("batch", _whole("batch", MAX_BATCH), usual.batch_size),
        keeping=reader.read("cache", _one_of("cache", (*KEEPINGS,)), usual.keeping),
        cache_dtype=reader.read("dtype", _one_of("dtype", (AS_MODEL, *CACHE_DTYPES)), usual.cache_dtype),
        budget_gib=reader.read("budget", _budget, usual.budget_gib),
        keep_free_percent=reader.read("free", _number("free", 0, 99), usual.keep_free_percent),
        weights_dtype=reader.read("weights", _one_of("weights", WEIGHTS), usual.weights_dtype),
        tensor_parallel=reader.read("devices", _whole("devices", 1024), usual.tensor_parallel),
        encoder_len=reader.read("encoder", _whole("encoder", MAX_LENGTH), usual.encoder_len),
        page_tokens=reader.read("page_size", _whole("page_size", MOST_PAGE_TOKENS), usual.page_tokens),
    )
    beside = Beside(
        by=reader.read("by", _one_of("by", (*GROWS,)), "length"),
        models=tuple(name for name in reader.several("with") if name in known)[:MOST_OTHERS],
    )
    return Asked(choice, form, beside, tuple(reader.problems))


def _choice(reader: _Reader, known: Sequence[str], hub: bool) -> ModelChoice:
    if "hub" in reader.query and not hub:
        reader.problems.append("hub: models of the hub can be named only where kvdemo runs on your own machine")
    elif "hub" in reader.query:
        return ModelChoice(HUB, reader.read("hub", lambda value: checked_text("hub", value, max_chars=200), ""))
    if "layers" in reader.query:
        return ModelChoice(
            BY_HAND,
            layers=reader.read("layers", _whole("layers", 1024), None),
            kv_heads=reader.read("kv_heads", _heads, ""),
            head_dim=reader.read("head_dim", _whole("head_dim", 65_536), None),
            parameters=reader.read("parameters", _number("parameters", 0.000001, 1_000_000), None),
        )
    return ModelChoice(reader.read("model", lambda name: _known(name, known), LOADED))


class _Reader:
    """Values of a query, each by its own check; what fails is remembered in words."""

    def __init__(self, query: Mapping[str, Any]) -> None:
        self.query = query
        self.problems: list[str] = []

    def read(self, name: str, check: Callable[[str], Any], default: Any) -> Any:
        given = self.query.get(name)
        if given is None or given == "":
            return default
        try:
            return check(str(given)[:MOST_CHARS])
        except KvdemoError as error:
            self.problems.append(str(error))
            return default

    def several(self, name: str) -> list[str]:
        many = getattr(self.query, "getlist", None)
        return [str(value) for value in (many(name) if many else [self.query[name]] if name in self.query else [])]


def _whole(name: str, most: int) -> Callable[[str], int]:
    return lambda value: checked_int(
        name, int(value) if value.isascii() and value.isdigit() and len(value) < 12 else value, 1, most
    )


def _number(name: str, low: float, high: float) -> Callable[[str], float]:
    def check(value: str) -> float:
        try:
            number = float(value) if value.isascii() and len(value) < 20 and "_" not in value else None
        except ValueError:
            number = None
        checked = checked_number(name, number, low, high)
        return int(checked) if checked.is_integer() else checked

    return check


def _one_of(name: str, allowed: Sequence[str]) -> Callable[[str], str]:
    return lambda value: checked_choice(name, value, allowed)


def _budget(value: str) -> float | None:
    return None if value == "none" else _number("budget", 0.001, 1_000_000)(value)


def _heads(value: str) -> str:
    heads_of(value)
    return value


def _known(name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise InvalidRequest("model", f"{name[:60]!r} is not one of the known models")
    return name


def _written(value: Any) -> str:
    """A value as it stands in an address, halves of surrogate pairs left out."""
    return str(value).encode("utf-8", "ignore").decode("utf-8")
