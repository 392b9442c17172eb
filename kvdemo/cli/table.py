"""Cells as a table of plain text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["print_table"]


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as their widest cell, the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *others = (
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())
