"""Where a form's prompts come from: the shipped set, typed one per line, or a file."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import gradio as gr

from kvdemo.components.uploads import read_upload
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.prompt_file import (
    PromptFile,
    PromptRow,
    kind_of,
    read_prompt_file,
    read_prompts,
    representative,
)

__all__ = ["SHIPPED", "TYPED", "UPLOADED", "choose_file", "chosen_prompts", "uploaded_prompts"]

SHIPPED, TYPED, UPLOADED = "The representative set", "Typed, one per line", "From a file"


def chosen_prompts(source: Any, typed: Any, rows: Any) -> tuple[PromptRow, ...]:
    """The prompts that the form means; InvalidRequest where there are none. rows: of the file that was uploaded."""
    if source == TYPED:
        return read_prompts(typed if isinstance(typed, str) else "", "text")
    if source == UPLOADED:
        if not rows:
            raise InvalidRequest("prompts", "choose a file first, or another source")
        return tuple(rows)
    return representative()


def choose_file(elem_id: str, *, visible: bool = True) -> gr.UploadButton:
    return gr.UploadButton(
        "Choose a file",
        type="filepath",
        file_types=[".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".md"],
        size="sm",
        scale=0,
        min_width=130,
        visible=visible,
        elem_id=elem_id,
    )


def uploaded_prompts(path: Any, limit_bytes: int) -> tuple[str, PromptFile]:
    """(name of the file, what is in it); InvalidRequest names the row of the first mistake."""
    name = PurePath(path).name if isinstance(path, str) else ""
    return name, read_prompt_file(read_upload(path, limit_bytes), kind_of(name))
