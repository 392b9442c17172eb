"""Pieces of the page that we write as HTML: shown by gr.Markdown, escaped by us, cleaned again by the browser.

gr.HTML is not used: it compiles its template with `Function`, which our content security policy forbids. What gr.Markdown
gets must be one line that begins with a tag, so that none of it is read as Markdown; `text` sees to that.
The browser's cleaner drops data-*, aria-* and value attributes: names come from `title` or from text, hooks from classes.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

import gradio as gr
from markupsafe import Markup

__all__ = ["bold_parts", "code_block", "fragment", "link_to_copy", "row", "table", "text"]


def text(value: object) -> Markup:
    """`value` as text inside a fragment, word for word: line breaks and tabs survive, tags are shown, never read."""
    escaped = html.escape(str(value)).replace("\r\n", "\n")
    return Markup(escaped.replace("\n", "&#10;").replace("\r", "&#10;").replace("\t", "&#9;"))


def bold_parts(sentence: str) -> str:
    """A sentence in which **...** marks what is strong, as a fragment; everything else is shown as it is."""
    parts = sentence.split("**")
    if len(parts) % 2 == 0:
        return text(sentence)
    return Markup("").join(
        (Markup("<strong>{}</strong>").format(text(part)) if at % 2 else text(part) for at, part in enumerate(parts))
    )


def row(cells: Iterable[str], tag: str = "td", first: str = "th") -> str:
    """A table row; cells are fragments already, the first one is the row's header."""
    first_cell, *rest = cells
    scope = Markup(' scope="row"') if tag == "td" else Markup(' scope="col"')
    others = Markup("").join(
        Markup("<{}{}>{}</{}>").format(tag, scope if tag == "th" else "", cell, tag) for cell in rest
    )
    return Markup("<tr><{}{}>{}</{}>{}</tr>").format(first, scope, first_cell, first, others)


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, caption: str) -> str:
    """A table whose caption is read aloud but not drawn; cells are fragments already."""
    body = Markup("").join(row(cells) for cells in rows)
    return Markup(
        '<div class="kv-scroll" tabindex="0" role="group" title="{}"><table class="kv-table">'
        '<caption class="kv-unseen">{}</caption><thead>{}</thead><tbody>{}</tbody></table></div>'
    ).format(text(caption), text(caption), row(head, "th"), body)


def code_block(code: str, *, wrapped: bool = False) -> str:
    """Code, or any text, word for word with a button that copies it. wrapped: long lines are broken."""
    style = "kv-code kv-code-wrapped" if wrapped else "kv-code"
    return Markup(
        '<div class="{}"><pre class="kv-text" tabindex="0">{}</pre></div>'
        '<div class="kv-tools kv-tools-right"><button type="button" class="kv-act kv-act-copy">'
        "Copy</button></div>"
    ).format(style, text(code))


def link_to_copy(query: str, words: str, beside: str = "") -> str:
    """A link that opens this view, with a button that copies it; page.js says so when it has. query: "?tab=..." as it is,
    so that it leads to the page's own address, wherever that is served."""
    return Markup(
        '<div class="kv-link"><a class="kv-small" href="{}">{}</a><button type="button" class="kv-act kv-act-link">'
        'Copy link</button><span class="kv-small kv-link-told" role="status"></span><span class="kv-small">{}</span></div>'
    ).format(text(query), text(words), text(beside))


def fragment(value: str = "", *, elem_id: str, classes: tuple[str, ...] = (), visible: bool = True) -> gr.Markdown:
    """The component that shows a fragment; one that begins empty takes no room while it is empty."""
    return gr.Markdown(
        value,
        elem_id=elem_id,
        elem_classes=["kv-fragment", *classes, *(["kv-optional"] if not value else [])],
        latex_delimiters=[],
        visible=visible,
    )
