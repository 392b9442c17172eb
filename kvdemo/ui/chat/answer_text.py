"""An answer as people read it: its reasoning apart, and every character of the rest as the model wrote it.

Lists, tables and fences become lists, tables and code. All else keeps its indentation, its line breaks and its marks:
code outside a fence must not lose what Markdown would eat (`__init__`, `# a comment`, a*b*c, &lt;). Marks of what is
drawn strong or as code are shown, too. The Markdown parser finds the blocks; their text is taken from the source, because
the parser does not keep what it eats.

HTML in it is shown, never read; images are not loaded, links open elsewhere. What comes out is one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from markupsafe import Markup

from kvdemo.components.markup import text

__all__ = ["answer_html", "split_reasoning"]

OPENS, CLOSES = "<think>", "</think>"
LEFT_OUT = "Copied without the reasoning"
NO_END = "Copied the reasoning: it has no end, so there is no answer"
NOTHING_AFTER = "Copied the reasoning: there is no answer after it"
DEEPEST_LIST = 6
LIST_MARK = re.compile(r"(?P<mark>[ \t]*(?:[-+*]|\d{1,9}[.)]))(?P<gap>[ \t]*)")
LAST_ENDS = re.compile(r"(?:</\w+>)*$")
WRITTEN, WRITTEN_ENDS = Markup('<div class="kv-written">'), Markup("</div>")
STRONG_MARK = Markup('<span class="kv-mark">**</span>')
# Bounded, so that marks without an end cost little.
INLINE = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`{1,3})(?!`)[^\n]{1,300}?(?<!`)(?P=ticks)(?!`))"
    r"|\*\*(?P<strong>(?![\s*])[^\n]{1,300}?(?<![\s*]))\*\*(?!\*)"
    r"|(?P<link>\[[^\[\]\n]{1,300}\]\((?P<address>https?://[^\s()<>]{1,2000})\))"
)


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
        Markup(
            '<details class="kv-thought"><summary>Reasoning</summary><div class="kv-text">{}</div></details>'
        ).format(text(thought))
        if thought
        else ""
    )
    drawn = Markup("").join(_blocks(proper))
    if cursor:
        ends = LAST_ENDS.search(drawn).start()  # type: ignore[union-attr]
        drawn = Markup('{}<span class="kv-cursor"></span>{}').format(drawn[:ends], drawn[ends:])
    return Markup('{}<div class="kv-markdown">{}</div>{}').format(folded, drawn, _for_copy(answer, thought, proper))


def _for_copy(answer: str, thought: str, proper: str) -> str:
    """What Copy gives, word for word; its title is what the button then says where that is not all."""
    if not thought:
        return Markup('<div class="kv-raw">{}</div>').format(text(proper))
    if proper.strip():
        given, said = proper, LEFT_OUT
    else:
        given, said = answer, NOTHING_AFTER if CLOSES in answer else NO_END
    return Markup('<div class="kv-raw" title="{}">{}</div>').format(said, text(given))


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["inline", "text_join"])
    parser.block.ruler.before("paragraph", "no_lazy_lines", _ends_paragraph, {"alt": ["paragraph"]})
    return parser


def _ends_paragraph(state: StateBlock, line: int, _end: int, silent: bool) -> bool:
    """A line left of an item's text is not the item's, whatever CommonMark says: it would be seen further right."""
    return silent and state.sCount[line] < state.blkIndent


def _blocks(source: str, depth: int = 0) -> Iterator[str]:
    """The fragments of a text: its fences, tables, lists and headings, and what lies between them as it is written."""
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    done = 0
    for tokens in _top_level(_parser().parse("\n".join(lines))):
        begin, end = tokens[0].map or (0, 0)
        drawn = _structured(tokens, lines, depth)
        if drawn:
            yield from _written(lines[done:begin])
            yield drawn
            done = end
    yield from _written(lines[done:])


def _top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Each block with all that is in it."""
    begin = 0
    for at, token in enumerate(tokens):
        if token.level == 0 and token.nesting <= 0:
            yield tokens[begin : at + 1]
            begin = at + 1


def _structured(tokens: Sequence[Token], lines: Sequence[str], depth: int) -> str:
    """A block that is more than text; "" for all others."""
    first = tokens[0]
    begin, end = first.map or (0, 0)
    if first.type == "fence" and first.content.strip():  # one with nothing in it is no code, but what was written
        return Markup("<pre><code>{}</code></pre>").format(text(first.content))
    if first.type == "table_open":
        return _table(tokens)
    # One # is a comment in more languages than it is a title.
    if first.type == "heading_open" and 2 <= len(first.markup) <= 6 and first.markup.startswith("#"):
        name = f"h{min(6, len(first.markup) + 2)}"  # below the page's own headings
        return Markup("<{}>{}</{}>").format(name, _inline(lines[begin]), name)
    if first.type in ("bullet_list_open", "ordered_list_open") and depth < DEEPEST_LIST:
        starts = [token.map[0] for token in tokens if token.type == "list_item_open" and token.level == 1 and token.map]
        items = Markup("").join((_item(lines[one:other], depth) for one, other in pairwise([*starts, end])))
        return (
            Markup("<ul>{}</ul>").format(items)
            if first.type == "bullet_list_open"
            else Markup("<ol>{}</ol>").format(items)
        )
    return ""


def _item(lines: Sequence[str], depth: int) -> str:
    """One item of a list: its mark as it is written, then what is in it, without the indentation that makes it part of it."""
    found = LIST_MARK.match(lines[0])
    if found is None:
        return Markup("<li>{}</li>").format(Markup("").join(_written(lines)))
    mark, rest = found.group(), lines[0][found.end() :]
    width = len(mark.expandtabs(4))
    if not rest or len(found["gap"].expandtabs(4)) > 4:  # nothing, or indented code: one space belongs to the mark
        width = len(found["mark"].expandtabs(4)) + 1
        mark, rest = f"{found['mark']} ", found["gap"][1:] + rest
    inner = "\n".join([rest, *(_dedented(line, width) for line in lines[1:])])
    content = Markup("").join(_blocks(inner, depth + 1))
    if content.startswith(WRITTEN):  # on the line of its mark
        content = Markup('<span class="kv-written">{}').format(
            content.removeprefix(WRITTEN).replace(WRITTEN_ENDS, Markup("</span>"), 1)
        )
    return Markup('<li><span class="kv-mark">{}</span>{}</li>').format(text(mark), content)


def _dedented(line: str, width: int) -> str:
    """The line without up to so many columns of white space."""
    bare = line.lstrip(" \t")
    indentation = len(line[: len(line) - len(bare)].expandtabs(4))
    return line if indentation == 0 else " " * max(0, indentation - width) + bare


def _table(tokens: Sequence[Token]) -> str:
    parts = []
    for token in tokens:
        if token.type == "inline":
            parts.append(_inline(token.content))
        elif token.nesting >= 0:
            style = token.attrGet("style")
            parts.append(
                Markup('<{} style="{}">').format(token.tag, text(style)) if style else Markup("<{}>").format(token.tag)
            )
        else:
            parts.append(Markup("</{}>").format(token.tag))
    return Markup("").join(parts)


def _written(lines: Sequence[str]) -> Iterator[str]:
    """Lines as they are; empty ones at both ends are the space between blocks."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    if filled:
        yield WRITTEN + _inline("\n".join(lines[filled[0] : filled[-1] + 1])) + WRITTEN_ENDS


def _inline(source: str) -> str:
    """Text with what is strong, code or a link drawn as such, all marks included."""
    parts, done = [], 0
    for found in INLINE.finditer(source):
        parts.append(text(source[done : found.start()]))
        whole = found.group()
        if found["code"]:
            parts.append(Markup("<code>{}</code>").format(text(whole)))
        elif found["strong"]:
            parts.append(Markup("{}<strong>{}</strong>{}").format(STRONG_MARK, _inline(found["strong"]), STRONG_MARK))
        else:
            address = text(found["address"])
            parts.append(
                Markup('<a href="{}" target="_blank" rel="noopener noreferrer nofollow">{}</a>').format(
                    address, text(whole)
                )
            )
        done = found.end()
    return Markup("").join([*parts, text(source[done:])])
