"""Choice lists made from the strategies table."""

from __future__ import annotations

from collections.abc import Iterable

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
        words = f"<strong>{text(row.label)}</strong>: {text(row.trade)}."
        if row.unavailable_reason is None:
            usable.append(f"<li>{words}</li>")
        else:
            others.append(f"<li><strong>{text(row.label)}</strong>: {text(row.unavailable_reason)}</li>")
    missing = f"<details><summary>Not available here: {len(others)}</summary><ul>{''.join(others)}</ul></details>"
    return f'<div class="kv-notes"><ul>{"".join(usable)}</ul>{missing if others else ""}</div>'
