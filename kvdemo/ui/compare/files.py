"""A result as files for others, made when somebody asks for one; and a result out of a file that somebody brings.

A file that is opened comes from anybody: its size, its shape and every value in it are checked, and it is deleted.
"""

from __future__ import annotations

from typing import Any

from kvdemo.backend.protocol import Backend
from kvdemo.components.uploads import read_upload
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.documents import dumps, loads
from kvdemo.experiments.question import AnyResult
from kvdemo.questions.documents import any_document, from_any_document
from kvdemo.questions.table import Table, question_of
from kvdemo.questions.verdict import Readiness
from kvdemo.ui.compare.in_force import decision_for
from kvdemo.ui.compare.keep_this import advice_for

__all__ = ["FILES", "content_of", "read_result"]

# (key, what the button says, suffix)
FILES = (
    ("report", "Share this result", "html"),
    ("markdown", "Markdown", "md"),
    ("json", "JSON", "json"),
    ("csv", "CSV, one row per run", "csv"),
    ("script", "Reproduce without kvdemo", "py"),
)


def content_of(
    kind: str, backend: Backend, table: Table, result: AnyResult, chosen: Any, readiness: Readiness | None = None
) -> str:
    """The text of one file: report (HTML), markdown, json, csv or script; InvalidRequest where there is no such file.

    readiness   the verdict on all of a visitor's results; None: a report's rests on this one
    """
    question = question_of(result, table)
    if kind == "json":
        return dumps(any_document(result, table))
    if kind == "csv":
        from kvdemo.report.spreadsheet import csv_file

        return csv_file(result, table)
    if kind == "script":
        from kvdemo.report.reproduce import reproduce_script

        one = question.comparison(result)
        text = question.code if one is None else reproduce_script(one)
        if not text:
            raise InvalidRequest("script", "there is none for this question")
        return text
    from kvdemo.report.report import report_html, report_markdown

    form = report_html if kind == "report" else report_markdown
    change = advice_for(backend, question, result, chosen)
    decision = decision_for(backend, result.model)
    return form(result, decision=decision, change=change, readiness=readiness, table=table)


def read_result(path: object, limit_bytes: int, table: Table) -> AnyResult:
    """The result in an uploaded JSON file; InvalidRequest that names the place of the first mistake."""
    return from_any_document(loads(read_upload(path, limit_bytes)), table)
