"""Will my conversations reuse it? The form: a file of conversations, or none for the template; whose template; pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_parts import run_line
from kvdemo.components.form_values import lengths, notice, refusal
from kvdemo.components.markup import fragment, text
from kvdemo.components.so_far import SoFar
from kvdemo.components.uploads import read_upload
from kvdemo.components.wiring import LIGHT, bound
from kvdemo.errors import KvdemoError
from kvdemo.experiments.question import Form, FormBackend, Page, Picker
from kvdemo.facts.units import format_count
from kvdemo.questions.conversations import words
from kvdemo.questions.conversations.reading import read_conversations
from kvdemo.questions.conversations.spec import (
    PAGE_SIZES,
    BadLine,
    ConversationsResult,
    ConversationsSpec,
    Talk,
)
from kvdemo.settings import Settings

__all__ = ["PAGE", "ConversationsForm", "form"]

NOTHING = "No file chosen: Run tries the template alone. JSON lines, up to 5 MB; they stay on this machine."


@dataclass(frozen=True, slots=True)
class ConversationsForm:
    """The settings as they come from the form, unchecked. found: out of an uploaded file."""

    found: Any = ()
    model: Any = ""
    page_sizes: Any = "16, 128, 256"

    def spec(self) -> ConversationsSpec:
        """Checked; InvalidRequest names the field."""
        talks: Sequence[Talk]
        bad: Sequence[BadLine]
        talks, bad = self.found if self.found else ((), ())
        named = self.model.strip() if isinstance(self.model, str) else ""
        pages = lengths("page_sizes", self.page_sizes)
        return ConversationsSpec(tuple(talks), tuple(dict.fromkeys((1, *pages))), named or None, tuple(bad))


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay the form out in the current Blocks; its own events are wired here."""
    found = gr.State(())
    with gr.Column(elem_classes="kv-card", elem_id="compare-conversations-form"):
        with gr.Row(elem_classes="kv-file-line"):
            about = fragment(_about(NOTHING), elem_id="compare-conversations-about")
            upload = gr.UploadButton(
                "Choose a file",
                type="filepath",
                file_types=[".jsonl", ".ndjson", ".json", ".txt"],
                size="sm",
                scale=0,
                min_width=130,
                elem_id="compare-conversations-upload",
            )
        model, start, stop = run_line(
            lambda: gr.Textbox(
                label="Whose tokenizer and template (empty: the loaded model's)",
                placeholder="owner/name, a folder or a .gguf file",
                lines=1,
                max_lines=1,
                scale=6,
                visible=settings.mode == "local",
                elem_id="compare-conversations-model",
            ),
            "conversations",
        )
        with gr.Accordion(
            "More settings", open=False, elem_id="compare-conversations-settings", elem_classes="kv-more"
        ):
            pages = gr.Textbox(
                ", ".join(str(size) for size in PAGE_SIZES[1:]),
                label="Page sizes beside 1, tokens: engines share whole pages only",
                elem_id="compare-conversations-pages",
            )
        place = fragment(elem_id="compare-conversations-notice")
    taken = bound(uploaded, settings.limits.upload_bytes, (found, about, place))
    upload.upload(taken, upload, [found, about, place], **LIGHT)
    return Form([found, model, pages], start, stop, place)


def uploaded(limit_bytes: int, parts: tuple[Any, Any, Any], path: Any) -> dict[Any, Any]:
    """The conversations of a file, or what is wrong with it; then those of the file before stay."""
    found, about, place = parts
    name = PurePath(path).name if isinstance(path, str) else ""
    try:
        talks, bad = read_conversations(read_upload(path, limit_bytes))
        ConversationsSpec(talks, bad=bad)
    except KvdemoError as error:
        return {place: notice(refusal(error))}
    requests = sum(len(talk.asked) for talk in talks)
    said = f"{name[:80]}: {format_count(requests)} requests in {format_count(len(talks))} conversations"
    named = [f"Line {one.line:,}: {one.why}." for one in bad[:3]]
    more = [f"And {len(bad) - 3:,} more lines."] if len(bad) > 3 else []
    refused = notice("Not read:", [*named, *more]) if bad else ""
    return {found: (talks, bad), about: _about(said), place: refused}


def _about(words: str) -> str:
    return Markup('<div class="kv-small kv-about">{}</div>').format(text(words))


def _talks(result: ConversationsResult) -> list[tuple[str, str]]:
    """The conversation that loses most is chosen first; a dozen can be."""
    order = sorted(
        range(len(result.conversations)),
        key=lambda at: sum(turn.again_tokens for turn in result.conversations[at].turns),
        reverse=True,
    )
    return [(result.conversations[at].id[:40], str(at)) for at in order[:MOST_CHOICES]]


MOST_CHOICES = 12


def read(backend: FormBackend, *values: Any) -> ConversationsSpec:
    return ConversationsForm(*values).spec()


PAGE = Page(
    form=form,
    read=read,
    figures=("turns", "conversations"),
    live=lambda _spec, _rows: SoFar(words.so_far),
    pickers=(Picker("conversation", "Which conversation, the worst first", _talks),),
    labels={"page_sizes": "Page sizes", "model": "Model"},
)
