"""kvdemo replay: a saved comparison as one page that plays it again, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvdemo.cli.files import ANY_ENDING, check_targets, write_all
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import MAX_DOCUMENT_BYTES, SCHEMA, loads
from kvdemo.experiments.json_documents import strict
from kvdemo.experiments.pieces import plain
from kvdemo.experiments.question import AnyResult
from kvdemo.experiments.switches import JsonTo
from kvdemo.questions.documents import from_any_document
from kvdemo.questions.table import question_of

if TYPE_CHECKING:
    from kvdemo.report.replay import Replay

__all__ = ["replay"]

ENDINGS = (".html", ".htm")


def replay(
    result: Annotated[Path, typer.Argument(metavar="RESULT.json", help="a comparison that --json has written")],
    out: Annotated[str, typer.Option(metavar="FILE.html", help="where the page goes")] = "replay.html",
    arm: Annotated[str | None, typer.Option(help="beside the first one; default: the fastest")] = None,
    json_to: JsonTo = None,
) -> None:
    """Watch it again: a saved comparison as one page that replays both runs, offline, with nothing loaded."""
    from kvdemo.report.replay import replay_html, replay_of

    check_targets({"json": (json_to, ANY_ENDING), "out": (out, ENDINGS)}, {"result": result})
    found = opened(result)
    question = question_of(found)
    one = question.comparison(found)
    if one is None or one is not found:
        raise InvalidRequest("result", f"answers {question.title!r}: only a comparison of one prompt is replayed")
    page = replay_html(one, headline=plain(question.words.headline(found)), scope=question.words.scope(found), arm=arm)
    again = replay_of(one, arm)
    written = write_all({"json": (json_to, lambda: document(again)), "out": (out, lambda: page)})
    if json_to != "-" and again is not None:
        print(f"{out}: {again.caption}\n{again.sums()}".rstrip())
    if not written:
        raise typer.Exit(1)


def opened(path: Path) -> AnyResult:
    """The result in this file; InvalidRequest that names the place of the first mistake."""
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise InvalidRequest("result", f"{path} is larger than {MAX_DOCUMENT_BYTES // 2**20} MiB")
        return from_any_document(loads(path.read_bytes()))
    except OSError as error:
        raise InvalidRequest("result", f"{path} cannot be read: {error.strerror}") from error


def document(again: Replay | None) -> dict[str, Any]:
    """The replay as a document: what the page shows, step by step."""
    if again is None:
        return {}
    head = {
        "schema": SCHEMA,
        "kind": "replay",
        "caption": again.caption,
        "sums": again.sums(),
        "phases": again.phases(),
    }
    document: dict[str, Any] = strict({**head, "arms": [side.run.arm_key for side in again.sides], **again.data()})
    return document
