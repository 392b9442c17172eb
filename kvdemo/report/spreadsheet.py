"""The runs of any result as CSV: one row per run, units in the column names, numbers that read back exactly.

Text can come from a prompt or a model, and a spreadsheet would run what looks like a formula: such cells are guarded.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict
from typing import Any

from kvdemo.experiments.documents import FORMULAS, run_document
from kvdemo.experiments.json_documents import encoded
from kvdemo.facts.records import Reported, RunRecord
from kvdemo.facts.requests import SamplingParams
from kvdemo.questions.documents import AnyResult
from kvdemo.questions.table import QUESTIONS, Table, question_of

__all__ = ["csv_file", "guarded", "run_numbers", "runs_csv"]

FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def runs_csv(result: AnyResult, table: Table = QUESTIONS) -> str:
    """Every run, warm-ups and unfinished ones included, beside what it was measured with; rows end in CR LF.

    There are no comment lines, so that any reader finds one row per run; versions, device, dtype, seed and formulas
    are columns of each row. Runs of a further question have their point, prompt or question in front.
    """
    question, setting = question_of(result, table), setting_of(result)
    own = question.columns(result)
    # What a run says of itself stands before what was asked of all of them.
    rows = (
        [{**place, **run_numbers(run), **own(place)} for place, run in question.runs(result)]
        if question.rows is None
        else [dict(row) for row in question.rows(result)]
    )
    rows = [{**row, **{name: value for name, value in setting.items() if name not in row}} for row in rows]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else list(setting), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def run_numbers(run: RunRecord) -> dict[str, Any]:
    """One run as plain values, units in the names; lists are told by their sums, the raw times stay in the JSON."""
    values = run_document(run)
    by_device = values.pop("cache_bytes_by_device")
    reported = values.pop("reported") or dict.fromkeys(Reported.__slots__)
    numbers = {name: value for name, value in values.items() if not isinstance(value, list)}
    return {
        **numbers,
        "positions_computed_total": run.total_computed,
        "positions_read_total": run.total_read,
        "notices": " ".join(run.notices),
        **{f"reported_{name}": value for name, value in reported.items()},
        "cache_bytes_by_device": "; ".join(f"{name}: {size} bytes" for name, size in by_device.items()),
    }


def csv_file(result: AnyResult, table: Table = QUESTIONS) -> str:
    """The same as a file's content: the byte order mark tells a spreadsheet that it is UTF-8, and not its own code page."""
    return "\ufeff" + runs_csv(result, table)


def setting_of(result: AnyResult) -> dict[str, Any]:
    """What all runs of a result have in common: request, model, environment, formulas."""
    request: dict[str, Any] = encoded(result.spec)
    # Growth has no sampling of its own: its points are greedy.
    sampling: dict[str, Any] = request.pop("sampling", asdict(SamplingParams()))
    model = result.model
    return {
        **{name: value for name, value in request.items() if not isinstance(value, list | dict)},
        **sampling,
        "model": model.name,
        "model_hub_id": model.hub_id,
        "model_revision": model.revision,
        "dtype": model.dtype,
        "device": model.device,
        "attention": model.attention,
        "weight_bytes": model.weight_bytes,
        **encoded(result.environment),
        "formulas": "; ".join(f"{name} = {formula}" for name, formula in FORMULAS.items()),
    }


def cell(value: object) -> object:
    """A value as it stands in the file: text guarded, numbers as they are, nothing for what is missing or not finite."""
    if isinstance(value, str):
        return guarded(value)
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe goes before what looks like one."""
    looks_like_one = text[:1] in ("\t", "\r", "\n") or text.lstrip().startswith(FORMULA_STARTS)
    return f"'{text}" if looks_like_one else text
