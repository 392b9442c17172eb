"""HTML of our own is of one type: what is not marked is escaped, and no fragment is put together out of plain text."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from markupsafe import Markup

from kvdemo.components.markup import bold_parts, code_block, row, table, text
from kvdemo.components.progress_card import progress_card
from kvdemo.components.terms import term
from kvdemo.facts.model import Failed, Loading, Ready
from kvdemo.facts.results import Progress
from kvdemo.ui.chat.answer_text import answer_html
from kvdemo.ui.chat.conversation import Conversation, Turn
from kvdemo.ui.chat.messages import past_turns
from kvdemo.ui.chat.turns import notice
from kvdemo.ui.compare.results import empty_result
from kvdemo.ui.header import header
from tests.made_up_model import MODEL

ROOT = Path(__file__).resolve().parents[2] / "kvdemo"
ROOMS = [*ROOT.glob("ui/**/*.py"), *ROOT.glob("components/*.py"), *ROOT.glob("questions/*/*.py")]
DRAWINGS = ("charts.py", "work_chart.py")  # plotly's own few tags, escaped where a label is made
NOT_HTML = ("theme.py",)  # the head of the page: our style sheet and scripts
TAG = re.compile(r"</?[a-z][a-z0-9]*(\s[^<>]*)?/?>|<[a-z]+ [a-z-]+=")
THINKING = re.compile(r"</?think>")  # how models write what they think, as they write it
HOSTILE = "<script>alert(1)</script>\"'&"


def marked(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Is this text the argument of Markup, or a docstring, or what a text is looked through for?"""
    above = parents.get(node)
    if isinstance(above, ast.Expr):
        return True
    if isinstance(above, ast.Call):
        name = above.func.id if isinstance(above.func, ast.Name) else getattr(above.func, "attr", "")
        return name in ("Markup", "compile", "partition", "split")
    return False


@pytest.mark.parametrize("path", [path for path in ROOMS if path.name not in (*DRAWINGS, *NOT_HTML)], ids=str)
def test_no_plain_text_holds_a_tag(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
            assert not TAG.search(THINKING.sub("", words)), (path.name, node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and TAG.search(node.value):
            inside = isinstance(parents.get(node), ast.JoinedStr)
            assert inside or marked(node, parents) or THINKING.fullmatch(node.value), (path.name, node.lineno)


FRAGMENTS: dict[str, Callable[[], str]] = {
    "text": lambda: text(HOSTILE),
    "bold": lambda: bold_parts(f"a **{HOSTILE}** {HOSTILE}"),
    "table": lambda: table([HOSTILE], [[HOSTILE, HOSTILE]], caption=HOSTILE),
    "row": lambda: row([HOSTILE, HOSTILE]),
    "code": lambda: code_block(HOSTILE),
    "term": lambda: term("KV head", HOSTILE),
    "progress": lambda: progress_card(Progress(HOSTILE, 1, 2, 0.0), HOSTILE),
    "answer": lambda: answer_html(f"{HOSTILE}\n\n- {HOSTILE}\n\n| {HOSTILE} |\n|---|\n| {HOSTILE} |"),
    "turns": lambda: past_turns(Conversation((Turn(HOSTILE, HOSTILE, HOSTILE, HOSTILE),))),
    "notice": lambda: notice(HOSTILE),
    "empty": lambda: empty_result(HOSTILE),
    "loading": lambda: header(Loading(HOSTILE, HOSTILE)),
    "failed": lambda: header(Failed(HOSTILE, HOSTILE)),
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_a_fragment_escapes_what_nobody_has_marked(name: str) -> None:
    made = FRAGMENTS[name]()
    assert isinstance(made, Markup)
    assert "<script" not in made
    assert "&amp;lt;" not in made  # and nothing twice


def test_the_loaded_models_header_is_marked_too() -> None:
    assert isinstance(header(Ready(MODEL)), Markup)
