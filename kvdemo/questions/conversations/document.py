"""Conversations as JSON and back: the words around each miss, never the conversations themselves."""

from __future__ import annotations

from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import read_head
from kvdemo.experiments.json_documents import decoded, encoded
from kvdemo.questions.conversations.run import totals_of
from kvdemo.questions.conversations.spec import (
    BadLine,
    ConversationReuse,
    ConversationsResult,
    ConversationsSpec,
    Lint,
    SharedBeginning,
    Totals,
)

__all__ = ["document", "read"]


def document(result: ConversationsResult) -> dict[str, Any]:
    return {
        "page_sizes": list(result.spec.page_sizes),
        "conversations": encoded(result.conversations),
        "shared_beginnings": encoded(result.shared_beginnings),
        "totals": {**encoded(result.totals), "saved_s": encoded(result.totals.saved_s)},
        "template": encoded(result.template),
        "refused": encoded(result.refused),
    }


def read(data: dict[str, Any]) -> ConversationsResult:
    """The totals are worked out again. InvalidRequest names the place of the first mistake."""
    head = read_head(data)
    spec = decoded(ConversationsSpec, data.get("request"), "request")
    found = decoded(tuple[ConversationReuse, ...], data.get("conversations"), "conversations")
    pages = {str(page) for page in spec.page_sizes}
    for index, talk in enumerate(found):
        for number, turn in enumerate(talk.turns):
            if set(turn.reused_tokens) != pages:
                place = f"conversations[{index}].turns[{number}].reused_tokens"
                raise InvalidRequest(place, "must have one number for each page size")
    speed = decoded(Totals, data.get("totals"), "totals").prefill_tokens_per_s
    beginnings = data.get("shared_beginnings", [])
    return ConversationsResult(
        spec=spec,
        model=head.model,
        environment=head.environment,
        conversations=found,
        shared_beginnings=decoded(tuple[SharedBeginning, ...], beginnings, "shared_beginnings"),
        totals=totals_of(found, spec.page_sizes, speed),
        template=decoded(Lint, data.get("template"), "template"),
        refused=decoded(tuple[BadLine, ...], data.get("refused", []), "refused"),
        stopped_because=head.stopped_because,
    )
