"""What happens in a question of Compare: the form is checked, the runs stream, the result is drawn.

Handlers take plain values, make one backend call and give back views; area.py maps them to components.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kvdemo.backend.protocol import Backend
from kvdemo.components.form_values import notice, refusal
from kvdemo.components.progress_card import progress_card
from kvdemo.components.server_fields import SERVER_LABELS, server_in
from kvdemo.components.wiring import MEASURING
from kvdemo.errors import KvdemoError
from kvdemo.experiments.comparison import ENDPOINT_ARM, endpoint_row
from kvdemo.experiments.question import AnyResult, Live, Question
from kvdemo.facts.results import Progress
from kvdemo.report.replay import replay_holder, replay_within
from kvdemo.ui.compare.keep_this import arms, fastest, keep_card
from kvdemo.ui.compare.results import empty_result, headline_card, link_line, result_tables

__all__ = ["Refused", "Running", "Shown", "View", "failed", "known_picks", "redrawn", "replayed", "run", "shown"]


@dataclass(frozen=True, slots=True)
class Running:
    """Runs go on: where they are, what is known so far. begun: the first view, before which something else stood there."""

    headline: str
    live: str
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A result. figures: in the order of the question's page, None where there is nothing to draw; own: it counts for a
    decision."""

    headline: str
    live: str
    aside: str
    again: str
    tables: str
    figures: Sequence[Any]
    result: AnyResult
    arms: Sequence[tuple[str, str]]
    chosen: str | None
    change: str
    own: bool = True


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing runs. headline: what stands there again where runs had begun; None: what stands there stays."""

    notice: str
    headline: str | None = None


View = Running | Shown | Refused


def run(
    backend: Backend, question: Question[Any, Any], values: Sequence[Any], owner: str, server: Sequence[Any] = ()
) -> Generator[View, None, None]:
    """Ask the question: a view with each progress while runs go on, the result at the end, all of it kept.

    What is refused is told before anything runs, and what stands on the page stays.

    server   address, model and key as they were typed; without an address the loaded model is asked
    """
    page = question.page()
    steps: Generator[Any, None, None] | None = None
    begun = False
    try:
        endpoint = server_in(server)
        if question.needs == "model" and endpoint is None:
            backend.describe()
        asked = page.read(backend, *values)
        rows = {row.key: row for row in backend.strategies()}
        if endpoint is not None and question.at_endpoint is not None:
            asked = question.at_endpoint(asked)
            rows[ENDPOINT_ARM] = endpoint_row(endpoint.model or urlsplit(endpoint.url).netloc or "Server")
        live = page.live(asked, rows)
        steps = backend.ask(asked, owner=owner, reader=MEASURING, endpoint=endpoint)
        step = next(steps)
        begun = True
        live = live.after(step)
        yield _running(question, live, begun=True)
        _import_drawing()  # before the first run: these libraries take seconds to import
        while not isinstance(step, question.result):
            step = next(steps)
            live = live.after(step)
            if isinstance(step, Progress):  # it comes when all is told that is known so far
                yield _running(question, live)
        yield shown(backend, question, step, live=live.ended())
    except KvdemoError as error:
        yield Refused(
            notice(refusal(error, {**SERVER_LABELS, **page.labels})), empty_result(question.empty) if begun else None
        )
    finally:
        if steps is not None:
            steps.close()


def shown(
    backend: Backend,
    question: Question[Any, Any],
    result: AnyResult,
    *,
    source: str = "",
    live: str | None = None,
    own: bool = True,
    further: Sequence[tuple[str, str]] = (),
    name: str | None = None,
) -> Shown:
    """A result on its page. `source`: where it comes from when it was not run here; live: what stood there while it ran;
    own: False for a recorded one; further: (name, what it shows) of recorded ones beside it; name: by which it is linked to."""
    page = question.page()
    chosen = fastest(question, result)
    return Shown(
        headline=headline_card(question, result, source, further) + link_line(question, name),
        live=page.finished(result) if live is None else live,
        aside=page.aside(result),
        again=replayed(question, result),
        tables=result_tables(question, result),
        figures=question.draw(result, {}),
        result=result,
        arms=arms(question, result),
        chosen=chosen,
        change=keep_card(backend, question, result, chosen),
        own=own,
    )


def replayed(question: Question[Any, Any], result: AnyResult, arm: str | None = None) -> str:
    """Watch it again, as a fragment; "" where no two runs can be replayed beside each other. arm: beside the first one."""
    again = replay_within(question, result, arm)
    return "" if again is None else replay_holder(again)


def redrawn(question: Question[Any, Any], result: AnyResult, picked: Mapping[str, Any]) -> Sequence[Any]:
    """The figures again, of what was picked; a choice that the result does not have counts as none."""
    return question.draw(result, known_picks(question, result, picked))


def known_picks(question: Question[Any, Any], result: AnyResult, picked: Mapping[str, Any]) -> dict[str, str]:
    """The choices that the result has."""
    return {
        picker.key: value
        for picker in question.page().pickers
        if isinstance(value := picked.get(picker.key), str) and value in {key for _, key in picker.choices(result)}
    }


def failed(question: Question[Any, Any]) -> Refused:
    """After a fault of ours: nothing runs any more."""
    words = "Something went wrong on our side; the log of this program says what. Your settings are as you left them."
    return Refused(notice(words), empty_result(question.empty))


def _running(question: Question[Any, Any], live: Live, *, begun: bool = False) -> Running:
    progress = live.progress or Progress("Getting ready", 0, None, 0.0)
    return Running(progress_card(progress, question.unit), live.fragment(), begun)


def _import_drawing() -> None:
    import kvdemo.charts.look  # noqa: F401
