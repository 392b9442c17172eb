"""How the page's events are wired, read from the built page; a failure names the event."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kvdemo.questions.table import QUESTIONS
from tests.served import Served

# The client controls what these send, and no more can come of it than a value that the server checks again.
SAFE_INPUTS = {
    *("Textbox", "Number", "Slider", "Dropdown", "Radio", "Checkbox", "CheckboxGroup", "State"),
    *("UploadButton", "Api"),
    "BrowserState",  # its value is checked like what anybody types
}
API = ("/chat", "/compare", "/memory")
# The model's own turnstile does the waiting; reading a pasted config takes seconds of a core.
GROUPS = {("model", 20), ("config", 2)}


def name_of(fn: Any) -> str:
    return f"{fn.name} ({', '.join(f'{trigger} of {block}' for block, trigger in fn.targets)})"


def below(block: Any) -> Iterator[Any]:
    """Every part that lies in this one, at any depth."""
    for child in getattr(block, "children", ()):
        yield child
        yield from below(child)


def events(page: Served) -> list[Any]:
    """All but the one that Gradio calls by itself when a page is closed."""
    return [fn for fn in page.demo.fns.values() if "unload" not in {trigger for _, trigger in fn.targets}]


def test_no_event_takes_a_component_whose_payload_a_client_could_forge(page: Served) -> None:
    forgeable = {
        name_of(fn): sorted({type(block).__name__ for block in fn.inputs} - SAFE_INPUTS)
        for fn in page.demo.fns.values()
    }
    assert {name: inputs for name, inputs in forgeable.items() if inputs} == {}


def test_files_are_taken_only_as_paths_of_their_own_upload(page: Served) -> None:
    for fn in page.demo.fns.values():
        for block in fn.inputs:
            if type(block).__name__ == "UploadButton":
                assert block.type == "filepath", name_of(fn)


def test_only_the_three_endpoints_of_the_api_are_public(page: Served, http: httpx.Client) -> None:
    public = {f"/{fn.api_name}" for fn in page.demo.fns.values() if fn.api_visibility == "public"}
    assert public == set(API)
    assert [name_of(fn) for fn in page.demo.fns.values() if fn.api_visibility == "undocumented"] == []
    told = http.get("/gradio_api/info").json()
    assert (sorted(told["named_endpoints"]), told["unnamed_endpoints"]) == (sorted(API), {})


def test_every_queued_event_is_in_a_group_with_room_for_more_than_one(page: Served) -> None:
    queued = {name_of(fn): (fn.concurrency_id, fn.concurrency_limit) for fn in events(page) if fn.queue}
    assert {name: group for name, group in queued.items() if group not in GROUPS} == {}
    model = {fn.name for fn in events(page) if fn.concurrency_id == "model"}
    assert model >= {"answer", "run", "chat", "compare", "measure"}


def test_every_other_event_skips_the_queue(page: Served) -> None:
    light = {fn.name for fn in events(page) if not fn.queue}
    assert light >= {"take", "act", "stop", "cleared", "status", "count_tokens", "save", "plan", "seen"}


def test_no_event_of_the_page_lays_an_overlay_over_what_is_read(page: Served) -> None:
    overlaid = [name_of(fn) for fn in events(page) if fn.api_visibility == "private" and fn.show_progress != "hidden"]
    assert overlaid == []


def test_a_states_first_value_can_be_copied_for_every_visitor(page: Served) -> None:
    for block in page.demo.blocks.values():
        if type(block).__name__ == "State":
            copy.deepcopy(block.value)


def test_no_two_parts_have_one_id(page: Served) -> None:
    times = Counter(block.elem_id for block in page.demo.blocks.values() if block.elem_id)
    assert [name for name, count in times.items() if count > 1] == []


@pytest.mark.parametrize("key", [question.key for question in QUESTIONS])
def test_the_id_of_every_part_of_a_question_says_which_one(page: Served, key: str) -> None:
    (column,) = (block for block in page.demo.blocks.values() if block.elem_id == f"compare-{key}")
    names = [block.elem_id for block in below(column) if block.elem_id]
    assert {f"compare-{key}-{part}" for part in ("form", "run", "stop", "notice", "headline")} <= set(names)
    assert [name for name in names if not name.startswith(f"compare-{key}-")] == []


@pytest.mark.parametrize("kind", ["DeepLinkButton", "LoginButton", "HTML", "Chatbot", "File", "Code"])
def test_the_page_has_no_part_that_would_bring_a_route_or_markup_of_its_own(page: Served, kind: str) -> None:
    assert kind not in {type(block).__name__ for block in page.demo.blocks.values()}
