"""A conversation as a file: Markdown to read, JSON with every turn's figures to keep and to open again.

A file that is opened comes from anybody: its size, its shape and every value in it are checked.
"""

from __future__ import annotations

from typing import Any

from kvdemo.components.uploads import read_upload
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads, run_document
from kvdemo.experiments.json_documents import decoded
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import Message, checked_text
from kvdemo.ui.chat.conversation import Conversation, Turn

__all__ = ["as_json", "as_markdown", "conversation_of", "opened"]

SCHEMA = 1
MOST_TURNS = 1000


def as_json(conversation: Conversation, model: ModelFacts | None, system_prompt: str, *, indent: int | None = 2) -> str:
    """The conversation with every turn's figures."""
    named = ("name", "hub_id", "dtype", "device")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "conversation",
        "on_page": True,
        "model": None if model is None else {part: getattr(model, part) for part in named},
        "system_prompt": system_prompt,
        "turns": [
            {
                "question": turn.question,
                "answer": turn.answer,
                "note": turn.note,
                "figures": turn.figures,
                "run": None if turn.record is None else run_document(turn.record),
            }
            for turn in conversation.turns
        ],
    }
    return dumps(document, indent=indent)


def as_markdown(conversation: Conversation, model: ModelFacts | None, system_prompt: str) -> str:
    """The conversation to read: the texts word for word, the figures under each answer."""
    parts = [f"# Conversation with {model.name}" if model else "# Conversation"]
    if system_prompt.strip():
        parts.append(f"**System prompt**\n\n{system_prompt}")
    for turn in conversation.turns:
        parts.append(f"## Question\n\n{turn.question}")
        notices = turn.record.notices if turn.record is not None else ()
        below = " · ".join(part for part in (turn.note, turn.figures, *notices) if part)
        parts.append(f"## Answer\n\n{turn.answer}" + (f"\n\n*{below}*" if below else ""))
    return "\n\n".join(parts) + "\n"


def opened(path: object, limit_bytes: int) -> tuple[Conversation, str]:
    """(conversation, system prompt) of a saved JSON file; InvalidRequest that names the place of the first mistake."""
    return conversation_of(loads(read_upload(path, limit_bytes)))


def conversation_of(data: object) -> tuple[Conversation, str]:
    """(conversation, system prompt) that a document tells of; InvalidRequest that names the place of the first mistake."""
    if not isinstance(data, dict) or data.get("kind") != "conversation" or data.get("schema") != SCHEMA:
        raise InvalidRequest("file", "is not a conversation that kvdemo saved as JSON")
    turns = data.get("turns")
    if not isinstance(turns, list) or len(turns) > MOST_TURNS:
        raise InvalidRequest("turns", f"must be a list of at most {MOST_TURNS:,} turns")
    system_prompt = checked_text("system_prompt", data.get("system_prompt") or "", empty=True)
    return Conversation(tuple(_turn(turn, f"turns[{index}]") for index, turn in enumerate(turns))), system_prompt


def _turn(data: object, place: str) -> Turn:
    if not isinstance(data, dict):
        raise InvalidRequest(place, "must be an object")
    question, answer = data.get("question"), data.get("answer") or ""
    try:
        Message("user", question)  # type: ignore[arg-type]
        Message("assistant", answer)
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}.{error.field}", error.message) from error
    run = data.get("run")
    return Turn(
        question=str(question),
        answer=answer,
        note=checked_text(f"{place}.note", data.get("note") or "", max_chars=1000, empty=True),
        figures=checked_text(f"{place}.figures", data.get("figures") or "", max_chars=200, empty=True),
        record=None if run is None else decoded(RunRecord, run, f"{place}.run"),
    )
