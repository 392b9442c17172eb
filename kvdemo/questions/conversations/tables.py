"""The table of conversations: the worst misses, both sides of each; and one row per request for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvdemo.experiments.tables import Table
from kvdemo.facts.units import format_count
from kvdemo.questions.conversations.spec import ConversationsResult

__all__ = ["misses_table", "request_rows"]

MOST = 30
COLUMNS = ("Conversation", "Turn", "Processed again", "Cause", "In", "Held", "Now")
SIDE_CHARS = 40  # of a cell; files have more


def misses_table(result: ConversationsResult) -> Table:
    """Where is most processed again? The cases of the template where nobody's conversation was compared."""
    if not result.totals.prompt_tokens:
        return Table.of(
            {
                "Case": check.name,
                "Stable": {True: "yes", False: "no", None: "not tried"}[check.stable],
                "Held": check.first_difference.held_text if check.first_difference else "",
                "Now": check.first_difference.new_text if check.first_difference else "",
                "Cause": check.first_difference.cause if check.first_difference else check.note,
            }
            for check in result.template.checks
        )
    missed = [
        (turn, talk.id, number)
        for talk in result.conversations
        for number, turn in enumerate(talk.turns, 1)
        if turn.miss is not None and turn.again_tokens
    ]
    missed.sort(key=lambda item: item[0].again_tokens, reverse=True)
    return Table.of(
        (
            {
                "Conversation": talk,
                "Turn": format_count(number),
                "Processed again": f"{format_count(turn.again_tokens)} of {format_count(turn.prompt_tokens)} tokens",
                "Cause": turn.miss.cause,
                "In": turn.miss.message,
                "Held": turn.miss.held_text[:SIDE_CHARS],
                "Now": turn.miss.new_text[:SIDE_CHARS],
            }
            for turn, talk, number in missed[:MOST]
            if turn.miss is not None
        ),
        COLUMNS,
    )


def request_rows(result: ConversationsResult) -> Iterator[Mapping[str, object]]:
    """One row per request, units in the names."""
    for talk in result.conversations:
        for number, turn in enumerate(talk.turns, 1):
            miss = turn.miss
            yield {
                "conversation": talk.id,
                "turn": number,
                "line": turn.line or None,
                "prompt_tokens": turn.prompt_tokens,
                "held_tokens": turn.held_tokens,
                "shared_tokens": turn.shared_tokens,
                **{f"reused_tokens_page_{page}": tokens for page, tokens in turn.reused_tokens.items()},
                "again_tokens": turn.again_tokens,
                "miss_index": None if miss is None else miss.index,
                "miss_kind": None if miss is None else miss.kind,
                "cause": None if miss is None else miss.cause,
                "held_text": None if miss is None else miss.held_text,
                "new_text": None if miss is None else miss.new_text,
                "message": None if miss is None else miss.message,
                "advice": None if miss is None else miss.advice,
            }
