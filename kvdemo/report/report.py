"""Any result as a report for others: HTML in one file that loads nothing, and Markdown. CSV is in spreadsheet.py.

What it says is put together in contents.py and question_contents.py; here it gets its form, and every text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from kvdemo.charts.colours import swaps
from kvdemo.charts.static_svg import figure_svg
from kvdemo.experiments.finding import Pieces
from kvdemo.facts.decision import CacheAdvice, CacheDecision
from kvdemo.facts.results import ComparisonResult
from kvdemo.palette import PAPER
from kvdemo.questions.documents import AnyResult
from kvdemo.report.contents import Table, comparison_charts, comparison_contents
from kvdemo.report.question_contents import question_charts, question_contents
from kvdemo.report.reproduce import templates

__all__ = ["report_html", "report_markdown"]

WIDTHS_PX = (311, 444)  # inside a card on a phone or in half of a sheet of paper, and in half of a page of 1,000 px
STACKS_PX = (480, 600, 720, 840, 930, 1020, 9999)  # where the rows of a table become blocks; the last: always


def report_html(result: AnyResult, *, decision: CacheDecision | None = None, change: CacheAdvice | None = None) -> str:
    """The report as one HTML page that opens offline and on a phone: no script, nothing loaded, charts as SVG.

    decision   what was in force before (page one, part 1); None: it says that nobody looked
    change     "Keep this / Go back" for the arm that somebody chose; None: left out
    """
    contents = contents_of(result, decision, change)
    figures = [drawn(figure) for figure in charts_of(result)]
    colours = {mode: asdict(paper) for mode, paper in PAPER.items()}
    page = templates().get_template("report.html.j2")
    return page.render(
        **contents,
        figures=figures,
        colours=colours,
        swaps=swaps(),
        widths=WIDTHS_PX,
        stacks=STACKS_PX,
        stack_of=stack_of,
    )


def report_markdown(
    result: AnyResult, *, decision: CacheDecision | None = None, change: CacheAdvice | None = None
) -> str:
    """The same report as Markdown for an issue or a pull request: tables and code, no charts."""
    page = templates().get_template("report.md.j2")
    return page.render(
        **contents_of(result, decision, change),
        md=markdown_text,
        marked=markdown_pieces,
        fenced=fenced,
        row=markdown_row,
    )


def contents_of(result: AnyResult, decision: CacheDecision | None, change: CacheAdvice | None) -> dict[str, Any]:
    if isinstance(result, ComparisonResult):
        return comparison_contents(result, decision, change)
    return question_contents(result, decision)


def charts_of(result: AnyResult) -> Sequence[go.Figure]:
    return comparison_charts(result) if isinstance(result, ComparisonResult) else question_charts(result)


def stack_of(table: Table) -> int:
    """At which width of its place does this table have no room for all its columns?"""
    return next(px for px in STACKS_PX if px >= table.width_px or px == STACKS_PX[-1])


def drawn(figure: go.Figure) -> tuple[str, list[Markup]]:
    """A chart's question and its picture in each width; labels inside were escaped when the figure was made."""
    return str(figure.layout.meta["question"]), [Markup(figure_svg(figure, width)) for width in WIDTHS_PX]


def markdown_text(text: object) -> str:
    """Any text as one line of Markdown that shows it word for word, in a table too."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~&$@-])", r"\\\1", line).replace("\\<", "&lt;").replace("\\>", "&gt;")


def markdown_pieces(pieces: Pieces) -> str:
    """The headline with its strong parts; marks stand close to the words, as Markdown wants them."""
    marked = []
    for words, strong in pieces:
        lead = " " if words[:1] == " " else ""
        text = markdown_text(words)
        marked.append(f"{lead}**{text}**" if strong and text else f"{lead}{text}")
    return "".join(marked)


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} |"


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
