"""The charts of conversations: what of each request is reused, new, or processed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from kvdemo.charts.lines import banner, banner_px
from kvdemo.charts.look import blank
from kvdemo.charts.plain_text import clean
from kvdemo.facts.units import format_count
from kvdemo.palette import MEANINGS
from kvdemo.questions.conversations.spec import ConversationReuse, ConversationsResult, TurnReuse

__all__ = ["draw", "drawings", "worst_first"]

MOST_ROWS = 30
ROW_PX = 24
PARTS = (("reused", "reused"), ("prefill", "new"), ("none", "processed again"))


def worst_first(result: ConversationsResult) -> list[ConversationReuse]:
    """Conversations by what they process again, the most first."""
    return sorted(result.conversations, key=lambda talk: sum(turn.again_tokens for turn in talk.turns), reverse=True)


def parts_of(turns: Sequence[TurnReuse]) -> tuple[int, int, int]:
    """(reused at the first page size, new, processed again), tokens."""
    reused = sum(next(iter(turn.reused_tokens.values())) for turn in turns)
    again = sum(turn.again_tokens for turn in turns)
    return reused, sum(turn.prompt_tokens for turn in turns) - reused - again, again


def bars(question: str, rows: Sequence[tuple[str, tuple[int, int, int]]], left: int, x_title: str) -> go.Figure:
    """One bar per row: its name and its three parts, tokens."""
    labels = [
        (MEANINGS[meaning], f"{words}: {format_count(sum(parts[at] for _, parts in rows))} tokens")
        for at, (meaning, words) in enumerate(PARTS)
    ]
    top = 66 + banner_px([text for _, text in labels])
    figure = blank(
        question,
        height=top + max(60, ROW_PX * len(rows)) + 48,
        top=top,
        left=left,
        x={
            "title_text": x_title,
            "range": [0, 1.04 * max((sum(parts) for _, parts in rows), default=1)],
            "showgrid": True,
        },
        y={
            "range": [max(1, len(rows)) - 0.5, -0.5],
            "showgrid": False,
            "tickvals": list(range(len(rows))),
            "ticktext": [name for name, _ in rows],
        },
    )
    figure.update_layout(barmode="stack")
    for at, (meaning, words) in enumerate(PARTS):
        figure.add_bar(
            x=[parts[at] for _, parts in rows],
            y=list(range(len(rows))),
            base=[sum(parts[:at]) for _, parts in rows],
            width=0.7,
            orientation="h",
            marker={"color": MEANINGS[meaning].fill},
            name=words,
            customdata=[name for name, _ in rows],
            hovertemplate=f"%{{customdata}}: %{{x:,}} tokens {words}<extra></extra>",
        )
    banner(figure, labels, left=left)
    return figure


def turns_chart(talk: ConversationReuse) -> go.Figure:
    """What of each turn is reused? One bar per turn of a conversation, the first ones of a long one."""
    shown = talk.turns[:MOST_ROWS]
    more = f" (the first {MOST_ROWS})" if len(talk.turns) > MOST_ROWS else ""
    rows = [(f"turn {at}", parts_of([turn])) for at, turn in enumerate(shown, 1)]
    return bars("What of each turn is reused?", rows, 64, f"{clean(talk.id, max_chars=16)}{more}: prompt, tokens")


def conversations_chart(result: ConversationsResult) -> go.Figure:
    """Which conversations lose most? One bar each, the worst first."""
    shown = worst_first(result)[:MOST_ROWS]
    more = f"the worst {MOST_ROWS}: " if len(result.conversations) > MOST_ROWS else ""
    rows = [(clean(talk.id, max_chars=16), parts_of(talk.turns)) for talk in shown]
    return bars("Which conversations lose most?", rows, 128, f"{more}prompt, tokens")


def draw(result: ConversationsResult, picked: Mapping[str, str]) -> list[go.Figure | None]:
    """The page's figures in their order; picked: conversation (its place in the result)."""
    if not result.conversations:
        return [None, None]
    place = picked.get("conversation", "")
    talk = result.conversations[int(place)] if place else worst_first(result)[0]
    return [turns_chart(talk), conversations_chart(result) if len(result.conversations) > 1 else None]


def drawings(result: ConversationsResult) -> list[go.Figure]:
    """The same for a report, of the conversation that loses most."""
    return [figure for figure in draw(result, {}) if figure is not None]
