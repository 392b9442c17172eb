"""How long are the stored vectors? The recorded norms of keys and values of one head as a small picture, by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from kvdemo.facts.steps import CacheNorms
from kvdemo.facts.units import format_count

__all__ = ["MOST_BARS", "NormRow", "NormsPicture"]

MOST_BARS = 150
WIDTH, HEIGHT = 600, 60


@dataclass(frozen=True, slots=True)
class NormRow:
    """Keys, or values: in words, and as an SVG."""

    words: str
    bars: Markup


@dataclass(frozen=True, slots=True)
class NormsPicture:
    """What a page needs to show them."""

    norms: CacheNorms

    @property
    def title(self) -> str:
        return (
            f"Length (L2 norm) of each key and value vector, layer {format_count(self.norms.layer)}, "
            f"head {format_count(self.norms.head)}, by position"
        )

    @property
    def rows(self) -> tuple[NormRow, NormRow]:
        keys, values = (self._row(name, of) for name, of in (("Keys", self.norms.keys), ("Values", self.norms.values)))
        return keys, values

    @property
    def ends(self) -> tuple[str, str]:
        """What stands below the first bar and below the last."""
        first, last = self.norms.first + 1, self.norms.first + len(self.norms.keys)
        return f"position {format_count(first)}", f"position {format_count(last)}"

    @property
    def caption(self) -> str:
        each = bar_width(len(self.norms.keys))
        said = ["Recorded once, after the timed runs, of the cache that holds this text."]
        said += [f"Each bar is the mean of {each} positions."] if each > 1 else []
        said += ["Positions before the first one are no longer held by this layer."] if self.norms.first else []
        return " ".join([*said, "It shows how large the stored numbers are, not what they mean."])

    def _row(self, name: str, values: Sequence[float]) -> NormRow:
        words = f"{name}: {min(values):.3g} to {max(values):.3g}"
        svg = Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{}" '
            'preserveAspectRatio="none"><path d="{}"/></svg>'
        ).format(WIDTH, HEIGHT, words, outline(values))
        return NormRow(words, svg)


def bar_width(count: int) -> int:
    """Positions of one bar."""
    return -(-count // MOST_BARS)


def outline(values: Sequence[float]) -> str:
    """The bars as one path, from the left, scaled to the longest."""
    each = bar_width(len(values))
    means = [fmean(values[at : at + each]) for at in range(0, len(values), each)]
    top, wide = max(means) or 1.0, WIDTH / len(means)
    return "".join(
        f"M{at * wide:.1f} {HEIGHT}v-{max(1.0, value / top * HEIGHT):.1f}h{wide * 0.85:.1f}V{HEIGHT}z"
        for at, value in enumerate(means)
    )
