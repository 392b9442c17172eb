"""The runs of a comparison as CSV: one row per run, units in the column names, numbers that read back exactly.

Text can come from a prompt or a model, and a spreadsheet would run what looks like a formula: such cells are guarded.
"""

from __future__ import annotations

import csv
import io
import math

from kvdemo.experiments.documents import document
from kvdemo.facts.results import ComparisonResult
from kvdemo.reports.frames import run_numbers

__all__ = ["guarded", "runs_csv"]

FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def runs_csv(result: ComparisonResult) -> str:
    """Every run, warm-ups and unfinished ones included, beside what it was measured with; rows end in CR LF.

    There are no comment lines, so that any reader finds one row per run; versions, device, dtype, seed and formulas
    are columns of each row.
    """
    facts = document(result)
    spec, model = result.spec, result.model
    setting = {
        "prompt": spec.prompt,
        "as_chat": spec.as_chat,
        "system_prompt": spec.system_prompt,
        "max_new_tokens": spec.max_new_tokens,
        "fixed_length": spec.fixed_length,
        "temperature": spec.sampling.temperature,
        "seed": spec.sampling.seed,
        "model": model.name,
        "model_revision": model.revision,
        "dtype": model.dtype,
        "device": model.device,
        "attention": model.attention,
        "weight_bytes": model.weight_bytes,
        **facts["environment"],
        "formulas": "; ".join(f"{name} = {formula}" for name, formula in facts["formulas"].items()),
    }
    rows = [{**run_numbers(run), **setting} for run in result.runs]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else list(setting), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def cell(value: object) -> object:
    """A value as it stands in the file: text guarded, numbers as they are, nothing for what is missing or not finite."""
    if isinstance(value, str):
        return guarded(value)
    return "" if isinstance(value, float) and not math.isfinite(value) else value


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe goes before what looks like one."""
    looks_like_one = text[:1] in ("\t", "\r", "\n") or text.lstrip().startswith(FORMULA_STARTS)
    return f"'{text}" if looks_like_one else text
