"""The answer to any question in a terminal: what came out in a sentence, where it was measured, and a table."""

from __future__ import annotations

from typing import Any

from kvdemo.cli.table import print_table
from kvdemo.experiments.notices import notices
from kvdemo.experiments.pieces import TIMED, plain
from kvdemo.experiments.question import AnyResult, Question

__all__ = ["print_result"]

LONGEST_CELL = 40


def print_result(question: Question[Any, Any], result: AnyResult) -> None:
    """Headline, scope, one row per arm, point, prompt ..., and what no column shows."""
    words = question.words
    print(plain(words.headline(result)))
    print(words.scope(result))
    for sentence in notices(question.runs(result)):
        print(f"Note: {sentence}")
    table = question.table(result)
    if len(table):
        print()
        print_table([table.names, *(tuple(_cut(cell) for cell in row) for row in table.rows)])
        if question.rows is None:
            print(TIMED)
    said = words.verdicts(result) if question.rows is not None else ()
    for line in [*said, *words.remarks(result)]:
        print(line)


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_CELL else f"{line[: LONGEST_CELL - 3]}..."
