"""Any result as the page shows it: headline and tables as fragments. The words are those of the question's row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from kvdemo.components.markup import link_to_copy, table, text
from kvdemo.components.terms import term
from kvdemo.experiments.notices import notices
from kvdemo.experiments.pieces import TIMED
from kvdemo.experiments.question import AnyResult, Question
from kvdemo.experiments.tables import Table, runs_table

__all__ = ["empty_result", "headline_card", "link_line", "measured_where", "result_tables"]

MOST_RUNS = 500  # rows on the page


def empty_result(words: str) -> str:
    """Before any run: what will appear and how to get it."""
    return Markup('<div class="kv-card kv-headline kv-headline-empty"><p>{}</p></div>').format(text(words))


def headline_card(
    question: Question[Any, Any], result: AnyResult, source: str = "", further: Sequence[tuple[str, str]] = ()
) -> str:
    """The one sentence, and what it was measured on. `source` says where a result comes from that was not run here.

    further   (name, what it shows) of recorded results beside this one
    """
    pieces = question.words.headline(result)
    strong = Markup("").join(
        (Markup("<strong>{}</strong>").format(text(words)) if bold else text(words) for words, bold in pieces)
    )
    label = Markup('<p class="kv-source-label">{}</p>').format(text(source)) if source else ""
    said = Markup("").join(
        Markup('<p class="kv-small">{}</p>').format(text(words)) for words in notices(question.runs(result))
    )
    links = Markup(" · ").join(
        Markup('<a href="?tab=compare&amp;result={}">{}</a>').format(name, text(words)) for name, words in further
    )
    others = Markup('<p class="kv-small">Recorded as well: {}</p>').format(links) if further else ""
    return Markup(
        '<div class="kv-card kv-headline" role="status">{}<p class="kv-headline-text">{}</p>'
        '<p class="kv-small">{}</p>{}{}</div>'
    ).format(label, strong, text(question.words.scope(result)), said, others)


def link_line(question: Question[Any, Any], name: str | None) -> str:
    """The link to a recorded result by its name; of any other result, to its question: nobody else has that result."""
    if name is not None:
        return link_to_copy(f"?{urlencode({'tab': 'compare', 'result': name})}", "Link to this example")
    return link_to_copy(
        f"?{urlencode({'tab': 'compare', 'question': question.key})}",
        "Link to this question",
        "A result of your own is no part of a link: Share this result makes a file of it.",
    )


def measured_where(result: AnyResult) -> str:
    """Where and when was this measured? "2 CPU cores of x86_64, 6 rounds, 2 January 2026"."""
    environment = result.environment
    cores = f"{environment.cpu_cores} CPU {'core' if environment.cpu_cores == 1 else 'cores'}"
    machine = environment.accelerator or f"{cores} of {environment.processor or environment.platform}"
    rounds = getattr(result.spec, "rounds", None)
    rounds_words = [] if rounds is None else [f"{rounds} {'round' if rounds == 1 else 'rounds'}"]
    return ", ".join([machine, *rounds_words, _date(environment.measured_at)])


def result_tables(question: Question[Any, Any], result: AnyResult) -> str:
    """One row per arm, point, prompt or question; one per run on demand; and what was timed."""
    if question.rows is not None:
        said = [*question.words.verdicts(result), *question.words.remarks(result)] if question.page().lines else []
        lines = Markup("").join(Markup("<li>{}</li>").format(text(line)) for line in said)
        return Markup('<div class="kv-card kv-tables">{}<ul class="kv-small">{}</ul></div>').format(
            _table(question.table(result), question.words.CAPTION), lines
        )
    runs = runs_table(question.runs(result), question.labels(result))
    shown = f"; the first {MOST_RUNS} are shown, files hold all" if len(runs) > MOST_RUNS else ""
    return Markup(
        '<div class="kv-card kv-tables">{}<p class="kv-small">{}</p><details><summary>'
        'Every run ({}{})</summary><p class="kv-small">'
        "Warm-ups and runs that did not finish are not counted. Queue wait and preparing (template "
        "and tokenising) come before the clock starts. The time to the first token is the prefill.</p>{}"
        "</details></div>"
    ).format(
        _table(question.table(result), question.words.CAPTION),
        text(TIMED),
        len(runs),
        shown,
        _table(Table(runs.names, runs.rows[:MOST_RUNS]), "One row per run"),
    )


def _date(measured_at: str) -> str:
    try:
        day = datetime.fromisoformat(measured_at)
    except ValueError:
        return measured_at[:40]
    return f"{day.day} {day:%B %Y}"


def _table(cells: Table, caption: str) -> str:
    rows = [[text(value) for value in values] for values in cells.rows]
    return table([term(name) for name in cells.names], rows, caption=caption)
