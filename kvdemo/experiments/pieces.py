"""Words that every question puts its answer in. A sentence is a list of pieces (text, strong), so that the page, the
report and the terminal each mark the strong parts in their own way. It knows nothing of HTML or Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvdemo.experiments.comparison import Comparison, ComparisonResult, Noise
from kvdemo.facts.endpoint import NOT_REPORTED
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.results import Environment
from kvdemo.facts.units import format_ratio

__all__ = [
    "ENOUGH",
    "IN_ROUNDS",
    "TIMED",
    "Piece",
    "Pieces",
    "asked_rows",
    "between_words",
    "capital",
    "decision_open",
    "ended_words",
    "factor",
    "factors",
    "first_error",
    "in_sentence",
    "label_of",
    "machine_words",
    "plain",
    "scope_words",
    "tokens_word",
]

Piece = tuple[str, bool]
Pieces = list[Piece]

TIMED = "Timed: from accepted to last token. Left out: loading, warm-up, queue, drawing the page."
ENOUGH = 6  # prompts, questions or rounds that make an interval
IN_ROUNDS = (
    "The arms ran one after the other in rounds whose order rotates, after a warm-up of each. A ratio is taken inside "
    "each round; the result is the median of the ratios."
)


def plain(pieces: Pieces) -> str:
    """The words without their marks."""
    return "".join(text for text, _ in pieces)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def factor(ratio: float, noise: Noise | None = None) -> str:
    """A ratio of times in words: 4.2 is "4.2 times faster", 0.8 is "1.25 times as long".

    noise: of this machine, where it was measured; a difference within it is called none
    """
    if noise is not None and noise.covers(ratio):
        return f"no difference beyond the noise of this machine, {noise.words()}"
    if format_ratio(ratio) == "1.00":
        return "as fast"
    return f"{format_ratio(ratio)} times faster" if ratio > 1 else f"{format_ratio(1 / ratio)} times as long"


def tokens_word(count: int) -> str:
    return "token" if count == 1 else "tokens"


def in_sentence(label: str) -> str:
    """A label inside a sentence: "dynamic cache", but "FP8 cache"."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def scope_words(model: ModelFacts, environment: Environment, *more: str) -> str:
    """What was it measured on? Model, dtype, machine, and what else matters."""
    name = model.name.rsplit("/", 1)[-1]
    where = [model.dtype, machine_words(model, environment)]
    if model.device == NOT_REPORTED:  # an engine behind a URL
        where = [model.source[:1].lower() + model.source[1:].rstrip(".")]
    parts = [name, *where, *more]
    return f"{', '.join(parts)}. Other models, machines and lengths give other numbers."


def machine_words(model: ModelFacts, environment: Environment) -> str:
    """ "2 CPU cores", or the accelerator."""
    if model.device.startswith("cpu"):
        return f"{environment.cpu_cores} CPU {'core' if environment.cpu_cores == 1 else 'cores'}"
    return environment.accelerator or model.device


def label_of(rows: Iterable[StrategyRow], key: str) -> str:
    """The strategy's label; its key where the rows do not have it."""
    return next((row.label for row in rows if row.key == key), key)


def between_words(ratio: float, low: float | None, high: float | None, count: int, what: str) -> str:
    """ " (4.0 to 4.5 over 8 prompts)"; below six a range, alone just that. what: in the plural.

    They stand behind `factor`, which turns a ratio below 1 over, so they are turned over with it.
    """
    if low is None or high is None:
        return f" on one {what.removesuffix('s')}"
    if ratio < 1 and low > 0:
        low, high = 1 / high, 1 / low
    between = f"{format_ratio(low)} to {format_ratio(high)}"
    return f" ({between} over {count} {what})" if count >= ENOUGH else f" on {count} {what} (range {between})"


def first_error(results: Iterable[ComparisonResult]) -> Pieces:
    """What went wrong first, where nothing was completed; nothing where nothing failed."""
    error = next((run.error for result in results for run in result.runs if run.error), None)
    return [] if error is None else [(f" {error.rstrip('. ')}.", False)]


def ended_words(reason: str, done: int, left: int, what: str) -> Pieces:
    """Why a series ended before all was done; nothing where it did not."""
    words = {
        "budget": f" The time budget ended after {done} {what}; {left} were left out.",
        "limit": f" The time limit ended it after {done} {what}; {left} were left out.",
        "stopped": f" Stopped after {done} {what}; {left} were left out.",
    }.get(reason)
    return [(words, False)] if words else []


def decision_open(known: bool) -> list[str]:
    """What to say where nobody looked which cache is in force."""
    return [] if known else ["Which cache your application uses now: python -m kvdemo inspect tells."]


def asked_rows(asked: Mapping[str, object]) -> list[tuple[str, str]]:
    """What was asked, as (name, value) in words; what was left open is left out."""
    return [
        (name, ", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for name, value in asked.items()
        if value not in (None, "", ())
    ]


def factors(result: ComparisonResult) -> str:
    """Every further arm of a comparison in a few words."""
    known: list[Comparison] = [item for item in result.comparisons if item.metric == "generation_s" and item.ratio]
    words = [f"{factor(item.ratio or 1)} with {result.row(item.candidate).label}" for item in known]
    return ", ".join(words) or "no ratio"
