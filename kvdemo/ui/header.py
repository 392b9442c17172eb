"""The page's header: name, what it is about, and a chip that says which model is loaded, or how far loading is."""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.facts.model import Failed, Loading, ModelFacts, ModelStatus
from kvdemo.facts.units import format_bytes, format_parameters

__all__ = ["WHAT", "header"]

WHAT = (
    "A KV cache keeps the keys and values a model has already computed, so each new token continues instead of "
    "starting over. It saves time and uses memory."
)


def header(status: ModelStatus) -> str:
    """The header for this status of the model."""
    return Markup(
        '<div class="kv-header"><div class="kv-header-row"><div class="kv-brand"><h1>kvdemo</h1>'
        '<p class="kv-tagline">What a KV cache buys, and what it costs</p></div>{}</div>'
        '<div class="kv-header-row"><p class="kv-what">{}</p>{}</div></div>'
    ).format(_chip(status), WHAT, _under(status))


def _chip(status: ModelStatus) -> str:
    if isinstance(status, Loading):
        words = f"Loading {status.name}: {status.step}. Memory works already."
        return Markup('<p class="kv-chip kv-chip-loading" role="status">{}</p>').format(text(words))
    if isinstance(status, Failed):
        return Markup('<p class="kv-chip kv-chip-failed" role="alert">{}</p>').format(
            text(f"{status.name} could not be loaded")
        )
    facts = status.facts
    return Markup(
        '<p class="kv-chip" role="status"><span class="kv-chip-name">{}</span><span class="kv-chip-more"> · {}</span></p>'
    ).format(text(facts.name), text(_facts_line(facts)))


def _facts_line(facts: ModelFacts) -> str:
    """What stands behind the model's name, where there is room."""
    return " · ".join(
        (
            f"{format_parameters(facts.num_parameters)} parameters",
            f"{facts.dtype} on {facts.device.upper() if facts.device in ('cpu', 'mps') else facts.device}",
            f"weights {format_bytes(facts.weight_bytes)}",
            f"cache {format_bytes(facts.cache_bytes_per_token)} per token",
        )
    )


def _under(status: ModelStatus) -> str:
    if isinstance(status, Loading):
        return Markup('<p class="kv-source"></p>')
    if isinstance(status, Failed):
        return Markup('<p class="kv-source kv-failed">{} Memory works without it.</p>').format(text(status.reason))
    return Markup('<p class="kv-source">{}</p>').format(text(status.facts.source))
