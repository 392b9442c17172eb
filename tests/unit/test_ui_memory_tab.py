"""The handlers of the tab Memory: which model is found when, what is skipped, what is offered after a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from kvdemo.components.wiring import Updates
from kvdemo.facts.model import Loading
from kvdemo.settings import Settings
from kvdemo.ui.memory.form import MemoryForm
from kvdemo.ui.memory.layout import build
from kvdemo.ui.memory.model_fields import fields_of_model, read, upload
from kvdemo.ui.memory.models import BY_HAND, CONFIG, HUB, LOADED
from kvdemo.ui.memory.parts import MemoryParts
from kvdemo.ui.memory.planning import plan
from kvdemo.ui.memory.tab import budget, from_slider, linked_values, measure, to_slider
from tests.fake_backend import ARCHITECTURE, FakeBackend

with gr.Blocks():
    PARTS: MemoryParts = build(FakeBackend(), "local")
NAMES = {
    **{getattr(PARTS, name): name for name in PARTS.__slots__ if name not in ("choice", "beside", "form")},
    **{part: name for fields in (PARTS.form, PARTS.beside, PARTS.choice) for name, part in fields.items()},
}


def named(changes: Updates) -> dict[str, Any]:
    """What is changed, by the names of the parts."""
    return {} if changes == gr.skip() else {NAMES[part]: value for part, value in changes.items()}


def values(
    model: str = LOADED, hub: str = "", hand: tuple[Any, ...] = (None, "", None, None), **form: Any
) -> list[Any]:
    made = MemoryForm(**form)
    return [model, hub, *hand, "length", [], *(getattr(made, name) for name in MemoryForm.names())]


def planned(backend: Any, *, found: Any = None, shown: Any = None, measured: Any = (), **asked: Any) -> dict[str, Any]:
    return named(plan(PARTS, backend, found, shown, measured, *values(**asked)))


def steps_of(backend: Any, config: Any, model: str = CONFIG, **asked: Any) -> list[dict[str, Any]]:
    return [named(step) for step in read(PARTS, backend, config, None, None, (), *values(model, **asked))]


def test_a_plan_of_a_known_model_shows_everything_and_a_link() -> None:
    told = planned(FakeBackend(), model="Llama-3.1-8B", seq_len=32_768, batch_size=8)
    assert told["notice"] == ""
    assert "47 of 80" in told["headline"].replace("\N{NO-BREAK SPACE}", " ")
    assert "KV heads</abbr> of 128" in told["about"]
    assert "?tab=memory&amp;model=Llama-3.1-8B&amp;seq_len=32768&amp;batch=8&amp;budget=80" in told["link"]


def test_a_change_of_length_finds_no_model_again() -> None:
    first = planned(FakeBackend(), model="Llama-3.1-8B")

    class NoModels(FakeBackend):
        def architecture(self, model: str | None = None, config: str = "") -> Any:
            raise AssertionError("asked again")

    told = planned(NoModels(), found=first["geometry"], shown=first["shown"], model="Llama-3.1-8B", seq_len=8192)
    assert not {"geometry", "about", "limit"} & set(told)
    assert "8,192 tokens" in told["headline"]


def test_another_model_is_found_by_the_same_event() -> None:
    first = planned(FakeBackend(), model="Llama-3.1-8B")
    told = planned(FakeBackend(), found=first["geometry"], shown=first["shown"], model="Phi-4")
    assert told["headline"].count("Phi-4") == 1


@pytest.mark.parametrize("model", [CONFIG, HUB])
def test_what_a_button_reads_is_not_read_by_typing(model: str) -> None:
    first = planned(FakeBackend(), model="Llama-3.1-8B")
    told = planned(FakeBackend(), found=first["geometry"], shown=first["shown"], model=model, hub="owner/name")
    assert told == {}
    assert "kv-stale" in named(fields_of_model(PARTS, model, first["shown"]))["notice"]


def test_typing_by_hand_is_planned_as_soon_as_it_is_complete() -> None:
    half = planned(FakeBackend(), model=BY_HAND, hand=(32, "", None, None))
    assert "Type the number of layers" in half["notice"]
    assert "headline" not in half
    told = planned(FakeBackend(), model=BY_HAND, hand=(32, "8", 128, None), seq_len=1000)
    assert "A model typed by hand, 1 request of 1,000 tokens" in told["headline"]
    assert "The number of parameters is not known" in told["headline"]


def test_while_the_model_loads_known_models_are_pointed_at_and_work() -> None:
    loading = FakeBackend(model=Loading("tiny", "weights, 1 of 3"))
    told = planned(loading)
    assert "still loading" in told["notice"]
    assert "Known models, a config.json and numbers typed by hand work already." in told["notice"]
    assert planned(loading, model="Phi-4")["notice"] == ""
    assert planned(loading, model=BY_HAND, hand=(32, "8", 128, None))["notice"] == ""


def test_measured_points_belong_to_the_loaded_model_alone() -> None:
    points = tuple(FakeBackend().measure_memory(_spec(), owner="me"))
    assert [trace.name for trace in planned(FakeBackend(), measured=points)["growth"].data].count("measured") == 1
    other = planned(FakeBackend(), measured=points, model="Phi-4")
    assert "measured" not in [trace.name for trace in other["growth"].data]


def test_a_config_that_is_read_is_planned_and_kept_for_the_next_change() -> None:
    class Reads(FakeBackend):
        def architecture(self, model: str | None = None, config: str = "") -> Any:
            assert config == "{...}"
            return ARCHITECTURE

    going, done = steps_of(Reads(), "{...}")
    assert "Reading the config" in going["notice"]
    assert done["notice"] == ""
    assert done["geometry"] == ((CONFIG,), ARCHITECTURE)
    told = planned(FakeBackend(), found=done["geometry"], shown=done["shown"], model=CONFIG, seq_len=99)
    assert "99 tokens" in told["headline"]


def test_a_refused_config_is_named_and_its_numbers_are_offered_for_typing() -> None:
    class Refuses(FakeBackend):
        def architecture(self, model: str | None = None, config: str = "") -> Any:
            from kvdemo.planner.architecture import parse_config

            return parse_config(config)

    config = '{"model_type": "new", "auto_map": {}, "num_hidden_layers": 40, "num_key_value_heads": 4, "head_dim": 96}'
    *_, refused = steps_of(Refuses(), config)
    assert "auto_map" in refused["notice"]
    assert refused["hand_box"]["visible"] is True
    assert (refused["layers"], refused["kv_heads"], refused["head_dim"]) == (40, "4", 96)
    *_, broken = steps_of(Refuses(), '{"a": 1,\n "b" 2}')
    assert "line 2, column 6" in broken["notice"]
    assert "hand_box" not in broken


def test_a_hub_id_that_cannot_be_had_says_why() -> None:
    going, refused = steps_of(FakeBackend(), "", HUB, hub="owner/name")
    assert "Asking the hub" in going["notice"]
    assert "owner/name cannot be reached here." in refused["notice"]


def test_an_upload_becomes_the_pasted_text_and_its_file_is_deleted(tmp_path: Path) -> None:
    class Reads(FakeBackend):
        def architecture(self, model: str | None = None, config: str = "") -> Any:
            return ARCHITECTURE

    file = tmp_path / "config.json"
    file.write_text("{}")
    steps = [named(step) for step in upload(PARTS, Reads(), 1000, str(file), None, None, (), *values(CONFIG))]
    assert [step["config"] for step in steps] == ["{}", "{}"]
    assert not file.exists()
    file.write_bytes(b"\xff" * 10)
    (refused,) = upload(PARTS, Reads(), 1000, str(file), None, None, (), *values(CONFIG))
    assert set(named(refused)) == {"notice"}
    assert "UTF-8" in named(refused)["notice"]


def test_the_slider_gives_lengths_as_people_say_them() -> None:
    assert [from_slider(power) for power in (7, 10, 15, 17, 20)] == [128, 1024, 32_768, 131_072, 1_048_576]
    assert from_slider(13.55) == 12_000
    assert [to_slider(PARTS, length)[PARTS.slider] for length in (128, 1024, 1, 10**8)] == [7, 10, 7, 20]
    for odd in (None, 0, -5, "7", float("nan"), True):
        assert to_slider(PARTS, odd) == gr.skip()


def test_a_link_fills_the_form_and_what_cannot_be_is_said() -> None:
    told = linked({"model": "Phi-4", "seq_len": "1024", "batch": "0"})
    assert (told["slider"], told["seq_len"], told["model"]) == (10, 1024, "Phi-4")
    assert "batch: must be between 1 and 1,000,000" in told["link_notice"]
    assert linked({})["link_notice"] == ""


def linked(query: dict[str, str]) -> dict[str, Any]:
    return named(linked_values(PARTS, FakeBackend(), Settings(), query))


def test_measuring_hides_its_button_while_it_runs_and_says_what_it_found() -> None:
    first, *_, last = (named(step) for step in measure(PARTS, FakeBackend(), None, gr.Request(session_hash="abc")))
    assert (first["weigh"]["visible"], first["stop"]["visible"]) == (False, True)
    assert (last["weigh"]["visible"], last["stop"]["visible"]) == (True, False)
    assert len(last["measured"]) == 6


def _spec() -> Any:
    from kvdemo.facts.requests import MeasureSpec

    return MeasureSpec((32, 256))


@pytest.mark.parametrize(
    ("model", "written", "usual", "shown"),
    [
        ("Llama-3.1-8B", 23.4, 23.4, (80, 80, "default: 80")),
        ("Llama-3.1-8B", 40, 23.4, (None, 80, "default: 80")),
        (LOADED, 80, 80, (23.4, 23.4, "this machine: 23.4")),
        (LOADED, None, 80, (None, 23.4, "this machine: 23.4")),
        (LOADED, 40, 23.4, (None, None, None)),
    ],
)
def test_another_model_brings_its_usual_budget_unless_somebody_has_typed_one(
    model: str, written: float | None, usual: float, shown: tuple[Any, Any, str | None]
) -> None:
    told = named(budget(PARTS, FakeBackend(), model, written, usual))
    assert (told.get("budget_gib"), told.get("usual")) == shown[:2]
    assert ("budget_from" not in told) if shown[2] is None else shown[2] in told["budget_from"]
