"""The panel "What the cache is doing" and the one line that stands for it on a phone, as fragments.

Draws a RunView to scale; knows nothing about how the run is made.
"""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.components.run_view import RunView
from kvdemo.experiments.step_words import recent_words
from kvdemo.facts.endpoint import NOT_REPORTED
from kvdemo.facts.events import Reuse
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.units import format_bytes, format_count, format_seconds, format_speed

__all__ = ["empty_panel", "panel", "phone_line"]

AT_SERVER = (
    "The whole conversation is sent again each time. Whether its beginning is computed again is the server's matter.",
    "Does it use a cache, does it reuse beginnings? Compare asks that by time: Is my endpoint caching?",
)
TITLE = Markup('<h2 class="kv-card-title">What the cache is doing</h2>')


def empty_panel() -> str:
    """What will appear here, and how to get it."""
    return Markup(
        '<div class="kv-panel">{}<p class="kv-said">'
        "Send a message. While the answer is written you see here what the cache holds: how "
        "many tokens, how many bytes, and what it saves.</p>{}</div>"
    ).format(TITLE, _sentences(None))


def panel(
    view: RunView,
    facts: ModelFacts | None,
    strategy: StrategyRow | None,
    kept_words: str = "",
    saved_words: str = "",
) -> str:
    """The run to scale, what is held now, and what it means in words.

    kept_words    how long a kept cache is kept; saved_words: what reuse saved
    """
    return Markup('<div class="kv-panel">{}{}{}{}<dl class="kv-figures">{}{}{}{}</dl>{}{}</div>').format(
        TITLE,
        _request_bar(view),
        _window_bar(view),
        _context_bar(view),
        _held(view, facts),
        _kept(view, facts),
        _first(view),
        _speed(view),
        _said(view, strategy, saved_words),
        _sentences(view, strategy, kept_words),
    )


def phone_line(view: RunView) -> str:
    """ "84 tokens · 3.6 MiB · 25 tok/s"; empty before anything is known."""
    if not view.prompt_tokens and not (view.served and view.tokens):
        return ""
    parts = [f"{format_count(view.total_tokens)} tokens"]
    if not view.served:
        parts.append(format_bytes(view.cache_bytes))
    if view.tokens_per_s is not None:
        parts.append(format_speed(view.tokens_per_s))
    return Markup('<div class="kv-phone-line">{}</div>').format(text(" · ".join(parts)))


def _request_bar(view: RunView) -> str:
    """This request to scale: reused, prefilled, generated, the newest token hollow, reserved rest hatched."""
    without_cache = view.strategy == "none"
    newest = 1 if view.tokens and not view.served else 0
    in_cache = max(0, view.tokens - newest)
    prefilled = max(0, view.read_tokens - view.reused_tokens)
    unread = max(0, view.prompt_tokens - view.read_tokens)
    reserved = max(0, (view.reserved_tokens or 0) - view.total_tokens)
    parts = [
        ("reused", view.reused_tokens, "reported as reused" if view.served else "reused"),
        ("prefill", prefilled, _read_words(view, without_cache)),
        ("unread", unread, "still to read"),
        ("prefill" if without_cache else "generated", in_cache, ""),
        ("newest", newest, ""),
        ("reserved", reserved, "reserved, empty"),
    ]
    bars = Markup("").join(
        (
            Markup('<span class="kv-part kv-part-{}" style="flex:{} 1 0"></span>').format(kind, tokens)
            for kind, tokens, _ in parts
            if tokens
        )
    )
    legend = [(kind, tokens, words) for kind, tokens, words in parts if tokens and words]
    if without_cache and view.tokens:
        legend = [("prefill", view.total_tokens - 1, "computed again at every step")]
    if view.tokens:
        legend.insert(len([1 for kind, *_ in legend if kind != "reserved"]), ("generated", view.tokens, "generated"))
    keys = Markup("").join(
        (
            Markup('<li><span class="kv-key kv-part-{}"></span>{} {}</li>').format(kind, format_count(tokens), words)
            for kind, tokens, words in legend
        )
    )
    words = ", ".join(f"{format_count(tokens)} {words}" for _, tokens, words in legend)
    return Markup('<div class="kv-bar" role="img" title="This request: {}">{}</div><ul class="kv-keys">{}</ul>').format(
        text(words or "nothing yet"), bars, keys or Markup("<li>nothing yet</li>")
    )


def _window_bar(view: RunView) -> str:
    """What the layers with a window still hold of it, once that can be read; "" where no layer has forgotten anything."""
    layers = view.record.cache_layers if view.record is not None else ()
    words = recent_words(layers, view.cache_tokens)
    if not words:
        return ""
    held = min(layer.keys_shape[2] for layer in layers if layer.keys_shape is not None)
    return Markup(
        '<div class="kv-bar kv-bar-window" role="img" title="{}">'
        '<span class="kv-part kv-part-forgotten" style="flex:{} 1 0"></span>'
        '<span class="kv-part kv-part-reused" style="flex:{} 1 0"></span></div><p class="kv-small">{}</p>'
    ).format(words, view.cache_tokens - held, held, words)


def _read_words(view: RunView, without_cache: bool) -> str:
    if view.served:  # which of them it computed and which it had, it may not say
        return "prompt tokens" if view.reused_tokens == 0 else "more prompt tokens"
    return "computed again at every step" if without_cache else "prefilled"


def _context_bar(view: RunView) -> str:
    """This request within the model's limit."""
    if not view.context_limit:
        words = (
            f"{format_count(view.total_tokens)} tokens; {'the server' if view.served else 'this model'} names no limit"
        )
        share = 0.0
    else:
        words = f"{format_count(view.total_tokens)} of {format_count(view.context_limit)} tokens"
        share = min(100.0, 100 * view.total_tokens / view.context_limit)
    return Markup(
        '<div class="kv-thin-bar" role="img" title="Context used: {}">'
        '<span style="width:{:.3f}%"></span></div><p class="kv-small">{}</p>'
    ).format(text(words), share, text(words))


def _figure(value: str, words: str) -> str:
    return Markup('<div class="kv-figure"><dd>{}</dd><dt>{}</dt></div>').format(text(value), text(words))


def _held(view: RunView, facts: ModelFacts | None) -> str:
    if view.served:
        return _figure(NOT_REPORTED, "held by the server")
    if view.strategy == "none" and view.prompt_tokens:
        return _figure("0 B", "held between steps")
    share = (
        f" · {100 * view.cache_bytes / facts.weight_bytes:.1f} % of the weights" if facts and facts.weight_bytes else ""
    )
    return _figure(format_bytes(view.cache_bytes), f"held now{share}")


def _kept(view: RunView, facts: ModelFacts | None) -> str:
    if view.served:
        reused = view.record.reused_tokens if view.record is not None else None
        known = reused is not None
        return _figure(
            format_count(reused) if known else NOT_REPORTED, f"{'reported: ' * known}prompt tokens it reused"
        )
    each = f" · {format_bytes(view.cache_bytes / view.cache_tokens)} each" if view.cache_tokens else ""
    if each and view.record is not None and recent_words(view.record.cache_layers, view.cache_tokens):
        each += " on average"
    if not each and facts and view.strategy != "none":
        each = f" · {format_bytes(facts.cache_bytes_per_token)} each"
    if view.reserved_tokens and view.cache_tokens and facts:
        each = f" · room for {format_count(view.reserved_tokens)}"
    return _figure(format_count(view.cache_tokens), f"tokens in the cache{each}")


def _first(view: RunView) -> str:
    waited = f", after {format_seconds(view.queue_s)} in the queue" if view.queue_s >= 0.05 else ""
    return _figure(format_seconds(view.first_s) if view.first_s is not None else "–", f"to the first token{waited}")


def _speed(view: RunView) -> str:
    so_far = "" if view.phase == "finished" else " so far"
    words = f"{format_count(view.tokens)} {'token' if view.tokens == 1 else 'tokens'}{so_far}"
    return _figure(format_speed(view.tokens_per_s) if view.tokens_per_s is not None else "–", words)


def _said(view: RunView, strategy: StrategyRow | None, saved_words: str) -> str:
    """The run in words: what was reused, or what this strategy does."""
    lines = list(view.notices)
    reuse = view.reuse
    if view.served:
        lines.append("A server makes these tokens. Times are taken here; what its cache does, only the server can say.")
    elif reuse is not None and (reuse.kept_tokens or reuse.reused_tokens):
        words = f"Reused {format_count(reuse.reused_tokens)} of {format_count(view.prompt_tokens)} prompt tokens."
        lines.append(f"{words} {reuse.reason or 'The rest is your new question.'}{_differing(reuse)}")
    elif view.prompt_tokens:
        lines.append(
            f"No cache: all {format_count(view.total_tokens)} positions are computed again for every token."
            if view.strategy == "none"
            else f"The prompt's {format_count(view.prompt_tokens)} tokens are computed once; each new token only adds one."
        )
        if reuse is not None and reuse.reason:
            lines.append(reuse.reason)
    else:
        lines.append(f"{strategy.label}: {strategy.trade}." if strategy else "")
    saved = Markup('<p class="kv-small">{}</p>').format(text(saved_words)) if saved_words else ""
    return Markup("").join(Markup('<p class="kv-said">{}</p>').format(text(line)) for line in lines if line) + saved


def _differing(reuse: Reuse) -> str:
    """Both sides of the first difference, word for word."""
    if reuse.kept_text is None or reuse.new_text is None:
        return ""
    return f' Kept was "{reuse.kept_text}", now it is "{reuse.new_text}".'


def _sentences(view: RunView | None, strategy: StrategyRow | None = None, kept_words: str = "") -> str:
    if view is not None and view.served:
        return Markup("").join(Markup('<p class="kv-small">{}</p>').format(line) for line in AT_SERVER)
    cached = view is not None and view.strategy != "none"
    lines = []
    if cached and view is not None and view.phase != "finished":
        lines.append("The newest token is not in the cache yet: its keys and values are computed in the next step.")
    lines += [
        "The model still reads the whole conversation. The cache only saves computing it again.",
        "No answers are stored. Ask the same again and every new token is computed again.",
        "A cache changes speed and memory, not quality.",
    ]
    if cached and view is not None:
        keeps = view.kept and (strategy is None or strategy.keeping != "no")
        lines.append(
            kept_words if keeps else "This cache lives for one answer; the next one starts with an empty cache."
        )
    return Markup("").join(Markup('<p class="kv-small">{}</p>').format(text(line)) for line in lines if line)
