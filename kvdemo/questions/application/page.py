"""My application: the command to type, and results of it opened. The page never runs a script, so there is no Run in sight."""

from __future__ import annotations

from typing import Any

import gradio as gr
from markupsafe import Markup

from kvdemo.components.form_parts import run_line
from kvdemo.components.markup import code_block, fragment, text
from kvdemo.components.so_far import SoFar
from kvdemo.experiments.question import Form, FormBackend, Page
from kvdemo.questions.application import words
from kvdemo.questions.application.spec import ApplicationSpec
from kvdemo.settings import Settings

__all__ = ["PAGE", "form"]

SAID = (
    "Scripts run on your command line, never on this page. Type one of these lines there. Then open result.json here, with "
    "“Open a saved result” above."
)
COMMANDS = """\
kvdemo watch --json result.json your_script.py --your arguments
kvdemo watch --json result.json -m your.module
kvdemo watch --compare none,as-is --rounds 6 --json result.json your_script.py"""


def form(backend: FormBackend, settings: Settings) -> Form:
    """Lay it out in the current Blocks."""
    with gr.Column(elem_classes="kv-card", elem_id="compare-application-form"):
        fragment(
            Markup('<p class="kv-small kv-about">{}</p>{}').format(text(SAID), code_block(COMMANDS)),
            elem_id="compare-application-about",
        )
        with gr.Row(visible=False):  # what every question has; here nothing can be run
            nothing, start, stop = run_line(
                lambda: gr.Textbox(label="Program", elem_id="compare-application-program"), "application"
            )
        place = fragment(elem_id="compare-application-notice")
    return Form([nothing], start, stop, place)


def read(backend: FormBackend, program: Any) -> ApplicationSpec:
    return ApplicationSpec(program)


PAGE = Page(
    form=form,
    read=read,
    figures=("time", "forwards"),
    live=lambda _spec, _rows: SoFar(words.so_far),
    labels={"program": "Program"},
)
