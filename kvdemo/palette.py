"""Every colour and dash, once. The theme, the style sheet and the charts read it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MEANINGS", "PAPER", "Meaning", "Paper", "of_strategy"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """A meaning's colours in light and dark, and how its line is drawn (plotly's names for dash and marker)."""

    fill: str
    text: str
    dark: str
    dash: str = "solid"
    marker: str = "circle"


@dataclass(frozen=True, slots=True)
class Paper:
    """The neutral colours of a mode."""

    background: str
    card: str
    line: str
    text: str
    faint_text: str


PAPER = {
    "light": Paper("#fafaf9", "#ffffff", "#e5e7eb", "#111827", "#6b7280"),
    "dark": Paper("#0f1115", "#171a21", "#2b303b", "#f3f4f6", "#9ca3af"),
}

MEANINGS = {
    "none": Meaning("#D55E00", "#B34700", "#FF8A3D", "dash", "square"),
    "dynamic": Meaning("#0072B2", "#0072B2", "#5BA8DC", "solid", "circle"),
    "static": Meaning("#56B4E9", "#1D6FA5", "#56B4E9", "solid", "triangle-up"),
    "static-compiled": Meaning("#004D78", "#004D78", "#8FB8D8", "longdashdot", "diamond"),
    "quantised": Meaning("#CC79A7", "#A8497F", "#CC79A7", "dot", "x"),
    "offloaded": Meaning("#8C6D31", "#8C6D31", "#C9A25E", "dashdot", "cross"),
    "prefill": Meaning("#E69F00", "#8A5F00", "#E69F00"),
    "reused": Meaning("#009E73", "#00704F", "#3CC79B"),
    "weights": Meaning("#6B7280", "#6B7280", "#9CA3AF"),
    "budget": Meaning("#111827", "#111827", "#F3F4F6", "longdash"),
}

_MEANING_OF_STRATEGY = {
    "none": "none",
    "dynamic": "dynamic",
    "static": "static",
    "static-compiled": "static-compiled",
    "offloaded": "offloaded",
    "offloaded-static": "offloaded",
    "fp8": "quantised",
    "quanto-4bit": "quantised",
    "quanto-2bit": "quantised",
    "hqq-8bit": "quantised",
    "hqq-4bit": "quantised",
}


def of_strategy(key: str) -> Meaning:
    """How a strategy is drawn; KeyError for a key that is not in the strategies table."""
    return MEANINGS[_MEANING_OF_STRATEGY[key]]
