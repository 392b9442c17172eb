"""A memory plan in words: the headline, the arithmetic, the three figures and what fits. Pure: a plan in, fragments out."""

from __future__ import annotations

import re
from dataclasses import replace

from kvdemo.facts.plans import CACHE_DTYPES, Architecture, LayerPlan, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count, format_parameters, format_ratio
from kvdemo.ui.markup import bold_parts, table, text

__all__ = ["arithmetic_card", "figures_card", "fits_card", "headline", "headline_card", "model_line"]

COUNTED = "Counted: weights and cache. Not counted: activations, runtime."
MOST_COLUMNS = 5
METHODS = {
    "traced": "Read from the model's own code.",
    "estimated": "Estimated from the config's fields, not traced.",
    "by hand": "Typed by hand.",
}


def headline(plan: MemoryPlan) -> str:
    """One sentence for a person who decides; **...** marks what is strong. A number stays with its unit."""
    return re.sub(r"(\d) (%|[KMGT]iB)", "\\1\N{NO-BREAK SPACE}\\2", _headline(plan))


def _headline(plan: MemoryPlan) -> str:
    request = plan.request
    start = f"{plan.architecture.name}, {_requests(plan)} of {format_count(request.seq_len)} tokens"
    size = format_bytes(plan.held_bytes)
    if plan.capacity is None:
        return f"{start}: the cache takes **{size}{_beside_weights(plan)}**."
    budget = f"{request.budget_gib:g}"
    weights = plan.weight_bytes or 0
    total = plan.reserved_bytes + weights
    free = f"{request.keep_free:.0%}".replace("%", " %")
    most = plan.capacity.most_at_once
    room = f"With {free} kept free, {format_count(most)} such {'request fits' if most == 1 else 'requests fit'}."
    if weights > plan.capacity.budget_bytes:
        return f"{start}: **the weights alone need {format_bytes(weights)}; you have {budget} GiB: it does not fit**."
    if total > plan.capacity.budget_bytes:
        need = f"{start} need **{format_bytes(total)}" + (" with the weights" if weights else "")
        return f"{need}; you have {budget} GiB: it does not fit**. {room}"
    together = f"With {format_bytes(weights)} of weights that is " if weights else "That is "
    if not plan.capacity.fits:
        verdict = f"**{format_bytes(total)} of {budget} GiB: it fits only if nothing is kept free**"
    else:
        verdict = f"**{format_bytes(total)} of {budget} GiB: it fits**"
    return f"{start}: the cache takes **{size}{_beside_weights(plan)}**. {together}{verdict}. {room}"


def headline_card(plan: MemoryPlan) -> str:
    """The headline, and what a reader has to know beside it."""
    notes = "".join(f'<p class="kv-small">{text(note)}</p>' for note in plan.notes)
    crossing = plan.crossover_tokens
    passes = (
        f"The cache passes the weights at {format_count(crossing)} tokens per request."
        if crossing is not None
        else "The cache never passes the weights."
        if plan.weight_bytes
        else ""
    )
    return (
        f'<div class="kv-card kv-headline"><p class="kv-headline-text">{bold_parts(headline(plan))}</p>'
        f'<p class="kv-small">{text(f"{passes} {COUNTED}".strip())}</p>{notes}</div>'
    )


def model_line(architecture: Architecture) -> str:
    """What kind of model this is, in one line, and how that became known."""
    layers = architecture.layers
    heads = sorted({(layer.kv_heads, layer.key_dim) for layer in layers if layer.kv_heads})
    parts = [f"{format_count(len(layers))} {'layer' if len(layers) == 1 else 'layers'}"]
    if len(heads) == 1:
        parts.append(f"{heads[0][0]} KV {'head' if heads[0][0] == 1 else 'heads'} of {heads[0][1]}")
    if architecture.num_parameters:
        parts.append(f"{format_parameters(architecture.num_parameters)} parameters")
    parts.append(architecture.dtype)
    method = METHODS.get(architecture.method, "")
    return f'<div class="kv-small">{text(" · ".join(parts))}. {text(method)}</div>'


def arithmetic_card(plan: MemoryPlan) -> str:
    """The multiplication with the numbers in it; every product is checked against the plan before it is shown."""
    lines = _uniform_lines(plan) or _grouped_lines(plan)
    body = "".join(f"<p>{line}</p>" for line in lines)
    return f'<div class="kv-card kv-arithmetic"><h2 class="kv-card-title">The arithmetic</h2>{body}</div>'


def figures_card(plan: MemoryPlan) -> str:
    """Held, reserved and uniform, where they differ, and why."""
    figures = (
        ("held", plan.held_bytes, "what a growing cache holds"),
        ("reserved", plan.reserved_bytes, "what a cache of fixed size allocates for this length"),
        ("uniform", plan.uniform_bytes, "every attention layer at full length: one page size for all layers"),
    )
    if len({size for _, size, _ in figures}) == 1:
        body = (
            f'<p class="kv-said">{format_bytes(plan.held_bytes)}, whether the cache grows, is reserved at once, or has one '
            "page size for all layers: every layer keeps every token.</p>"
        )
    else:
        body = "".join(
            f'<p class="kv-said"><strong>{name}: {format_bytes(size)}</strong></p>'
            f'<p class="kv-small">{format_count(size)} bytes, {words}.</p>'
            for name, size, words in figures
        )
    state = (
        f'<p class="kv-small">Of it {format_bytes(plan.fixed_state_bytes)} are states whose size does not depend on the '
        "length.</p>"
        if plan.fixed_state_bytes
        else ""
    )
    each = (
        f'<p class="kv-small">{format_count(plan.bytes_per_token)} bytes per token of one request at this length.</p>'
    )
    return (
        f'<div class="kv-card kv-three"><h2 class="kv-card-title">Held, reserved, uniform</h2>{body}{state}{each}</div>'
    )


def fits_card(plan: MemoryPlan) -> str:
    """The longest request for 1, 2, 4 ... at once, and how many at once for the asked length."""
    if plan.capacity is None:
        return (
            '<div class="kv-card kv-fits"><h2 class="kv-card-title">What fits?</h2>'
            '<p class="kv-said">Give a memory budget in GiB, and you see here how long and how many requests fit.</p></div>'
        )
    free = f"{plan.request.keep_free:.0%}".replace("%", " %")
    title = f"What fits in {plan.request.budget_gib:g} GiB with {free} kept free?"
    rows = _columns(plan)
    longest = [f"{format_count(length)}{'*' if capped else ''}" if length else "none" for _, length, capped in rows]
    body = table(
        ["At once", *(format_count(batch) for batch, _, _ in rows)],
        [["Longest, tokens", *longest]],
        caption=title,
    )
    limit = "* the model's limit; memory would allow more" if any(capped for *_, capped in rows) else ""
    most = plan.capacity.most_at_once
    asked = f"At {format_count(plan.request.seq_len)} tokens each: {format_count(most)} at once."
    return (
        f'<div class="kv-card kv-fits"><h2 class="kv-card-title">{text(title)}</h2>{body}'
        f'<p class="kv-small">{text(limit)}</p><p class="kv-said">{text(asked)}</p></div>'
    )


def _columns(plan: MemoryPlan) -> list[tuple[int, int, bool]]:
    """At most MOST_COLUMNS numbers of requests at once: where memory begins to decide, the asked number among them."""
    rows = list(plan.capacity.longest_by_batch) if plan.capacity else []
    asked = [row for row in rows if row[0] == plan.request.batch_size]
    others = [row for row in rows if row[0] != plan.request.batch_size]
    at_limit = sum(capped for *_, capped in others)
    start = min(max(0, at_limit - 1), max(0, len(others) - MOST_COLUMNS + len(asked)))
    return sorted([*asked, *others[start : start + MOST_COLUMNS - len(asked)]])


def _requests(plan: MemoryPlan) -> str:
    batch = plan.request.batch_size
    return "1 request" if batch == 1 else f"{format_count(batch)} requests"


def _beside_weights(plan: MemoryPlan) -> str:
    if not plan.weight_bytes:
        return ""
    ratio = plan.held_bytes / plan.weight_bytes
    if ratio < 0.95:
        return f", {100 * ratio:.2g} % of the weights"
    return f", {format_ratio(ratio)} times the weights"


def _uniform_lines(plan: MemoryPlan) -> list[str]:
    """The short form, where all layers are alike and keep every token; nothing where the product is not the plan's."""
    layers, request = plan.architecture.layers, plan.request
    first = layers[0]
    alike = all(replace(layer, index=0) == replace(first, index=0) for layer in layers)
    if not alike or first.kind != "full" or first.key_dim != first.value_dim or first.kv_heads != first.value_heads:
        return []
    each = CACHE_DTYPES[request.cache_dtype]
    per_token = len(layers) * 2 * first.kv_heads * first.key_dim * each
    total = per_token * request.seq_len * request.batch_size
    if total != plan.held_bytes:
        return []
    return [
        f"{len(layers)} layers × 2 (K, V) × {first.kv_heads} heads × {first.key_dim} × {each} bytes",
        f"= {format_count(per_token)} bytes per token",
        f"× {format_count(request.seq_len)} tokens × {_requests(plan)} =",
        f"<strong>{format_count(total)} bytes = {format_bytes(total)}</strong>",
    ]


def _grouped_lines(plan: MemoryPlan) -> list[str]:
    """One line per group of equal layers, then the sum."""
    from kvdemo.reports.layer_charts import arithmetic, kind_words

    groups: dict[tuple[object, int], list[LayerPlan]] = {}
    for layer in plan.layers:
        groups.setdefault((replace(layer.footprint, index=0, shares=None), layer.held_bytes), []).append(layer)
    lines = []
    for layers in groups.values():
        count = f"{len(layers)} {'layer' if len(layers) == 1 else 'layers'}, {kind_words(layers[0].footprint)}"
        product, _, size = arithmetic(plan, layers[0]).partition("<br>")
        lines.append(f"<strong>{text(count)}</strong>: {text(product)} {text(size)} each")
    total = plan.held_bytes
    lines.append(f"Together <strong>{format_count(total)} bytes = {format_bytes(total)}</strong>")
    return lines
