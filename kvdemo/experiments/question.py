"""The type of a question that people ask: all that the page, the command line, files and tests need to know of it.

A question is one row of questions/table.py and one folder beside it. What needs Gradio, plotly or typer is behind a
function of two lines, so that nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from kvdemo.experiments.bench import Bench
from kvdemo.experiments.comparison import ComparisonResult, Noise
from kvdemo.experiments.evidence import Evidence
from kvdemo.experiments.pieces import Pieces
from kvdemo.experiments.tables import PlacedRuns, Table
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.endpoint import Endpoint, ServedModel
from kvdemo.facts.model import ModelFacts, ModelStatus, StrategyRow
from kvdemo.facts.requests import Message
from kvdemo.facts.results import Environment, Progress
from kvdemo.facts.workload import Workload
from kvdemo.settings import Settings

__all__ = [
    "WATCHED",
    "AnyResult",
    "Form",
    "FormBackend",
    "Live",
    "Needs",
    "Page",
    "Picker",
    "Question",
    "Starts",
    "Words",
]

Needs = Literal["model", "tokenizer", "nothing", "endpoint"]


class AnyResult(Protocol):
    """What every result has, whatever was asked."""

    @property
    def spec(self) -> Any: ...
    @property
    def model(self) -> ModelFacts: ...
    @property
    def environment(self) -> Environment: ...
    @property
    def stopped_because(self) -> str: ...


S = TypeVar("S")
R = TypeVar("R", bound=AnyResult)
R_contra = TypeVar("R_contra", bound=AnyResult, contravariant=True)


class Words(Protocol[R_contra]):
    """A result in words, as strong as its evidence; a module with these functions. Pure: no markup, no drawing."""

    METHOD: str
    """How it was measured, one or two sentences."""

    CAPTION: str
    """What a row of its table is."""

    def headline(self, result: R_contra, /) -> Pieces:
        """What came out?"""

    def scope(self, result: R_contra, /) -> str:
        """What was it measured on?"""

    def so_far(self, step: object, /) -> str:
        """A finished part in one line while the rest goes on; "" for any other step."""

    def verdicts(self, result: R_contra, /) -> Sequence[str]:
        """Are the tokens the same? A sentence for each pair; none where the table says it."""

    def open_points(self, result: R_contra, decision: CacheDecision | None, /) -> Sequence[str]:
        """What it does not tell, the gravest first. decision None: nobody looked which cache is in force."""

    def request(self, result: R_contra, /) -> Sequence[tuple[str, str]]:
        """What was asked, as (name, value)."""

    def remarks(self, result: R_contra, /) -> Sequence[str]:
        """What no column of the table shows."""

    def command(self, result: R_contra, /) -> Sequence[str]:
        """The switches that ask the same again, without the program's name and the model; () where none can."""


class FormBackend(Protocol):
    """What a form needs of the backend; it lies below it."""

    def status(self) -> ModelStatus: ...
    def strategies(self) -> tuple[StrategyRow, ...]: ...
    def count_tokens(self, prompt: str | tuple[Message, ...]) -> int: ...
    def endpoint_models(self, endpoint: Endpoint) -> tuple[ServedModel, ...]: ...


Starts = tuple[tuple[Any, Callable[[Workload], Any]], ...]


@dataclass(frozen=True, slots=True)
class Form:
    """A form's components (Gradio's).

    fields     in the order in which `Page.read` takes their values
    follows    (component, rows of the strategies table -> its update), once the model is loaded
    counted    inputs, output and handler of what is counted again once the model is loaded; () for nothing
    asks       further buttons that ask a question: (button, fields)
    starts     (component, what somebody wants the model for -> its value, None to leave it): where it starts from
    server     address, model and key of an engine behind a URL, which is asked once there is an address; [] for none
    """

    fields: list[Any]
    start: Any
    stop: Any
    notice: Any
    follows: tuple[tuple[Any, Callable[[tuple[StrategyRow, ...]], Any]], ...] = ()
    counted: tuple[list[Any], Any, Callable[..., Any]] | tuple[()] = ()
    asks: tuple[tuple[Any, list[Any]], ...] = ()
    starts: Starts = ()
    server: list[Any] = field(default_factory=list)


class Live(Protocol):
    """A question while it runs: a fold over its steps."""

    @property
    def progress(self) -> Progress | None: ...

    def after(self, step: object) -> Live:
        """The same after one more step."""

    def fragment(self) -> str:
        """What is known so far, as a fragment of the page."""

    def ended(self) -> str:
        """What of it stays beside the result."""


WATCHED = "watched"
"""The key of the picker that says which arm is watched again beside the first; it changes no chart."""


@dataclass(frozen=True, slots=True)
class Picker:
    """A choice of what the charts show: which length runs along, which arm stands beside the first."""

    key: str
    label: str
    choices: Callable[[Any], list[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Page(Generic[S]):
    """A question on the page.

    form       lays it out in the current Blocks
    read       (backend, values of the form's fields) -> the request; InvalidRequest names the field
    figures    names of its charts, in the order in which `Question.draw` gives them
    live       the request and the strategies' rows -> what is shown while it runs
    finished   what stands in the place of `live` for a result that was not run here
    aside      beside the last chart: a fragment
    lines      verdicts and remarks stand below the table; False: they stand in `live` and `finished`
    labels     what the form calls fields of the request, beside the names that all forms have
    """

    form: Callable[[FormBackend, Settings], Form]
    read: Callable[..., S]
    figures: tuple[str, ...]
    live: Callable[[S, Mapping[str, StrategyRow]], Live]
    pickers: tuple[Picker, ...] = ()
    finished: Callable[[Any], str] = lambda _: ""
    aside: Callable[[Any], str] = lambda _: ""
    lines: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question(Generic[S, R]):
    """One row of the table.

    key          its place on the page and in addresses
    command      the name of its command
    kind         of its JSON document
    title        as people ask it
    empty        before there is a result: what Run does and shows
    unit         what its progress counts
    needs        the model, its tokenizer alone, or nothing
    settles      rows of "Ready to decide?" (1 to 10) that a result can answer
    evidence     (a result, what it is wanted for) -> what it says to these rows
    takes        about how long its first form runs: "about 2 min"
    example      name of its recorded result, "" where there is none
    further      (name, what it shows) of more of them
    spec, result types of the request and of the result
    run          InvalidRequest at once for what cannot be done; yields steps, parts, and the result last
    document     a result -> what its JSON has beside the head that all share
    read         a JSON document -> the result; InvalidRequest that names the place of the first mistake
    runs         every run with its place in the result
    labels       names of the arms by key
    columns      a result -> (place of a run -> what a file of runs says of it beside its place)
    rows         of a spreadsheet, where nothing was run; None: one row per run
    strategies   keys of the strategies a request will run
    table        one row per arm, point, prompt ...: words with units
    comparison   the one comparison that stands for a result; None where there is none
    noise        of the machine, where the result has measured it
    draw         (result, picked) -> the page's charts, None where there is nothing to draw
    drawings     every chart, for a report
    page, ask    its page, and its command: a function whose switches make a request
    at_endpoint  the same request as an engine behind a URL can be asked it; None: it cannot
    cold         its prompts are to be new to a server; not where reuse is what it asks about
    code         the lines that do it in an own program, "" where a comparison's script does it
    """

    key: str
    command: str
    kind: str
    title: str
    empty: str
    unit: str
    spec: type[S]
    result: type[R]
    run: Callable[[S, Bench], Iterator[Any]]
    words: Words[R]
    document: Callable[[R], dict[str, Any]]
    read: Callable[[dict[str, Any]], R]
    runs: Callable[[R], PlacedRuns]
    labels: Callable[[R], Mapping[str, str]]
    strategies: Callable[[S], tuple[str, ...]]
    table: Callable[[R], Table]
    draw: Callable[[R, Mapping[str, str]], Sequence[Any]]
    drawings: Callable[[R], Sequence[Any]]
    page: Callable[[], Page[S]]
    ask: Callable[[], Callable[..., S]]
    needs: Needs = "model"
    settles: tuple[int, ...] = ()
    evidence: Callable[[R, Workload], Sequence[Evidence]] = lambda _result, _workload: ()
    takes: str = ""
    example: str = ""
    further: tuple[tuple[str, str], ...] = ()
    code: str = ""
    columns: Callable[[R], Callable[[Mapping[str, object]], Mapping[str, object]]] = lambda _: lambda _: {}
    rows: Callable[[R], Iterable[Mapping[str, object]]] | None = None
    comparison: Callable[[R], ComparisonResult | None] = lambda _: None
    noise: Callable[[R], Noise | None] = lambda _: None
    at_endpoint: Callable[[S], S] | None = None
    cold: bool = True
