"""What a report of a further question says: growth, a set of prompts, a shared prefix. The parts of contents.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from kvdemo.experiments.documents import FORMULAS
from kvdemo.experiments.finding import Pieces
from kvdemo.experiments.wording import TIMED, plain
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.questions import GrowthResult, PromptSetResult
from kvdemo.facts.units import format_count
from kvdemo.questions.grow.charts import GROWTH_FIGURES, growth_figure_chart, growth_ratio_chart, prefix_chart
from kvdemo.questions.prefix.code import PREFIX_CODE
from kvdemo.questions.prefix.spec import PrefixResult
from kvdemo.questions.prompts.charts import prompt_ratios_chart, prompt_set_chart
from kvdemo.questions.words import growth_headline, notices, prefix_headline, prompt_set_headline
from kvdemo.report.contents import METHOD, Table, environment_rows
from kvdemo.report.question_frames import any_runs_table, growth_frame, prefix_frame, prompt_set_frame

__all__ = ["QuestionResult", "question_charts", "question_contents"]

QuestionResult = GrowthResult | PromptSetResult | PrefixResult


def question_contents(result: QuestionResult, decision: CacheDecision | None) -> dict[str, Any]:
    """What both forms of the report say."""
    pieces, table, caption, method = told(result)
    return {
        "title": plain(pieces).split(". ")[0].rstrip("."),
        "pieces": pieces,
        "scope": f"{result.model.name}, {result.model.dtype} on {result.model.device}. "
        "Other models, machines and lengths give other numbers.",
        "notices": notices(result),
        "in_force": decision.sentence() if decision is not None else "Not inspected.",
        "conflicts": decision.conflicts if decision is not None else (),
        "unknown": open_points(result, decision),
        "arms": table,
        "arms_caption": caption,
        "verdicts": [],
        "runs": Table.of(any_runs_table(result)),
        "timed": TIMED,
        "method": f"{method} {TIMED}",
        "formulas": FORMULAS,
        "environment": environment_rows(result.model, result.environment),
        "request": request_rows(result),
        "change": None,
        "command": "",
        "script": PREFIX_CODE if isinstance(result, PrefixResult) else "",
        "to_fill_in": "",
    }


def told(result: QuestionResult) -> tuple[Pieces, Table, str, str]:
    """Headline, table with its caption, and method."""
    if isinstance(result, GrowthResult):
        words = f"Every point is a comparison of its own. {METHOD}"
        return growth_headline(result), Table.of(growth_frame(result)), "Medians at each request size", words
    if isinstance(result, PromptSetResult):
        words = f"Every prompt is a comparison of its own. {METHOD} That of the set is the median over its prompts."
        return prompt_set_headline(result), Table.of(prompt_set_frame(result)), "Each prompt's own ratio", words
    words = (
        "Every question was asked both ways, the first in turn. The kept run's first-token time includes copying the kept "
        "cache. The ratio is taken for each question; the result is the median of the ratios."
    )
    return prefix_headline(result), Table.of(prefix_frame(result)), "Time to first token of each question", words


def question_charts(result: QuestionResult) -> Sequence[go.Figure]:
    """The figures of the question, in the order of the page."""
    if isinstance(result, GrowthResult):
        along = [name for name in ("new_tokens", "prompt_tokens") if len({getattr(p, name) for p in result.points}) > 1]
        return [
            figure
            for name in along or ["new_tokens"]
            for figure in (
                *(growth_ratio_chart(result, name, candidate) for candidate in result.spec.strategies[1:]),
                *(growth_figure_chart(result, which, name) for which in GROWTH_FIGURES),
            )
        ]
    if isinstance(result, PromptSetResult):
        ratios = [prompt_ratios_chart(result, candidate) for candidate in result.spec.strategies[1:]]
        return [prompt_set_chart(result), *ratios]
    return [prefix_chart(result)]


def open_points(result: QuestionResult, decision: CacheDecision | None) -> list[str]:
    """What the question did not answer."""
    sentences = (
        [] if decision is not None else ["Which cache your application uses now: python -m kvdemo inspect tells."]
    )
    if isinstance(result, GrowthResult):
        sentences += [
            f"{format_count(prompt)} prompt and {format_count(new)} new tokens: time did not allow this point."
            for prompt, new in result.left_out
        ]
        sentences.append("Requests beyond the longest one that was allowed.")
    elif isinstance(result, PromptSetResult):
        if result.not_run:
            sentences.append(f"Prompts that time did not allow: {', '.join(result.not_run)}.")
        sentences.append("Prompts that are unlike those of the set.")
    else:
        sentences.append("Prefixes that change between requests: nothing of them could be kept.")
    sentences.append("Many requests at once: one ran at a time.")
    return sentences


def request_rows(result: QuestionResult) -> list[tuple[str, str]]:
    spec = result.spec
    named = {
        name: getattr(spec, name)
        for name in (
            "strategies",
            "strategy",
            "rounds",
            "longest_tokens",
            "max_new_tokens",
            "fixed_length",
            "system_prompt",
        )
        if getattr(spec, name, None) not in (None, "")
    }
    return [
        (name.replace("_", " "), ", ".join(value) if isinstance(value, tuple) else str(value))
        for name, value in named.items()
    ]
