"""Choice lists made from the strategies table."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.facts.model import StrategyRow

__all__ = ["strategy_choices", "strategy_notes"]


def strategy_choices(rows: Iterable[StrategyRow]) -> list[tuple[str, str]]:
    """(label, key) of every strategy that can be used here."""
    return [(row.label, row.key) for row in rows if row.unavailable_reason is None]


def strategy_notes(rows: Iterable[StrategyRow]) -> str:
    """What each strategy trades, and why some cannot be used here."""
    usable, others = [], []
    for row in rows:
        words = Markup("<strong>{}</strong>: {}.").format(text(row.label), text(row.trade))
        if row.unavailable_reason is None:
            usable.append(Markup("<li>{}</li>").format(words))
        else:
            others.append(
                Markup("<li><strong>{}</strong>: {}</li>").format(text(row.label), text(row.unavailable_reason))
            )
    missing = Markup("<details><summary>Not available here: {}</summary><ul>{}</ul></details>").format(
        len(others), Markup("").join(others)
    )
    return Markup('<div class="kv-notes"><ul>{}</ul>{}</div>').format(
        Markup("").join(usable), missing if others else ""
    )
