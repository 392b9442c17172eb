"""The result of a comparison as the page shows it: headline, table, runs on demand. Words come from the experiments,
figures from the reports; this file only puts them into fragments.
"""

from __future__ import annotations

from typing import Any

from kvdemo.experiments.wording import TIMED, headline, scope_line
from kvdemo.facts.results import ComparisonResult
from kvdemo.ui.markup import table, text

__all__ = ["EMPTY", "charts", "empty_result", "headline_card", "result_tables"]

EMPTY = (
    "Run generates the same text once per strategy, one after the other, and times every token. Then you see here how "
    "many times faster one is, whether the tokens are the same, and where the time went."
)


def empty_result(words: str) -> str:
    """Before any run: what will appear and how to get it."""
    return f'<div class="kv-card kv-headline kv-headline-empty"><p>{text(words)}</p></div>'


def headline_card(result: ComparisonResult) -> str:
    """The one sentence, and what it was measured on."""
    pieces = "".join(f"<strong>{text(words)}</strong>" if strong else text(words) for words, strong in headline(result))
    return (
        f'<div class="kv-card kv-headline" role="status"><p class="kv-headline-text">{pieces}</p>'
        f'<p class="kv-small">{text(scope_line(result))}</p></div>'
    )


def result_tables(result: ComparisonResult) -> str:
    """One row per arm, one row per run on demand, and what was timed."""
    from kvdemo.reports.frames import arms_frame, runs_table

    arms = _table(arms_frame(result), "One row per strategy: medians over the rounds")
    runs = _table(runs_table(result), "One row per run")
    return (
        f'<div class="kv-card kv-tables">{arms}<p class="kv-small">{text(TIMED)}</p>'
        f"<details><summary>Every run ({len(result.runs)})</summary>{runs}</details></div>"
    )


def charts(result: ComparisonResult) -> list[Any]:
    """The four figures, in the order of the page."""
    from kvdemo.reports.compare_charts import arrival_chart, step_cost_chart, time_split_chart
    from kvdemo.reports.work_chart import work_chart

    return [arrival_chart(result), step_cost_chart(result), time_split_chart(result), work_chart(result)]


def _table(frame: Any, caption: str) -> str:
    rows = [[text(value) for value in values] for values in frame.itertuples(index=False)]
    return table([text(name) for name in frame.columns], rows, caption=caption)
