"""Words of the trade with what they mean: shown with a dotted underline, explained where somebody points or taps.

The one source: the README's two tables of terms are these, word for word, which a test compares.
"""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.components.markup import text

__all__ = ["FIGURES", "KEPT", "TERMS", "term"]

FIGURES = {
    "Queue wait": "From the request's arrival until the model's thread accepts it.",
    "Preparing": "Filling in the chat template and turning text into tokens. It comes before the clock starts.",
    "Prefill": "Reading the prompt, all of it at once. Its time is the time to first token.",
    "First token": "Time to first token (TTFT): from acceptance until the first token is known.",
    "Step time": "Of token i: its time less that of token i - 1.",
    "Decode": "From the first token to the last. Prefill and decode together are the generation.",
    "Per token": "Time per output token (TPOT): decode / (tokens - 1). A single token has none.",
    "Speed": "Tokens per second while decoding: 1 / TPOT.",
    "Complete request": "From the request's arrival until its last piece is handed to the page.",
    "Computed": "Positions computed, counted from what every forward pass was given.",
    "Cache held": "The bytes of the cache's own tensors, and of the storages behind them.",
}
"""What a run is told by, in the order in which it happens. Headings of tables that bear these names are explained."""

KEPT = {
    "KV head": "A set of keys and values that a layer stores for every token. Several attention heads may share one.",
    "full": "A layer that keeps the keys and values of every token.",
    "sliding": "A layer that looks back a fixed number of tokens only, its window, and keeps no more than that.",
    "chunked": "A layer that looks back to the beginning of the current chunk only.",
    "latent": "A layer that keeps one compressed vector for each token instead of keys and values by head.",
    "indexed": "A layer that also keeps a small key for each token, by which it finds the tokens worth reading.",
    "compressed": "A layer that keeps several tokens together as one entry.",
    "linear state": "A layer that keeps a state of fixed size, whatever the length.",
    "hybrid": "A layer that keeps keys and values as well as a state of fixed size.",
    "shared": "A layer that reads the keys and values of another one and stores none itself.",
    "cross-attention": "A layer that keeps the keys and values of what the encoder read.",
    "held": "What a cache that grows with every token holds at this length.",
    "reserved": "What a cache of fixed size allocates before the first token.",
    "uniform": "What an engine takes if it keeps every token in every attention layer.",
}
"""What a cache keeps, by kind of layer and by way of counting."""

TERMS = FIGURES | KEPT


def term(name: str, shown: str | None = None) -> str:
    """A term as a fragment; `shown`: as it stands in the sentence. A word without an explanation is just shown."""
    words = text(name if shown is None else shown)
    if name not in TERMS:
        return words
    return Markup('<abbr class="kv-term" tabindex="0" title="{}">{}</abbr>').format(text(TERMS[name]), words)
