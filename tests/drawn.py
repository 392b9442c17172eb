"""What a figure shows, read from its data."""

from __future__ import annotations

import re
from typing import Any

import plotly.graph_objects as go


def named(figure: go.Figure, name: str) -> list[Any]:
    """The traces with this name."""
    return [trace for trace in figure.data if trace.name == name]


def texts(figure: go.Figure, name: str | None = None) -> list[str]:
    """The notes of this name (or all) without their marks."""
    return [
        re.sub("<[^>]*>", " ", note.text).strip() for note in figure.layout.annotations if name in (None, note.name)
    ]
