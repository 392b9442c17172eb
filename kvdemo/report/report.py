"""Any result as a report for others: HTML in one file that loads nothing, and Markdown. CSV is in spreadsheet.py.

What it says is put together in contents.py; here it gets its form, and every text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict

import plotly.graph_objects as go
from markupsafe import Markup

from kvdemo.charts.colours import swaps
from kvdemo.charts.request_chart import request_chart
from kvdemo.charts.static_svg import figure_svg
from kvdemo.experiments.pieces import Pieces
from kvdemo.experiments.question import AnyResult
from kvdemo.experiments.tables import Table
from kvdemo.facts.decision import CacheAdvice, CacheDecision
from kvdemo.palette import PAPER
from kvdemo.questions.table import QUESTIONS, question_of
from kvdemo.questions.table import Table as Questions
from kvdemo.questions.verdict import Readiness
from kvdemo.report.contents import contents_of, readiness_of
from kvdemo.report.replay import replay_fragment, replay_style, replay_within, script_and_hash
from kvdemo.report.reproduce import templates

__all__ = ["report_html", "report_markdown"]

WIDTHS_PX = (311, 444)  # inside a card on a phone or in half of a sheet of paper, and in half of a page of 1,000 px
CHAR_PX, CELL_PX, FIRST_PX = 9, 14, 104  # of a table: a character, what lies beside a cell, the first column
STACKS_PX = (480, 600, 720, 840, 930, 1020, 9999)  # where the rows of a table become blocks; the last: always


def report_html(
    result: AnyResult,
    *,
    decision: CacheDecision | None = None,
    change: CacheAdvice | None = None,
    readiness: Readiness | None = None,
    table: Questions = QUESTIONS,
) -> str:
    """The report as one HTML page that opens offline and on a phone: nothing loaded, charts as SVG; its one script
    (which replays a comparison) is admitted by its hash.

    decision   what was in force before (page one, part 1); None: it says that nobody looked
    change     "Keep this / Go back" for the arm that somebody chose; None: left out
    readiness  the verdict where it rests on more than this result; None: it rests on this one
    """
    question = question_of(result, table)
    found = readiness or readiness_of(result, decision, change, table)
    contents = contents_of(question, result, decision, change, found)
    noticed = [] if found.request is None else [request_chart(found.request, found.target_s)]
    drawings = [drawn(figure) for figure in question.drawings(result)]
    colours = {mode: asdict(paper) for mode, paper in PAPER.items()}
    page = templates().get_template("report.html.j2")
    again = replay_within(question, result)
    script, admitted = script_and_hash()
    return page.render(
        replay="" if again is None else replay_fragment(again, heading=""),
        replay_style=replay_style(),
        replay_script=script,
        admitted=admitted,
        **contents,
        picture=drawings[0] if drawings else None,
        figures=[*map(drawn, noticed), *drawings[1:]],
        colours=colours,
        swaps=swaps(),
        widths=WIDTHS_PX,
        stacks=STACKS_PX,
        stack_of=stack_of,
    )


def report_markdown(
    result: AnyResult,
    *,
    decision: CacheDecision | None = None,
    change: CacheAdvice | None = None,
    readiness: Readiness | None = None,
    table: Questions = QUESTIONS,
) -> str:
    """The same report as Markdown for an issue or a pull request: tables and code, no charts."""
    page = templates().get_template("report.md.j2")
    found = readiness or readiness_of(result, decision, change, table)
    return page.render(
        **contents_of(question_of(result, table), result, decision, change, found),
        md=markdown_text,
        marked=markdown_pieces,
        fenced=fenced,
        row=markdown_row,
    )


def stack_of(table: Table) -> int:
    """At which width of its place does this table have no room for all its columns?"""
    return next(px for px in STACKS_PX if px >= width_px(table) or px == STACKS_PX[-1])


def width_px(table: Table) -> int:
    """About how wide a table is at the least: the first column may break its lines, a heading between its words."""
    longest = [max(map(len, (*name.split(), *cells))) for name, *cells in zip(table.names, *table.rows, strict=True)]
    return FIRST_PX + sum(CELL_PX + CHAR_PX * chars for chars in longest[1:])


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
