"""The page's foot: what a KV cache is, where a phone's header has no room to say it, and the lesson's experiments as links.

LESSON.md in the repository tells a teacher what is to be seen in each, and why; a test keeps the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from kvdemo.components.markup import text
from kvdemo.ui.header import WHAT

__all__ = ["EXPERIMENTS", "TITLE", "Experiment", "foot"]

TITLE = "A lesson of twenty minutes"


@dataclass(frozen=True, slots=True)
class Experiment:
    """predict: what a class answers before it looks; query: the page's address behind its own name."""

    title: str
    predict: str
    query: str


EXPERIMENTS = (
    Experiment(
        "Triangle and diagonal",
        "4 prompt tokens, 300 new ones: how many positions are computed without a cache, and how many with one?",
        "?tab=compare&result=compare",
    ),
    Experiment(
        "Why it is not 152 times faster",
        "One step computes 300 positions, another one computes 1. How many times as long does it take?",
        "?tab=compare&result=compare",
    ),
    Experiment(
        "The newest token",
        "Under Step by step: how many positions does the second token compute?",
        "?tab=chat",
    ),
    Experiment(
        "Sharing heads",
        "Every head has keys of its own. How many of these requests fit, and how many if four heads share one?",
        "?tab=memory&layers=32&kv_heads=32&head_dim=128&parameters=8.03&seq_len=32768&batch=8&budget=80",
    ),
    Experiment(
        "A window",
        "Two models of one shape, one of which looks back 4,096 tokens. How much does each hold after 32,768?",
        "?tab=memory&model=Mistral-7B-v0.1&seq_len=32768&batch=1&budget=80&with=Llama-3.1-8B",
    ),
)


def foot() -> str:
    """The same on every tab."""
    items = Markup("").join(
        Markup('<li><a href="{}">{}</a>. {}</li>').format(text(one.query), text(one.title), text(one.predict))
        for one in EXPERIMENTS
    )
    return Markup(
        '<div class="kv-foot"><p class="kv-foot-what">{}</p><details><summary>{}</summary><p>Five experiments for a class. '
        "Predict first, then look.</p><ol>{}</ol><p>LESSON.md, beside the README, says what is to be seen, and why.</p>"
        "</details></div>"
    ).format(WHAT, TITLE, items)
