"""Where a label finds room on a plot whose height is known and whose width is the page's: tried narrow and wide.

Pixels count from the plot's lower left corner. The width of text is an estimate: no browser is asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kvdemo.charts.look import TEXT_PX

__all__ = ["Label", "Sheet", "text_px"]

WIDTHS_PX = (225, 340, 480)  # of the plot on a phone, in a narrow window, on a desk
BOLD_CHAR_PX = 8.2
AIR_PX = 3

Line = Sequence[tuple[float, float]]
"""Points of a line: share of the plot's width, pixels above its lower edge, from left to right."""


@dataclass(frozen=True, slots=True)
class Label:
    """A place for one or more lines of text.

    share     where along the width it is anchored, 0 to 1; shift_px moves it to the right
    bottom    pixels from the plot's lower edge to the text's
    anchor    "left" or "right": which side of the text is at the anchor
    """

    share: float
    bottom: float
    width: float
    height: float = TEXT_PX
    shift_px: float = 0
    anchor: str = "left"

    def span(self, plot_px: float) -> tuple[float, float]:
        """Left and right edge on a plot this wide."""
        left = self.share * plot_px + self.shift_px - (self.width if self.anchor == "right" else 0)
        return left, left + self.width

    def meets(self, other: Label, plot_px: float) -> bool:
        (left, right), (other_left, other_right) = self.span(plot_px), other.span(plot_px)
        apart = right <= other_left or other_right <= left
        return not apart and self.bottom < other.bottom + other.height and other.bottom < self.bottom + self.height


@dataclass(slots=True)
class Sheet:
    """A plot `height` pixels high, with the lines and the labels that are on it already."""

    height: float
    lines: list[Line]
    labels: list[Label] = field(default_factory=list)

    def place(self, candidates: Sequence[Label]) -> Label:
        """The first candidate that is in nobody's way, else the one that is least; it is on the sheet from now on."""
        best, least = candidates[0], math.inf
        for label in candidates:
            trouble = self._trouble(label)
            if trouble < least:
                best, least = label, trouble
            if not trouble:
                break
        self.labels.append(best)
        return best

    def _trouble(self, label: Label) -> float:
        """How much of this label's place is taken, over all widths; 0: nothing."""
        outside = max(0, -label.bottom) + max(0, label.bottom + label.height - self.height - 8)
        taken = 20 * outside
        for plot_px in WIDTHS_PX:
            left, right = label.span(plot_px)
            taken += 20 * (max(0, -left) + max(0, right - plot_px - 4))
            taken += 500 * sum(label.meets(other, plot_px) for other in self.labels)
            taken += sum(_crossed_px(line, label, plot_px) for line in self.lines)
        return taken


def text_px(text: str) -> float:
    """About how wide the longest line of a text is; tags take no room, an entity is one character."""
    plain = re.sub("&[a-z#0-9]+;", "x", re.sub("<(?!br)[^>]*>", "", text))
    return max(len(line) for line in plain.split("<br>")) * BOLD_CHAR_PX


def _crossed_px(line: Line, label: Label, plot_px: float) -> float:
    """Along how many pixels, across or up, does the line run through the label and a little air around it?"""
    left, right = label.span(plot_px)
    left, right = left - AIR_PX, right + AIR_PX
    low, high = label.bottom - AIR_PX + 1, label.bottom + label.height + AIR_PX
    crossed = 0.0
    for (share, y), (next_share, next_y) in pairwise(line):
        start, end = share * plot_px, next_share * plot_px
        if end < left or start > right or max(y, next_y) <= low or min(y, next_y) >= high:
            continue
        across, up = end - start, next_y - y
        first, last = 0.0, 1.0  # the part of the segment that is inside
        for begin, length, lower, upper in ((start, across, left, right), (y, up, low, high)):
            if length:
                one, other = sorted(((lower - begin) / length, (upper - begin) / length))
                first, last = max(first, one), min(last, other)
        if last > first:
            crossed += (last - first) * max(across, abs(up))
    return crossed
