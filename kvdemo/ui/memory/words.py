"""A memory plan in words: the headline, what was counted, what is said about a model, where its limit lies. Pure."""

from __future__ import annotations

import math
import re

from markupsafe import Markup

from kvdemo.components.markup import bold_parts, text
from kvdemo.components.terms import term
from kvdemo.facts.plans import USUAL_BUDGET, Architecture, Budget, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count, format_parameters, format_ratio
from kvdemo.ui.memory.form import LONGEST_LOG2, SHORTEST_LOG2

__all__ = [
    "asked_words",
    "budget_line",
    "budget_owner",
    "budget_words",
    "figure_of",
    "free_words",
    "headline",
    "headline_card",
    "limit_mark",
    "model_line",
    "requests_words",
    "short_bytes",
]

GIB = 2**30
TAKES = {
    "dynamic": "the cache takes",
    "static": "a static cache reserves",
    "uniform": "one page size for all layers takes",
}
METHODS = {
    "traced": "Read from the model's own code.",
    "estimated": "Estimated from the config's fields, not traced.",
    "by hand": "Typed by hand.",
}


def headline(plan: MemoryPlan, keeping: str = "dynamic") -> str:
    """One sentence for a person who decides; **...** marks what is strong. A number stays with its unit."""
    return re.sub(r"(\d) (%|[KMGT]iB|B\b)", "\\1\N{NO-BREAK SPACE}\\2", _headline(plan, keeping))


def _headline(plan: MemoryPlan, keeping: str) -> str:
    start = asked_words(plan)
    cache = figure_of(plan, keeping)
    takes = f"{start}: {TAKES[keeping]} **{short_bytes(cache)}{_beside_weights(plan, cache)}**."
    if plan.capacity is None:
        return takes
    budget, weights = plan.capacity.budget_bytes, plan.weight_bytes or 0
    total = plan.reserved_bytes + weights
    whose = budget_owner(plan)
    has = f"{whose or 'you'} {'has' if whose else 'have'} {budget_words(plan)}"
    if weights > budget:
        alone = _apart(weights, budget)
        return f"{start}: **the weights alone need {alone}; {has}: it does not fit**."
    if total > budget:
        need = "needs" if plan.request.batch_size == 1 else "need"
        return f"{start} {need} **{_apart(total, budget)}; {has}: it does not fit**. {_room(plan, after=True)}"
    used = short_bytes(total) if total < GIB else _apart(total, budget).removesuffix(" GiB")
    of = f"{used} of {budget_words(plan)} GiB" + (f" ({whose})" if whose else "")
    if not weights:
        return f"{takes} That is **{of} without the weights**, which are not known: whether it fits cannot be said."
    fits = "it fits" if plan.capacity.fits else "it fits only if nothing is kept free"
    return f"{takes} With {short_bytes(weights)} of weights that is **{of}: {fits}**. {_room(plan)}"


def headline_card(plan: MemoryPlan, keeping: str = "dynamic") -> str:
    """The headline, what it counts, and what a reader has to know beside it."""
    request = plan.request
    crossing = plan.crossover_tokens
    passes = (
        f"The cache passes the weights at {format_count(crossing)} tokens per request. "
        if crossing is not None
        else "The cache never passes the weights. "
        if plan.weight_bytes
        else ""
    )
    weights = f"; weights {plan.weights_how}, {format_bytes(plan.weight_bytes)}" if plan.weight_bytes else ""
    counted = "weights and cache" if plan.weight_bytes else "the cache"
    stored = f"Predicted, not measured: cache in {request.cache_dtype}{weights}."
    scope = f"{stored} Counted: {counted}. Not counted: activations, runtime."
    notes = Markup("").join(Markup('<p class="kv-small">{}</p>').format(text(note)) for note in plan.notes)
    return Markup(
        '<div class="kv-card kv-headline"><p class="kv-headline-text">{}</p><p class="kv-small">{}</p>{}</div>'
    ).format(bold_parts(headline(plan, keeping)), text(passes + scope), notes)


def asked_words(plan: MemoryPlan) -> str:
    """ "Llama-3.1-8B, 8 requests of 32,768 tokens": which plan this is."""
    return f"{plan.architecture.name}, {requests_words(plan)} of {format_count(plan.request.seq_len)} tokens"


def requests_words(plan: MemoryPlan) -> str:
    batch = plan.request.batch_size
    return "1 request" if batch == 1 else f"{format_count(batch)} requests"


def figure_of(plan: MemoryPlan, keeping: str) -> int:
    """Which of the three figures a way of keeping the cache is about, bytes."""
    return {"dynamic": plan.held_bytes, "static": plan.reserved_bytes, "uniform": plan.uniform_bytes}[keeping]


def model_line(architecture: Architecture) -> str:
    """What kind of model this is, in one line, and how that became known."""
    layers = architecture.layers
    heads = sorted({(layer.kv_heads, layer.key_dim) for layer in layers if layer.kv_heads})
    parts = [f"{format_count(len(layers))} {'layer' if len(layers) == 1 else 'layers'}"]
    if len(heads) == 1:
        count, size = heads[0]
        named = term("KV head", "KV head" if count == 1 else "KV heads")
        parts.append(Markup("{} {} of {}").format(count, named, size))
    if architecture.num_parameters:
        size_words = format_parameters(architecture.num_parameters).replace(" ", "\N{NO-BREAK SPACE}")
        parts.append(f"{size_words} parameters")
    parts.append(text(architecture.dtype))
    method = METHODS.get(architecture.method, "")
    return Markup('<div class="kv-small">{}. {}</div>').format(Markup(" · ").join(parts), text(method))


def limit_mark(geometry: Architecture | None) -> str:
    """Where on the slider the model's own limit lies."""
    limit = geometry.context_limit if geometry else None
    if not limit:
        words = "This model names no limit of its own." if geometry else ""
        return Markup('<div class="kv-limit"><p class="kv-small">{}</p></div>').format(words)
    share = (math.log2(limit) - SHORTEST_LOG2) / (LONGEST_LOG2 - SHORTEST_LOG2)
    return Markup(
        '<div class="kv-limit"><span class="kv-limit-mark" style="left:{:.1f}%"></span>'
        '<p class="kv-small">The model\'s own limit: {} tokens</p></div>'
    ).format(100 * min(max(share, 0), 1), format_count(limit))


def short_bytes(num_bytes: int) -> str:
    """A size as a headline says it: "32 GiB", "5.4 MiB"; whole numbers from 10 on."""
    size, unit = format_bytes(num_bytes).split(" ")
    exact = float(size.replace(",", ""))
    if exact >= 9.95:
        return f"{exact:,.0f} {unit}"
    return f"{exact:.1f} {unit}".replace(".0 ", " ")


def _apart(num_bytes: int, budget: int) -> str:
    """GiB with as many digits as it takes to be on the right side of the budget."""
    size, limit = num_bytes / GIB, budget / GIB
    for digits in (0, 1, 2, 3) if size >= 9.95 else (1, 2, 3):
        shown = round(size, digits)
        if (shown > limit) == (num_bytes > budget) and shown > 0:
            return f"{shown:,.{digits}f} GiB"
    return f"{size:,.6f} GiB"


def _beside_weights(plan: MemoryPlan, cache: int) -> str:
    if not plan.weight_bytes:
        return ""
    ratio = cache / plan.weight_bytes
    if ratio < 0.95:
        return f", {100 * ratio:.2g} % of the weights"
    return f", {format_ratio(ratio)} times the weights"


def _room(plan: MemoryPlan, *, after: bool = False) -> str:
    """How many such requests fit; `after`: a sentence that begins with the number."""
    most = plan.capacity.most_at_once if plan.capacity is not None else 0
    free = f"ith {free_words(plan)} kept free"
    which = "such request fits" if most <= 1 else "such requests fit"
    count = format_count(most) if most else "not one"
    if after:
        return f"{count[0].upper()}{count[1:]} {which} w{free}."
    return f"W{free}, {count} {which}."


def free_words(plan: MemoryPlan) -> str:
    """The share that is kept free: "10 %"."""
    return f"{100 * plan.request.keep_free:g} %"


def budget_owner(plan: MemoryPlan) -> str:
    """Whose memory the budget is: "this machine"; "" where it is nobody's, or somebody's who said so himself."""
    source = plan.request.budget_source
    return "" if source in ("given", USUAL_BUDGET.source) else source


def budget_words(plan: MemoryPlan) -> str:
    """The budget in GiB, without its unit: "80", "1,500", "0.5"."""
    budget = plan.request.budget_gib or 0
    return f"{budget:,.0f}" if budget == int(budget) else f"{budget:,.6g}"


def budget_line(usual: Budget) -> str:
    """Under the field: whose memory the budget is as long as nobody writes another one there."""
    whose = "default" if usual == USUAL_BUDGET else usual.source
    return Markup('<p class="kv-small">{}: {:,.6g}\xa0GiB</p>').format(text(whose), usual.gib)
