"""A server in the place of the loaded model, from the page's forms: nothing needs to be loaded here, and nothing of its cache is
made up."""

from __future__ import annotations

import dataclasses

import gradio as gr
import pytest

from kvdemo.backend import Backend
from kvdemo.components.prompt_source import TYPED
from kvdemo.components.run_view import RunView
from kvdemo.components.server_fields import list_models, server_in
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.tables import OF_THE_SERVER
from kvdemo.facts.endpoint import Endpoint
from kvdemo.facts.events import Finished, TokenEmitted
from kvdemo.facts.records import Reported, RunRecord
from kvdemo.questions.faster.page import CompareForm
from kvdemo.questions.load.page import LoadForm
from kvdemo.questions.prefix.page import PrefixForm
from kvdemo.questions.prompts.page import PromptsForm
from kvdemo.questions.table import QUESTIONS
from kvdemo.settings import Settings
from kvdemo.ui.chat import turns
from kvdemo.ui.chat.conversation import Conversation
from kvdemo.ui.chat.extras import open_times
from kvdemo.ui.chat.form import ChatTimes
from kvdemo.ui.chat.panel import panel, phone_line
from kvdemo.ui.chat.settings import ChatSettings, remembered
from kvdemo.ui.compare import runs
from tests.known import known, sure
from tests.loopback_engine import MODEL_ID, WorkEngine, serving

KEY = "sk-very-secret-4711"
ARTICLE = "What is a planet? " * 40
ENGINE = WorkEngine(each_s=0.00001, own_s=0.0002, prefixes=True, reports=True)


@pytest.fixture
def backend() -> Backend:
    """Without a model: a server needs none here."""
    return Backend(Settings())


def values_of(form: object) -> list[object]:
    return [getattr(form, name) for name in form.__dataclass_fields__]  # type: ignore[attr-defined]


ASKED = {
    "faster": CompareForm(ARTICLE, max_new_tokens=3, rounds=2),
    "prompts": PromptsForm(TYPED, ARTICLE, max_new_tokens=3),
    "prefix": PrefixForm(ARTICLE, "Mars?\nVenus?", max_new_tokens=3),
    "load": LoadForm(typed=ARTICLE, requests=2, new_tokens=3),
}


@pytest.mark.parametrize("key", ASKED)
def test_each_of_these_questions_is_asked_of_a_server_from_its_form(key: str, backend: Backend) -> None:
    question = next(item for item in QUESTIONS if item.key == key)
    with serving(ENGINE.answer) as url:
        views = list(runs.run(backend, question, values_of(ASKED[key]), "ada/compare", (url, "", KEY)))
    shown = sure(runs.Shown, views[-1])
    assert MODEL_ID in shown.result.model.name
    assert all(run.status == "ok" and run.strategy is None for _, run in question.runs(shown.result))
    assert KEY not in "".join(map(repr, views))
    assert shown.change == "" or question.code, "there is no cache of ours to keep"


def test_a_comparison_at_a_server_streams_in_one_column(backend: Backend) -> None:
    question = next(item for item in QUESTIONS if item.key == "faster")
    with serving(ENGINE.answer) as url:
        first, *_ = runs.run(backend, question, values_of(ASKED["faster"]), "ada/compare", (url, "served-name", ""))
    assert isinstance(first, runs.Refused), "this model is not listed"
    with serving(ENGINE.answer) as url:
        first, *_ = runs.run(backend, question, values_of(ASKED["faster"]), "ada/compare", (url, "", ""))
    assert sure(runs.Running, first).live.count("kv-arm-head") == 1


def test_an_address_that_may_not_be_asked_is_refused_in_the_forms_words(backend: Backend) -> None:
    question = next(item for item in QUESTIONS if item.key == "faster")
    (view,) = runs.run(backend, question, values_of(ASKED["faster"]), "ada/compare", ("http://10.0.0.7", "", ""))
    assert "Address: " in sure(runs.Refused, view).notice


def test_without_an_address_there_is_no_server_whatever_else_is_typed() -> None:
    assert server_in(("  ", "model", KEY)) is None
    assert server_in(()) is None
    assert server_in(("http://127.0.0.1:1/v1 ", " ", "")) == Endpoint("http://127.0.0.1:1/v1")
    with pytest.raises(InvalidRequest) as refused:
        server_in(("http://127.0.0.1:1", "", "sk-Ä"))
    assert refused.value.field == "key"
    assert "Ä" not in str(refused.value)


def test_the_models_that_it_lists_can_be_chosen_or_it_is_said_why_not(backend: Backend) -> None:
    model, below = gr.Dropdown(), gr.Markdown()
    with serving(ENGINE.answer) as url:
        listed = list_models(backend, model, below, "", url, "")
    assert listed[model]["choices"] == [(MODEL_ID, MODEL_ID)] or listed[model]["choices"] == [MODEL_ID]
    assert MODEL_ID in listed[below]
    gone = list_models(backend, model, below, "", url, "")
    assert "Nothing listens" in gone[below]
    assert list_models(backend, model, below, "before", "", "")[below].count("before") == 1


# --- Chat ------------------------------------------------------------------------------------------------------------------


def test_a_server_answers_in_chat_while_no_model_is_loaded_here(backend: Backend) -> None:
    with serving(ENGINE.answer) as url:
        settings = ChatSettings(max_new_tokens=5, url=url, key=KEY)
        refused = turns.take(backend, Conversation(), "Hello", at_server=False)
        assert "notice" in refused
        assert "conversation" not in refused, "the model here is not loaded"
        asked = turns.take(backend, Conversation(), "Hello", at_server=settings.at_server)
        views = list(turns.answer(backend, known(asked.get("conversation")), settings, "ada/chat"))
    (turn,) = known(views[-1].get("conversation")).turns
    assert not turn.failed
    assert turn.figures.startswith("5 tokens")
    assert known(turn.record).strategy is None
    assert known(views[-1].get("panel")).count("not reported") >= 1
    assert "KiB" not in known(views[-1].get("panel")), "the bytes of its cache are its own"
    assert KEY not in repr(views)


def test_what_goes_wrong_at_a_server_stands_under_the_message(backend: Backend) -> None:
    asked = known(turns.take(backend, Conversation(), "Hello", at_server=True).get("conversation"))
    *_, last = turns.answer(backend, asked, ChatSettings(url="http://127.0.0.1:9"), "ada/chat")
    (turn,) = known(last.get("conversation")).turns
    assert (turn.failed, turn.note) == (True, "Nothing listens at 127.0.0.1:9.")


def test_the_browser_remembers_no_address_and_no_key() -> None:
    settings = ChatSettings(url="http://127.0.0.1:8000", served_model="m", key=KEY)
    assert "127.0.0.1" not in remembered(settings)
    assert KEY not in remembered(settings)
    assert KEY not in repr(settings)


def record(reported: Reported) -> RunRecord:
    return RunRecord(
        strategy=None,
        status="ok",
        finish_reason="length",
        prompt_tokens=reported.prompt_tokens,
        token_ids=None,
        num_new_tokens=4,
        token_times_s=(0.1, 0.2),
        reused_tokens=reported.cached_tokens,
        cache_bytes=None,
        cache_tokens=None,
        text="ab",
        notices=("2 pieces carried 4 tokens.",),
        reported=reported,
    )


def view_of(reported: Reported) -> RunView:
    view = RunView(strategy="", served=True)
    for at, piece in enumerate("ab"):
        view = view.after(TokenEmitted(at, None, piece, 0.1 * (at + 1), None, None, None))
    return view.after(Finished("length", record(reported)))


def test_what_a_server_says_of_reuse_is_called_reported_and_what_it_does_not_say_not_reported() -> None:
    silent = panel(view_of(Reported()), None, None)
    assert silent.count("not reported") == 2
    assert "prompt tokens it reused" in silent
    told = panel(view_of(Reported(prompt_tokens=100, cached_tokens=96)), None, None)
    assert "reported: prompt tokens it reused" in told
    assert ">96<" in told
    assert "96 reported as reused" in told
    assert "4 more prompt tokens" in told
    assert "2 pieces carried 4 tokens." in told
    nothing = panel(view_of(Reported(prompt_tokens=100, cached_tokens=0)), None, None)
    assert ">0<" in nothing, "a 0 that is reported is a 0"


def test_pieces_stand_for_tokens_only_until_the_server_says_how_many_there_were() -> None:
    assert view_of(Reported()).figures.startswith("4 tokens")
    assert phone_line(view_of(Reported())) != ""


def test_what_a_server_answered_is_not_measured_again_on_the_model_here() -> None:
    place, words, steps, drawn, measure, stop = (
        gr.Accordion(),
        gr.Markdown(),
        gr.Plot(),
        gr.Plot(),
        gr.Button(),
        gr.Button(),
    )
    times = ChatTimes(place, words, steps, drawn, measure, stop, gr.State(False), gr.State(()))
    at_server = Conversation()
    for _ in range(3):
        at_server = at_server.asked("Hi").answered("ab", record=record(Reported(prompt_tokens=3)))
    assert open_times(times, at_server, ())[measure]["visible"] is False
    here = Conversation()
    for _ in range(3):
        here = here.asked("Hi").answered(
            "ab", record=dataclasses.replace(record(Reported()), reported=None, prompt_tokens=3)
        )
    assert open_times(times, here, ())[measure]["visible"] is True


@pytest.mark.parametrize("key", ["faster", "load", "prefix"])
def test_no_table_of_a_servers_runs_says_n_a_for_what_only_the_server_knows(key: str, backend: Backend) -> None:
    question = next(item for item in QUESTIONS if item.key == key)
    with serving(WorkEngine(each_s=0.00001, own_s=0.0002).answer) as url:
        *_, view = runs.run(backend, question, values_of(ASKED[key]), "ada/compare", (url, "", ""))
    table = question.table(sure(runs.Shown, view).result)
    silent = {name for name in OF_THE_SERVER if name in table.names}
    assert silent
    assert {cell for name in silent for cell in table[name]} == {"not reported"}
