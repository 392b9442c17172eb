"""The charts of a prompt set: what is in it, and which prompts gain."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from kvdemo.charts.arms import meaning_of
from kvdemo.charts.look import GREY, TEXT_PX, Spot, blank, note
from kvdemo.charts.plain_text import clean
from kvdemo.facts.units import format_count, format_ratio
from kvdemo.palette import MEANINGS, of_strategy
from kvdemo.questions.prompts.spec import PromptSetResult

__all__ = ["draw", "drawings", "prompt_ratios_chart", "prompt_set_chart"]

PLOT_PX = 220
ROW_PX = 24
MOST_NAMED = 30


def prompt_set_chart(result: PromptSetResult) -> go.Figure:
    """What is in this set? Prompt tokens by answer tokens of every prompt, the longest request allowed as a line."""
    places = []
    for item in result.prompts:
        run = next((run for run in reversed(item.result.runs) if run.counts), None)
        if run is not None and run.prompt_tokens is not None:
            places.append((run.prompt_tokens, run.new_tokens, clean(item.row.id)))
    limit = result.spec.longest_tokens or result.model.context_limit
    named_px = TEXT_PX + 2 if limit is not None else 0
    longest_prompt = max((x for x, _, _ in places), default=1)
    longest_answer = max((y for _, y, _ in places), default=1)
    figure = blank(
        "What is in this set?",
        height=66 + named_px + PLOT_PX + 48,
        right=24,
        top=66 + named_px,
        x={"title_text": "prompt, tokens", "range": [0, longest_prompt * 1.15]},
        y={"range": [0, longest_answer * 1.3], "nticks": 5},
        y_title="answer, tokens",
    )
    colour = of_strategy("dynamic")
    figure.add_scatter(
        x=[x for x, _, _ in places],
        y=[y for _, y, _ in places],
        mode="markers",
        name="prompts",
        cliponaxis=False,
        marker={"color": colour.fill, "size": 10, "symbol": colour.marker, "opacity": 0.7},
        customdata=[name for *_, name in places],
        hovertemplate="%{customdata}: %{x:,} prompt and %{y:,} answer tokens<extra></extra>",
    )
    if limit is not None:
        in_sight = limit < longest_prompt * 1.15 + longest_answer * 1.3
        if in_sight:
            line = {"color": MEANINGS["budget"].fill, "width": 1.5, "dash": MEANINGS["budget"].dash}
            figure.add_scatter(
                x=[0, limit], y=[limit, 0], mode="lines", line=line, hoverinfo="skip", name="longest allowed"
            )
        words = f"longest allowed: {format_count(limit)} tokens" + ("" if in_sight else " (not in sight)")
        # above the plot, where neither the line nor a point can meet it
        spot = Spot(0, 1, (-44, 8 + named_px), stand="bottom")
        note(figure, words, spot, colour=MEANINGS["budget"].text, name="limit")
    return figure


def prompt_ratios_chart(result: PromptSetResult, candidate: str) -> go.Figure:
    """Which prompts gain, and which gain least? Ratio of each prompt, sorted, with the set's median; the worst is named."""
    meaning = meaning_of(candidate)
    rows = []
    for item in result.prompts:
        comparison = item.result.comparison(candidate)
        if comparison is not None and comparison.ratio is not None:
            rows.append((comparison.ratio, clean(item.row.id, max_chars=28), comparison))
    rows.sort(key=lambda row: row[0])
    whole = next((item for item in result.comparisons if item.candidate == candidate), None)
    named = len(rows) <= MOST_NAMED
    highest = max((item.high or ratio for ratio, _, item in rows), default=1.0)
    height = max(90, min(2 * ROW_PX * len(rows), 2 * ROW_PX * MOST_NAMED) if named else 400)
    figure = blank(
        "Which prompts gain least?",
        height=92 + height + 48,
        left=12,
        top=92,
        x={"title_text": "times faster than the baseline", "range": [0, max(1.1, highest * 1.08)], "showgrid": True},
        y={"range": [max(1, len(rows)) - 0.5, -0.7], "showticklabels": False, "showgrid": False},
    )
    figure.add_vline(x=1, line={"color": GREY, "width": 1, "dash": "dot"})
    for at, (_, _, whisker) in enumerate(rows):
        if whisker.low is not None and whisker.high is not None and named:
            line = {"color": meaning.fill, "width": 1.5}
            figure.add_scatter(
                x=[whisker.low, whisker.high], y=[at, at], mode="lines", line=line, hoverinfo="skip", name="interval"
            )
    figure.add_scatter(
        x=[ratio for ratio, _, _ in rows],
        y=list(range(len(rows))),
        mode="markers",
        name="ratio",
        cliponaxis=False,
        marker={"color": meaning.fill, "size": 9, "symbol": meaning.marker},
        customdata=[f"{name}: {format_ratio(ratio)} times" for ratio, name, _ in rows],
        hovertemplate="%{customdata}<extra></extra>",
    )
    for at, (_, name, _) in enumerate(rows if named else rows[:1]):
        note(figure, name, Spot(0, at, (2, ROW_PX / 2 + 2), refs=("x", "y")), name="prompt")
    if whole is not None and whole.ratio is not None:
        figure.add_vline(x=whole.ratio, line={"color": meaning.fill, "width": 2, "dash": "dash"})
        words = f"<b>the set: {format_ratio(whole.ratio)} times</b>"
        note(figure, words, Spot(0, 1, (0, 34), stand="bottom"), colour=meaning.text, name="set")
    if rows:
        words = f"least: {rows[0][1]}, {format_ratio(rows[0][0])} times"
        note(figure, words, Spot(0, 1, (0, 34 - TEXT_PX - 2), stand="bottom"), name="worst")
    return figure


def draw(result: PromptSetResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order; picked: candidate (an arm). One arm by itself, of a server, has no ratios."""
    if not result.prompts:
        return [None, None]
    candidate = picked.get("candidate") or next(iter(result.spec.strategies[1:]), None)
    return [prompt_set_chart(result), None if candidate is None else prompt_ratios_chart(result, candidate)]


def drawings(result: PromptSetResult) -> list[go.Figure]:
    """All figures, for a report: the ratios of every arm."""
    if not result.prompts:
        return []
    ratios = [prompt_ratios_chart(result, candidate) for candidate in result.spec.strategies[1:]]
    return [prompt_set_chart(result), *ratios]
