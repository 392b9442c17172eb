"""The cards under the charts of Memory: the arithmetic, the three figures, what fits. Pure: a plan in, fragments out."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from kvdemo.components.markup import code_block, table, text
from kvdemo.components.terms import TERMS, term
from kvdemo.facts.plans import CACHE_DTYPES, MAX_LENGTH, LayerPlan, MemoryPlan
from kvdemo.facts.units import format_bytes, format_count
from kvdemo.ui.memory.words import budget_owner, budget_words, figure_of, free_words, requests_words

__all__ = ["arithmetic_card", "engine_card", "figures_card", "fits_card"]

NBSP = "\N{NO-BREAK SPACE}"
MOST_ROWS = 7


def arithmetic_card(plan: MemoryPlan) -> str:
    """The multiplication with the numbers in it; every product is checked against the plan before it is shown."""
    lines = _uniform_lines(plan) or _grouped_lines(plan)
    body = Markup("").join(Markup("<p>{}</p>").format(line) for line in lines)
    return Markup('<div class="kv-card kv-arithmetic"><h2 class="kv-card-title">The arithmetic</h2>{}</div>').format(
        body
    )


def figures_card(plan: MemoryPlan, kept: MemoryPlan | None = None, keeping: str = "dynamic") -> str:
    """Held, reserved and uniform, where they differ, and why; then the sums that people ask for.

    kept, keeping   the plan that the sums are of, where it is another, and how its cache is kept
    """
    figures = (
        ("held", plan.held_bytes, _held_because(plan)),
        ("reserved", plan.reserved_bytes, _reserved_because(plan)),
        ("uniform", plan.uniform_bytes, "an engine with one page size keeps every token in every attention layer"),
    )
    differ = len({size for _, size, _ in figures}) > 1
    if differ:
        longest = max(size for _, size, _ in figures)
        body = Markup("").join(
            (
                Markup(
                    '<div class="kv-three-figure"><p class="kv-said"><strong>{}</strong> {}</p>'
                    '<div class="kv-thin-bar"><span style="width:{:.1f}%"></span></div><p class="kv-small">'
                    "{} bytes: {}.</p></div>"
                ).format(term(name), format_bytes(size), 100 * size / longest, format_count(size), text(words))
                for name, size, words in figures
            )
        )
    else:
        same = "The cache does not grow." if not plan.bytes_per_token else "Every attention layer keeps every token."
        body = Markup(
            '<p class="kv-said"><strong>{}</strong>'
            ", whether the cache grows with every token, is reserved at once, or has one page "
            "size for all layers. {}</p>"
        ).format(format_bytes(plan.held_bytes), same)
    title = Markup('<h2 class="kv-card-title">Held, reserved, uniform</h2>')
    return Markup('<div class="kv-card kv-three">{}{}{}</div>').format(title, body, _sums(kept or plan, keeping))


def _held_because(plan: MemoryPlan) -> str:
    windows = _windows(plan)
    if len(windows) == 1:
        window, kept = format_count(windows[0]), format_count(windows[0] - 1)
        return f"a growing cache; a layer with a window of {window} keeps {kept} tokens between steps"
    return (
        "a growing cache; a layer keeps one token less than its window between steps" if windows else "a growing cache"
    )


def _reserved_because(plan: MemoryPlan) -> str:
    if not plan.architecture.static:
        return "transformers has no cache of fixed size for this model: what a growing one holds"
    return "a cache of fixed size; a layer reserves its whole window" if _windows(plan) else "a cache of fixed size"


def _windows(plan: MemoryPlan) -> list[int]:
    """The windows that this length reaches."""
    found = {layer.window for layer in plan.architecture.layers if layer.window}
    return sorted(window for window in found if window <= plan.request.seq_len)


def _sums(plan: MemoryPlan, keeping: str) -> str:
    """What one token, one request and the weights take."""
    batch, cache = plan.request.batch_size, figure_of(plan, keeping)
    rows = [("One more token of one request", f"{format_count(plan.bytes_per_token)} bytes")]
    if plan.fixed_state_bytes:
        rows.append(("States, whatever the length", format_bytes(plan.fixed_state_bytes)))
    if batch > 1:
        rows.append(("One request", format_bytes(cache / batch)))
    rows.append((f"Cache of {requests_words(plan)}", format_bytes(cache)))
    if plan.weight_bytes:
        rows.append((f"Weights {plan.weights_how}", format_bytes(plan.weight_bytes)))
        rows.append(("Together", format_bytes(cache + plan.weight_bytes)))
    body = Markup("").join(
        (Markup("<tr><th scope='row'>{}</th><td>{}</td></tr>").format(text(name), text(value)) for name, value in rows)
    )
    return Markup('<table class="kv-table kv-sums"><tbody>{}</tbody></table>').format(body)


def engine_card(plan: MemoryPlan) -> str:
    """What an engine with a paged cache would say at its start, and the commands that start one; "" without a budget."""
    found = plan.paged
    if found is None:
        return ""
    figures = (
        (
            "Pages",
            f"{format_count(found.num_pages)} of {format_count(found.page_tokens)} tokens, {format_bytes(found.page_bytes)}",
        ),
        ("Tokens that fit", format_count(found.tokens)),
        (f"Requests of {format_count(found.seq_len)} tokens at once", f"{found.at_once:.2f}"),
    )
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th><td>{}</td></tr>').format(text(name), text(value)) for name, value in figures
    )
    notes = Markup("").join(Markup('<p class="kv-small">{}</p>').format(text(note)) for note in found.notes)
    none = f"Not one request of {format_count(found.seq_len)} tokens fits, so there is no command that starts it."
    commands = Markup("").join(
        Markup('<p class="kv-small kv-start">{}</p>{}').format(text(engine), code_block(command, wrapped=True))
        for engine, command in found.commands
    ) or Markup('<p class="kv-said">{}</p>').format(text(none))
    memory = format_bytes(found.cache_bytes)
    return Markup(
        '<div class="kv-card kv-engine"><h2 class="kv-card-title">What would an engine say?</h2>'
        '<p class="kv-small">With {} for the cache, in pages: the figures that vLLM prints when it starts.</p>'
        '<table class="kv-table kv-sums"><tbody>{}</tbody></table>{}{}</div>'
    ).format(memory, rows, notes, commands)


def fits_card(plan: MemoryPlan) -> str:
    """The longest request for 1, 2, 4 ... at once, and how many at once for the asked length."""
    if plan.capacity is None:
        return Markup(
            '<div class="kv-card kv-fits"><h2 class="kv-card-title">What fits?</h2>'
            '<p class="kv-said">'
            "Give a memory budget in GiB, and you see here how long and how many requests fit.</p>"
            "</div>"
        )
    whose = f" ({budget_owner(plan)})" if budget_owner(plan) else ""
    title = f"What fits in {budget_words(plan)} GiB{whose} with {free_words(plan)} kept free?".replace(" %", f"{NBSP}%")
    if plan.capacity.usable_bytes <= 0:
        weights = format_bytes(plan.weight_bytes)
        words = (
            f"Nothing: the weights take {weights}, and less than that is left when {free_words(plan)} are kept free."
        )
        return Markup(
            '<div class="kv-card kv-fits"><h2 class="kv-card-title">{}</h2><p class="kv-said">{}</p></div>'
        ).format(text(title), text(words))
    rows = _rows(plan)
    body = table(
        ["At once", "Longest request, tokens"],
        rows,
        caption=title,
    )
    starred = any(words.endswith("*") for _, words in rows)
    limit = Markup('<p class="kv-small">* the model&#39;s limit; memory would allow more</p>') if starred else ""
    most = plan.capacity.most_at_once
    words = (
        f"At {format_count(plan.request.seq_len)} tokens each, {format_count(most)} at once."
        if most
        else f"Not one request of {format_count(plan.request.seq_len)} tokens."
    )
    if not plan.weight_bytes:
        limit += Markup('<p class="kv-small">Without the weights, which are not known: less fits beside them.</p>')
    return Markup(
        '<div class="kv-card kv-fits"><h2 class="kv-card-title">{}</h2>{}{}<p class="kv-said">{}</p></div>'
    ).format(text(title), body, limit, text(words))


def _length(length: int, capped: bool) -> str:
    if not length:
        return "none"
    return "any" if length >= MAX_LENGTH else f"{format_count(length)}{'*' if capped else ''}"


def _rows(plan: MemoryPlan) -> list[tuple[str, str]]:
    """(requests at once, longest request) in words: neighbours with the same answer in one row, MOST_ROWS at most."""
    groups: list[tuple[list[int], str]] = []
    for batch, length, capped in plan.capacity.longest_by_batch if plan.capacity else ():
        words = _length(length, capped)
        if groups and groups[-1][1] == words:
            groups[-1][0].append(batch)
        else:
            groups.append(([batch], words))
    first = max(0, sum(batches[0] <= plan.request.batch_size for batches, _ in groups) - MOST_ROWS)
    return [
        (
            format_count(batches[0])
            if len(batches) == 1
            else f"{format_count(batches[0])} to {format_count(batches[-1])}",
            words,
        )
        for batches, words in groups[first : first + MOST_ROWS]
    ]


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
        f"× {format_count(request.seq_len)} tokens × {requests_words(plan)} =",
        Markup("<strong>{} bytes = {}</strong>").format(format_count(total), format_bytes(total)),
    ]


def _grouped_lines(plan: MemoryPlan) -> list[str]:
    """One line per group of equal layers, then the sum."""
    from kvdemo.charts.layer_charts import arithmetic

    groups: dict[tuple[object, int], list[LayerPlan]] = {}
    for layer in plan.layers:
        groups.setdefault((replace(layer.footprint, index=0, shares=None), layer.held_bytes), []).append(layer)
    lines: list[str] = []
    for layers in groups.values():
        count = f"{len(layers)} {'layer' if len(layers) == 1 else 'layers'}"
        product, _, size = arithmetic(plan, layers[0]).partition("<br>")
        lines.append(
            Markup("<strong>{}, {}</strong>: {} {} each").format(count, _kind(layers[0]), text(product), text(size))
        )
    total = plan.held_bytes
    lines.append(Markup("Together <strong>{} bytes = {}</strong>").format(format_count(total), format_bytes(total)))
    return lines


def _kind(layer: LayerPlan) -> str:
    """A layer's kind with its explanation: "sliding 1,024"."""
    from kvdemo.charts.layer_charts import kind_words

    words = kind_words(layer.footprint)
    name = next((name for name in TERMS if words.startswith(name)), words)
    return term(name, name) + text(words[len(name) :])
