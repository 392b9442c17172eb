"""Foreign text in a chart. Imports no plotly: what only names an arm needs it, too, while a page is built."""

from __future__ import annotations

__all__ = ["clean"]


def clean(text: str, *, max_chars: int = 60) -> str:
    """Text from a model, a prompt or a file as plotly shows it word for word: no tag, no template, one line."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(line) > max_chars:
        line = line[: max_chars - 1] + "…"
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("{", "&#123;")):
        line = line.replace(char, entity)
    return line
