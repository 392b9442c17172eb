"""An answer as people read it: its reasoning apart, the rest as Markdown. The raw text is kept beside it for Copy.

HTML in it is shown, never read; images are not loaded, links open elsewhere. What comes out is one line.
"""

from __future__ import annotations

from functools import cache

from markdown_it import MarkdownIt

from kvdemo.ui.markup import text

__all__ = ["answer_html", "split_reasoning"]

OPENS, CLOSES = "<think>", "</think>"


def split_reasoning(answer: str) -> tuple[str, str]:
    """(reasoning, answer proper) of a text in which a model thinks aloud between its marks; an open mark is all thought."""
    before, mark, rest = answer.partition(OPENS)
    if mark and not before.strip():
        thought, _, proper = rest.partition(CLOSES)
        return thought.strip("\n"), proper.lstrip("\n")
    if CLOSES in answer and OPENS not in answer:
        # Some templates open the mark in the prompt, so that only its end is generated.
        thought, _, proper = answer.partition(CLOSES)
        return thought.strip("\n"), proper.lstrip("\n")
    return "", answer


def answer_html(answer: str, *, cursor: bool = False) -> str:
    """The fragment of an answer; with `cursor` the place where the next token will appear."""
    thought, proper = split_reasoning(answer)
    folded = (
        f'<details class="kv-thought"><summary>Reasoning</summary><div class="kv-text">{text(thought)}</div></details>'
        if thought
        else ""
    )
    drawn = _one_line(_parser().render(proper))
    mark = '<span class="kv-cursor"></span>' if cursor else ""
    return f'{folded}<div class="kv-markdown">{drawn}{mark}</div><div class="kv-raw">{text(proper)}</div>'


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.disable("image")
    parser.add_render_rule("link_open", _opens_elsewhere)
    parser.add_render_rule("heading_open", _below_the_pages)
    parser.add_render_rule("heading_close", _below_the_pages)
    return parser


def _opens_elsewhere(self, tokens, index, options, env) -> str:  # type: ignore[no-untyped-def]
    tokens[index].attrSet("target", "_blank")
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return self.renderToken(tokens, index, options, env)


def _below_the_pages(self, tokens, index, options, env) -> str:  # type: ignore[no-untyped-def]
    """An answer's headings stand below the page's own: there is one first heading, and it is not the model's."""
    tokens[index].tag = f"h{min(6, int(tokens[index].tag[1]) + 2)}"
    return self.renderToken(tokens, index, options, env)


def _one_line(markup: str) -> str:
    """Line breaks and tabs as entities: what is shown stays the same, and no line ends what Gradio takes for a block."""
    return markup.strip().replace("\r", "").replace("\n", "&#10;").replace("\t", "&#9;")
