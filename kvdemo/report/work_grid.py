"""How much was computed? One run's forwards as a small picture: x position in the text, y step; computed now, or read."""

from __future__ import annotations

from markupsafe import Markup

from kvdemo.facts.records import RunRecord
from kvdemo.facts.units import format_count

__all__ = ["MOST_ROWS", "work_grid"]

MOST_ROWS = 60
WIDTH, HEIGHT = 300, 180


def work_grid(run: RunRecord) -> Markup:
    """An SVG. Past MOST_ROWS steps a row stands for several: from the first position that one of them computed on, it is
    drawn as computed, so that a triangle stays a triangle and a diagonal a diagonal."""
    forwards = list(zip(run.positions_read or (), run.positions_computed or (), strict=True))
    length = max(read + computed for read, computed in forwards)
    per_row = -(-len(forwards) // MOST_ROWS)
    groups = [forwards[first : first + per_row] for first in range(0, len(forwards), per_row)]
    tall, wide = HEIGHT / len(groups), WIDTH / length
    bars = []
    for at, group in enumerate(groups):
        read = min(read for read, _ in group)
        end = max(read + computed for read, computed in group)
        for kind, low, high in (("read", 0, read), ("computed", read, end)):
            if high > low:
                width = max((high - low) * wide, 1.0)  # one position of thousands is still seen, at the very end, too
                bars.append(
                    Markup('<rect class="kv-{}" x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}"/>').format(
                        kind, min(low * wide, WIDTH - width), at * tall, width, max(tall - 0.4, 0.4)
                    )
                )
    words = f"{format_count(run.total_computed)} positions computed in {format_count(len(forwards))} steps"
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">{}'
        '<rect class="kv-mark" x="0" y="0" width="{}" height="{:.2f}"/></svg>'
    ).format(WIDTH, HEIGHT, words, Markup("").join(bars), WIDTH, max(tall, 2.0))
