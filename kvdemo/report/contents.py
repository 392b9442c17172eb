"""What a report of a comparison says, part by part, before any form is given to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import FORMULAS
from kvdemo.experiments.finding import Pieces
from kvdemo.experiments.wording import TIMED, headline, plain, scope_line
from kvdemo.facts.decision import CacheAdvice, CacheDecision
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.results import ComparisonResult, Environment
from kvdemo.facts.units import format_bytes, format_parameters
from kvdemo.questions.faster.charts import arrival_chart, cache_bytes_chart, step_cost_chart, time_split_chart
from kvdemo.questions.faster.work_chart import work_chart
from kvdemo.questions.words import notices
from kvdemo.report.frames import arms_frame, runs_table
from kvdemo.report.reproduce import command_of, is_local, reproduce_script, to_fill_in
from kvdemo.report.unknowns import not_yet_known

__all__ = ["Table", "comparison_charts", "comparison_contents", "environment_rows"]

METHOD = (
    "The arms ran one after the other in rounds whose order rotates, after a warm-up of each. A ratio is taken inside "
    "each round; the result is the median of the ratios."
)


CHAR_PX, CELL_PX, FIRST_PX = (
    9,
    14,
    104,
)  # of the report's tables: a character, what lies beside a cell, the first column


@dataclass(frozen=True, slots=True)
class Table:
    """A table of words."""

    names: list[str]
    rows: list[list[str]]

    @property
    def width_px(self) -> int:
        """About how wide it is at the least: the first column may break its lines, a heading between its words."""
        longest = [max(map(len, (*name.split(), *cells))) for name, *cells in zip(self.names, *self.rows, strict=True)]
        return FIRST_PX + sum(CELL_PX + CHAR_PX * chars for chars in longest[1:])

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Table:
        return cls(
            [str(name) for name in frame.columns], [[str(cell) for cell in row] for row in frame.to_numpy().tolist()]
        )


def comparison_contents(
    result: ComparisonResult, decision: CacheDecision | None, change: CacheAdvice | None
) -> dict[str, Any]:
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
        "notices": notices(result),
        "in_force": decision.sentence() if decision is not None else "Not inspected.",
        "conflicts": decision.conflicts if decision is not None else (),
        "unknown": not_yet_known(result, decision),
        "arms": Table.of(arms_frame(result)),
        "arms_caption": "Medians over the rounds",
        "verdicts": verdicts(result),
        "runs": Table.of(runs_table(result)),
        "timed": TIMED,
        "method": f"{METHOD} {TIMED}",
        "formulas": FORMULAS,
        "environment": environment_rows(result.model, result.environment),
        "request": request_rows(result),
        "change": change,
        "command": command,
        "script": script,
        "to_fill_in": to_fill_in(result.model),
    }


def comparison_charts(result: ComparisonResult) -> Sequence[go.Figure]:
    charts = [arrival_chart(result), step_cost_chart(result), time_split_chart(result), work_chart(result)]
    return [*charts, cache_bytes_chart(result)] if any(run.cache_bytes_by_token for run in result.runs) else charts


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


def environment_rows(model: ModelFacts, environment: Environment) -> list[tuple[str, str]]:
    """The model and the machine."""
    named, parameters = model.hub_id or model.name, format_parameters(model.num_parameters)
    source = "Weights from a folder or file of the machine that measured." if is_local(model) else model.source
    about = {
        "model": f"{named}, {parameters} parameters, {model.dtype} on {model.device}",
        "weights": f"{format_bytes(model.weight_bytes)}. {source}",
        "cache per token": format_bytes(model.cache_bytes_per_token),
        "attention": model.attention,
        "revision": model.revision,
        **asdict(environment),
        "on_page": {True: "yes", False: "no", None: "not known"}[environment.on_page],
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
