"""A comparison as a report for others: HTML in one file that loads nothing, and Markdown. CSV is in spreadsheet.py.

It puts together what other files know: words from the experiments, tables, figures, calls. Every text is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import FORMULAS
from kvdemo.experiments.finding import Pieces
from kvdemo.experiments.wording import TIMED, headline, plain, scope_line
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.results import ComparisonResult
from kvdemo.facts.units import format_bytes, format_parameters
from kvdemo.palette import PAPER
from kvdemo.reports.calls import CacheChange
from kvdemo.reports.colours import swaps
from kvdemo.reports.compare_charts import arrival_chart, cache_bytes_chart, step_cost_chart, time_split_chart
from kvdemo.reports.frames import arms_frame, runs_table
from kvdemo.reports.reproduce import command_of, reproduce_script, templates
from kvdemo.reports.static_svg import figure_svg
from kvdemo.reports.unknowns import not_yet_known
from kvdemo.reports.work_chart import work_chart

__all__ = ["report_html", "report_markdown"]

WIDTHS_PX = (311, 560)  # a phone's card, and half of a laptop's page


@dataclass(frozen=True, slots=True)
class Table:
    names: list[str]
    rows: list[list[str]]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Table:
        return cls(
            [str(name) for name in frame.columns], [[str(cell) for cell in row] for row in frame.to_numpy().tolist()]
        )


def report_html(
    result: ComparisonResult, *, decision: CacheDecision | None = None, change: CacheChange | None = None
) -> str:
    """The report as one HTML page that opens offline and on a phone: no script, nothing loaded, charts as SVG.

    decision   what was in force before (page one, part 1); None: it says that nobody looked
    change     "Keep this / Go back" for the arm that somebody chose; None: left out
    """
    contents = contents_of(result, decision, change)
    figures = [drawn(figure) for figure in charts_of(result)]
    colours = {mode: asdict(paper) for mode, paper in PAPER.items()}
    page = templates().get_template("report.html.j2")
    return page.render(**contents, figures=figures, colours=colours, swaps=swaps())


def report_markdown(
    result: ComparisonResult, *, decision: CacheDecision | None = None, change: CacheChange | None = None
) -> str:
    """The same report as Markdown for an issue or a pull request: tables and code, no charts."""
    page = templates().get_template("report.md.j2")
    return page.render(
        **contents_of(result, decision, change),
        headline=markdown_pieces(headline(result)),
        md=markdown_text,
        fenced=fenced,
        row=markdown_row,
    )


def contents_of(result: ComparisonResult, decision: CacheDecision | None, change: CacheChange | None) -> dict[str, Any]:
    """What both forms of the report say."""
    try:
        script, command = reproduce_script(result), command_of(result)
    except InvalidRequest:  # a file of a later version may name a strategy that this one does not know
        script, command = "", ""
    pieces: Pieces = headline(result)
    return {
        "title": plain(pieces).split(". ")[0].rstrip("."),
        "pieces": pieces,
        "scope": scope_line(result),
        "in_force": decision.sentence() if decision is not None else "Not inspected.",
        "conflicts": decision.conflicts if decision is not None else (),
        "unknown": not_yet_known(result, decision),
        "arms": Table.of(arms_frame(result)),
        "verdicts": verdicts(result),
        "runs": Table.of(runs_table(result)),
        "timed": TIMED,
        "formulas": FORMULAS,
        "environment": environment_rows(result),
        "request": request_rows(result),
        "change": change,
        "command": command,
        "script": script,
    }


def charts_of(result: ComparisonResult) -> Sequence[go.Figure]:
    charts = [arrival_chart(result), step_cost_chart(result), time_split_chart(result), work_chart(result)]
    return [*charts, cache_bytes_chart(result)] if any(run.cache_bytes_by_token for run in result.runs) else charts


def drawn(figure: go.Figure) -> tuple[str, list[Markup]]:
    """A chart's question and its picture in each width; labels inside were escaped when the figure was made."""
    return str(figure.layout.meta["question"]), [Markup(figure_svg(figure, width)) for width in WIDTHS_PX]


def verdicts(result: ComparisonResult) -> list[str]:
    """Same tokens or not, per further arm, with the texts around the first difference."""
    sentences = []
    for item in result.comparisons:
        if item.metric != "generation_s":
            continue
        names = f"{result.row(item.baseline).label} and {result.row(item.candidate).label}"
        verdict = item.verdict
        if verdict.same_output is None:
            sentences.append(f"{names}: no round in which both finished.")
        elif verdict.same_output:
            sentences.append(f"{names}: the same tokens in every round.")
        else:
            gap = (
                f" Largest logit gap up to there: {verdict.largest_gap:.3g}." if verdict.largest_gap is not None else ""
            )
            texts = f" “{verdict.baseline_text}” against “{verdict.candidate_text}”." if verdict.baseline_text else ""
            first = (verdict.first_difference or 0) + 1
            sentences.append(f"{names}: tokens differ from token {first:,} on.{texts}{gap} This is no test of quality.")
    return sentences


def environment_rows(result: ComparisonResult) -> list[tuple[str, str]]:
    model = result.model
    about = {
        "model": f"{model.name}, {format_parameters(model.num_parameters)} parameters, {model.dtype} on {model.device}",
        "weights": f"{format_bytes(model.weight_bytes)}. {model.source}",
        "cache per token": format_bytes(model.cache_bytes_per_token),
        "attention": model.attention,
        "revision": model.revision,
        **asdict(result.environment),
    }
    return [(name.replace("_", " "), "none" if value is None else str(value)) for name, value in about.items()]


def request_rows(result: ComparisonResult) -> list[tuple[str, str]]:
    spec = result.spec
    sampling = (
        "greedy" if spec.sampling.greedy else f"temperature {spec.sampling.temperature:g}, seed {spec.sampling.seed}"
    )
    return [
        ("prompt", spec.prompt),
        ("sent as", "a chat message" if spec.as_chat else "text"),
        *([("system prompt", spec.system_prompt)] if spec.system_prompt else []),
        ("new tokens", f"{spec.max_new_tokens:,}" + (", fixed" if spec.fixed_length else " at most")),
        ("rounds asked for", f"{spec.rounds:,}"),
        ("sampling", sampling),
    ]


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
