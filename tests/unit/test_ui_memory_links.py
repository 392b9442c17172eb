"""Memory's numbers in the address: a link brings back what it was made of, and nothing in it is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.planner import catalog
from kvdemo.ui.memory.form import MemoryForm
from kvdemo.ui.memory.links import Asked, asked_by, link_line, query_of
from kvdemo.ui.memory.models import BY_HAND, CONFIG, HUB, ModelChoice
from kvdemo.ui.memory.plans import Beside

KNOWN = catalog.names()
USUAL = Asked(ModelChoice(), MemoryForm(), Beside())


class Query(dict[str, str]):
    """A query as the page sees it: a name may be there several times."""

    def __init__(self, query: str) -> None:
        self.all = parse_qs(query.removeprefix("?"))
        super().__init__({name: values[-1] for name, values in self.all.items()})

    def getlist(self, name: str) -> list[str]:
        return self.all.get(name, [])


def asked(query: str, *, hub: bool = True) -> Asked:
    return asked_by(Query(query), KNOWN, hub=hub)


@pytest.mark.parametrize(
    ("choice", "form", "beside"),
    [
        (ModelChoice(), MemoryForm(), Beside()),
        (ModelChoice("Llama-3.1-8B"), MemoryForm(32_768, 8), Beside()),
        (
            ModelChoice("GPT-2 124M"),
            MemoryForm(1024, 2, "static", "float8", 24, 15, "int4", 4, 1500, 32),
            Beside("heads", ("Phi-4", "Qwen3-4B")),
        ),
        (ModelChoice(BY_HAND, "", 32, "8, 8, 4", 128, 8.03), MemoryForm(budget_gib=None), Beside("users")),
        (ModelChoice(BY_HAND, "", 32, "8", 128), MemoryForm(budget_gib=0.5), Beside()),
        (ModelChoice(HUB, "Qwen/Qwen3-8B"), MemoryForm(keeping="uniform"), Beside()),
    ],
)
def test_a_link_brings_back_what_it_was_made_of(choice: ModelChoice, form: MemoryForm, beside: Beside) -> None:
    assert asked(query_of(choice, form, beside)) == Asked(choice, form, beside)


def test_no_name_in_a_link_is_one_that_gradio_takes_for_itself() -> None:
    """It answers ?page=32 with an error: it has no page of that name."""
    changed = MemoryForm(1024, 2, "static", "float8", 24, 15, "int4", 4, 1500, 32)
    assert not {"page", "view", "deep_link"} & set(Query(query_of(ModelChoice(), changed, Beside())))


def test_a_link_is_short_and_readable() -> None:
    assert query_of(ModelChoice("Llama-3.1-8B"), MemoryForm(32_768, 8), Beside()) == (
        "?tab=memory&model=Llama-3.1-8B&seq_len=32768&batch=8&budget=80"
    )


def test_an_address_without_numbers_is_the_usual_form() -> None:
    assert asked("") == asked("?tab=memory&__theme=dark") == USUAL


def test_an_address_without_a_budget_means_this_machines_for_the_loaded_model_and_the_usual_one_for_others() -> None:
    for query, gib in (("", 23.4), ("budget=40", 40), ("model=Llama-3.1-8B", 80), ("budget=none", None)):
        assert asked_by(Query(query), KNOWN, hub=True, machine_gib=23.4).form.budget_gib == gib


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("seq_len=0", "seq_len"),
        ("seq_len=abc", "seq_len"),
        ("seq_len=1e3", "seq_len"),
        ("seq_len=" + "9" * 5000, "seq_len"),
        ("seq_len=%D9%A8", "seq_len"),
        ("batch=-1", "batch"),
        ("page_size=0", "page_size"),
        ("page_size=65537", "page_size"),
        ("batch=1000001", "batch"),
        ("cache=paged", "cache"),
        ("dtype=float7", "dtype"),
        ("weights=%3Cscript%3E", "weights"),
        ("budget=nan", "budget"),
        ("budget=0", "budget"),
        ("budget=1_0", "budget"),
        ("budget=inf", "budget"),
        ("free=100", "free"),
        ("devices=0", "devices"),
        ("encoder=-2", "encoder"),
        ("by=colour", "by"),
        ("model=nobody", "model"),
        ("model=" + "x" * 100_000, "model"),
        ("layers=0&kv_heads=8&head_dim=64", "layers"),
        ("layers=4&kv_heads=eight&head_dim=64", "kv_heads"),
        ("layers=4&kv_heads=8&head_dim=64&parameters=-1", "parameters"),
    ],
)
def test_what_a_link_cannot_ask_for_is_named_and_left_at_its_default(query: str, named: str) -> None:
    found = asked(query)
    assert [problem.startswith(f"{named}: ") for problem in found.problems] == [True]
    assert all(len(problem) < 300 for problem in found.problems)
    if not query.startswith("layers"):
        assert replace(found, problems=()) == USUAL


def test_a_hub_id_in_a_link_is_refused_where_others_can_open_the_page() -> None:
    found = asked("hub=owner/name", hub=False)
    assert found.choice == ModelChoice()
    assert "only where kvdemo runs on your own machine" in found.problems[0]


def test_models_beside_it_that_nobody_knows_are_left_out() -> None:
    assert asked("with=Phi-4&with=nobody&with=Qwen3-4B").beside.models == ("Phi-4", "Qwen3-4B")
    assert len(asked("&".join(f"with={name}" for name in KNOWN).replace(" ", "+")).beside.models) == 3


@given(
    st.dictionaries(
        st.sampled_from(["seq_len", "batch", "budget", "free", "model", "hub", "layers", "kv_heads"]), st.text()
    )
)
def test_no_address_is_believed(query: dict[str, str]) -> None:
    found = asked_by(query, KNOWN, hub=True)
    assert 1 <= found.form.seq_len <= 100_000_000
    assert 1 <= found.form.batch_size <= 1_000_000
    assert found.form.budget_gib is None or 0.001 <= found.form.budget_gib <= 1_000_000
    assert found.choice.model in ("", HUB, BY_HAND, *KNOWN)


@pytest.mark.parametrize("hub_id", ['"><script>alert(1)</script>', "a&b=c", "half \ud800"])
def test_a_link_says_nothing_but_its_numbers(hub_id: Any) -> None:
    line = link_line(ModelChoice(HUB, hub_id), MemoryForm(), Beside())
    assert "<script" not in line
    assert "&b=c" not in line
    assert "is no part of it" in link_line(ModelChoice(CONFIG), MemoryForm(), Beside())
