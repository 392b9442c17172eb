"""The report: complete, escaped, loading nothing; its script runs, and its way back leads back."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from kvdemo.caches.strategies import STRATEGIES, Strategy
from kvdemo.charts.static_svg import figure_svg
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.evidence import of_setting
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.model import StrategyRow
from kvdemo.facts.requests import SamplingParams
from kvdemo.facts.workload import Workload
from kvdemo.models.loaded import LoadedModel
from kvdemo.questions.faster.charts import arrival_chart, step_cost_chart
from kvdemo.questions.faster.question import FASTER
from kvdemo.questions.faster.words import open_points
from kvdemo.questions.verdict import ready_to_decide
from kvdemo.questions.verdict_texts import ASKED
from kvdemo.report.contents import command_line
from kvdemo.report.report import fenced, markdown_text, report_html, report_markdown
from kvdemo.report.reproduce import arguments, reproduce_script
from tests.known import known
from tests.made_up import advice_of, application_of, result_of, run_of
from tests.made_up_model import MODEL
from tests.tiny import tiny_model, tiny_tokenizer

HOSTILE = '</pre><script>alert(1)</script><img src="https://example.org/x">|`'
DECISION = CacheDecision(
    value=True,
    source="library default",
    cache_implementation=None,
    cache_class="DynamicCache",
    attention="sdpa",
    compiles=False,
    settings={"call": None, "generation_config.json": None, "config.json": None},
)


class Page(HTMLParser):
    """What a page asks for, which elements it has, and its text in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())


@pytest.fixture(scope="module")
def page() -> str:
    result = result_of(rounds=2)
    return report_html(result, decision=DECISION, change=advice_of("dynamic", DECISION))


def test_page_one_has_its_three_parts_in_order(page: str) -> None:
    words = Page(page).words
    places = [words.index(part) for part in (
        "1. What is in force now",
        "2. A representative timing comparison",
        "3. What is not yet known",
        "The charts",
        "Keep this, or go back",
        "How it was measured",
        "Every run",
        "Repeat it",
        "Reproduce without kvdemo",
    )]  # fmt: skip
    assert places == sorted(places)
    assert words[places[0] + 1] == "cache on (library default), DynamicCache, sdpa, not compiled."


def test_the_page_says_what_was_measured_how_and_with_what(page: str) -> None:
    text = " ".join(Page(page).words)
    for part in (
        "decode_s / (new tokens - 1)",
        "Timed: from accepted to last token. Left out: loading, warm-up, queue, drawing the page.",
        "2.13.0+cpu",
        "0123abc",
        "The red cat was",
        "python -m kvdemo compare --prompt",
    ):
        assert part in text
    assert text.count("warm-up ok") == 2


def test_the_page_loads_nothing_and_has_one_script_of_its_own(page: str) -> None:
    found = Page(page)
    assert found.tags.count("script") == 1
    assert not {"link", "img", "iframe", "object", "form", "base"} & set(found.tags)
    assert not {name for name, _ in found.attributes if name in ("src", "href") or name.startswith("on")}
    assert "url(" not in page
    assert "@import" not in page
    assert re.findall(r"https?://[^\"' <]*", page) == ["http://www.w3.org/2000/svg"] * page.count("<svg")
    assert "default-src 'none'" in page
    assert len(page) < 500_000


def test_charts_are_inside_once_for_a_phone_and_once_for_a_desk(page: str) -> None:
    drawn_again = 2  # the pictures of the replay
    assert page.count("<svg") == 10 + drawn_again
    assert page.count('<div class="narrow">') == page.count('<div class="wide">') == 5


def test_every_text_from_outside_is_escaped() -> None:
    result = result_of(rounds=1, prompt=HOSTILE, model=replace(MODEL, name=HOSTILE, source=HOSTILE))
    runs = (*result.runs, run_of("dynamic", (), status="failed", error=HOSTILE, text=HOSTILE, round_number=2))
    strange = tuple(replace(row, label=HOSTILE) for row in result.strategies)
    result = replace(result, runs=runs, strategies=strange)
    decision = replace(DECISION, conflicts=(HOSTILE,))
    change = replace(
        advice_of("dynamic", decision), keep_call=HOSTILE, back_call=HOSTILE, diff=HOSTILE, notes=(HOSTILE,)
    )
    found = Page(report_html(result, decision=decision, change=change))
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    markdown = report_markdown(result, decision=decision, change=change)
    outside = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", markdown)
    assert "<script" not in outside
    assert "<img" not in outside


def test_markdown_shows_the_same_and_its_tables_hold_together() -> None:
    result = result_of(rounds=2, prompt="a | b\n`c` *d*")
    text = report_markdown(result, change=advice_of("static", DECISION))
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    assert text.count("warm\\-up | ok") == 2
    assert "max_cache_len=124" in text


@pytest.mark.parametrize(
    ("text", "shown"), [("a|b", "a\\|b"), ("<b>", "&lt;b&gt;"), ("x\n# y", "x \\# y"), ("1 & 2", "1 \\& 2")]
)
def test_markdown_text_is_one_line_word_for_word(text: str, shown: str) -> None:
    assert markdown_text(text) == shown


def test_a_fence_is_longer_than_any_inside() -> None:
    assert fenced("a ```` b", "sh") == "`````sh\na ```` b\n`````"


def test_what_is_not_known_follows_the_evidence() -> None:
    first = open_points(result_of(rounds=1), None)
    assert first[0].startswith("Which cache your application uses now")
    assert any("one round was completed" in sentence for sentence in first)
    assert any("demonstration prompt" in sentence for sentence in first)
    full = open_points(result_of(rounds=6, prompt="Mine"), DECISION)
    assert not any("rounds" in sentence or "demonstration" in sentence for sentence in full)
    assert any("quality" in sentence for sentence in open_points(result_of(("none", "fp8")), DECISION))


def test_what_a_watched_application_used_is_what_is_in_force() -> None:
    assert "In use: DynamicCache, left at the library&#39;s default." in report_html(application_of())
    assert "Not inspected." in report_html(result_of())


def test_a_result_with_a_strategy_of_a_later_version_still_makes_a_report() -> None:
    result = result_of(rounds=1)
    later = StrategyRow("later", "Later cache", "", exact=False, keeping="no")
    runs = tuple(replace(run, strategy="later") if run.strategy == "dynamic" else run for run in result.runs)
    spec = replace(result.spec, strategies=("none", "later"))
    result = replace(result, spec=spec, runs=runs, strategies=(result.strategies[0], later))
    assert "Reproduce without kvdemo" not in report_html(result)


def test_static_charts_are_sound_xml_of_the_width_asked_for() -> None:
    for chart in (arrival_chart, step_cost_chart):
        drawn = ElementTree.fromstring(figure_svg(chart(result_of()), 311))
        assert drawn.attrib["viewBox"].split()[2] == "311"
        assert drawn.attrib["aria-label"].endswith("?")
        words = ["".join(element.itertext()) for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert any("dynamic cache" in word for word in words)


def test_the_command_repeats_the_comparison() -> None:
    result = result_of(("none", "dynamic"), rounds=6, prompt="it's")
    assert command_line(FASTER, result) == (
        "python -m kvdemo compare --prompt 'it'\"'\"'s' --max-new-tokens 120 "
        "--strategy none --strategy dynamic --rounds 6"
    )


OF_THE_HUB = replace(MODEL, name="tiny-talker", hub_id="some-owner/tiny-talker", source="Weights from the hub.")
IN_A_FOLDER = replace(MODEL, name="tiny-talker", source="Weights from the folder /home/me/tiny-talker.")


def test_a_model_of_the_hub_is_named_by_its_full_id() -> None:
    result = result_of(rounds=1, model=OF_THE_HUB)
    assert "--model some-owner/tiny-talker " in command_line(FASTER, result)
    assert "else 'some-owner/tiny-talker'" in reproduce_script(result)
    for form in (report_html, report_markdown):
        assert "stands for the model" not in form(result)


def test_a_folder_of_this_machine_is_a_place_to_fill_in_for_others_and_itself_in_the_local_command() -> None:
    result = result_of(rounds=1, model=IN_A_FOLDER)
    assert "--model PATH/TO/tiny-talker " in command_line(FASTER, result)
    assert "--model ./my models/tiny-talker" in " ".join(
        shlex.split(command_line(FASTER, result, "./my models/tiny-talker"))
    )
    assert "else 'PATH/TO/tiny-talker'" in reproduce_script(result)
    for form in (report_html, report_markdown):
        assert "stands for the model: put in its folder" in form(result)
        assert "/home/me" not in form(result)


def test_a_folder_that_is_called_like_the_default_model_is_not_taken_for_it() -> None:
    result = result_of(rounds=1, model=replace(IN_A_FOLDER, name="SmolLM2-135M-Instruct"))
    assert "--model PATH/TO/SmolLM2-135M-Instruct " in command_line(FASTER, result)


def test_a_result_from_before_ids_were_kept_leaves_the_owner_open() -> None:
    old = replace(MODEL, name="tiny-talker", revision="0123abc", source="Weights from the local hub cache.")
    assert "--model OWNER/tiny-talker " in command_line(FASTER, result_of(rounds=1, model=old))


def test_the_script_is_short_and_needs_transformers_only() -> None:
    script = reproduce_script(result_of())
    compile(script, "reproduce.py", "exec")
    assert set(re.findall(r"(?m)^(?:import|from) (\w+)", script)) == {"sys", "transformers"}
    assert "import sys, time, statistics, torch" in script
    code = [line for line in script.split('"""')[2].splitlines() if line.strip()]
    assert len(code) <= 32


def test_nothing_in_a_result_can_leave_the_scripts_quotes() -> None:
    bad = "'''\"\"\"\nimport os\n"
    model = replace(MODEL, name=bad, dtype="float32; import os", device=bad)
    environment = replace(result_of(rounds=1).environment, transformers='5"""\nimport os', kvdemo=bad)
    result = replace(result_of(rounds=1, prompt=bad, model=model), environment=environment)
    script = reproduce_script(replace(result, spec=replace(result.spec, as_chat=True, system_prompt=bad)))
    compile(script, "reproduce.py", "exec")
    assert not re.search(r"(?m)^\s*import os", script)
    assert "; import os" not in script


@pytest.mark.parametrize("as_chat", [False, True])
def test_the_script_runs_and_finds_the_same_tokens(
    tmp_path: Path, as_chat: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model().save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    result = result_of(("none", "dynamic", "static", "fp8"), rounds=2, new_tokens=8)
    result = replace(result, spec=replace(result.spec, as_chat=as_chat, system_prompt="Be brief." if as_chat else ""))
    script = tmp_path / "reproduce.py"
    script.write_text(reproduce_script(result))
    monkeypatch.setattr(sys, "argv", ["reproduce.py", str(tmp_path / "tiny")])
    made = runpy.run_path(str(script))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["none", "dynamic", "static", "fp8"]
    assert [line.endswith("True") for line in lines[:3]] == [True, True, True]
    assert {arm: len(times) for arm, times in made["times"].items()} == dict.fromkeys(made["arms"], 2)


def test_the_script_ends_where_any_file_of_the_model_says_as_the_run_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()
    first = int(
        model.generate(torch.tensor([list(b"hi")]), max_new_tokens=1, do_sample=False, eos_token_id=None)[0, -1]
    )
    model.config.eos_token_id = [256, first]
    model.generation_config.eos_token_id = 256
    model.save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    result = result_of(("none", "dynamic"), rounds=1, new_tokens=8, prompt="hi")
    script = tmp_path / "reproduce.py"
    script.write_text(reproduce_script(replace(result, spec=replace(result.spec, fixed_length=False))))
    monkeypatch.setattr(sys, "argv", ["reproduce.py", str(tmp_path / "tiny")])
    assert runpy.run_path(str(script))["warmups"] == {"none": [first], "dynamic": [first]}


def test_a_sampled_comparison_is_repeated_with_its_settings() -> None:
    result = result_of(rounds=1)
    spec = replace(result.spec, sampling=SamplingParams(temperature=0.7, top_p=0.9, seed=5), fixed_length=False)
    script = reproduce_script(replace(result, spec=spec))
    assert "temperature=0.7, top_p=0.9, top_k=0" in script
    assert "torch.manual_seed(5)" in script
    assert "eos_token_id=None" not in script


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.key)
def test_every_strategy_is_asked_for_by_the_code_that_makes_its_cache(strategy: Strategy, tiny: LoadedModel) -> None:
    import transformers

    asked = dict(argument.split("=", 1) for argument in arguments(result_of(rounds=1), strategy.key))
    if strategy.cache is None:
        assert asked == {"use_cache": "False"}
        return
    assert asked["cache"].startswith(f"{strategy.cache.class_name}(config=model.config")
    if strategy.reason(tiny.model) is None:
        made = strategy.make(tiny.model.config, 124)
        again = eval(asked["cache"], {**vars(transformers), "model": tiny.model, "length": 4, "new_tokens": 120})
        assert [type(layer) for layer in again.layers] == [type(layer) for layer in known(made).layers]


def test_code_in_a_result_from_a_file_never_reaches_the_script() -> None:
    result = result_of(rounds=1)
    rows = tuple(replace(row, code=f"{HOSTILE} q_group_size=32") for row in result.strategies)
    script = reproduce_script(replace(result, strategies=rows))
    assert HOSTILE not in script


def test_an_unfinished_comparison_makes_a_report_too() -> None:
    runs = (run_of("none", (), status="cancelled"), run_of("dynamic", (), status="failed", error="no memory"))
    result: ComparisonResult = replace(result_of(rounds=1), runs=runs, comparisons=())
    assert "no memory" in " ".join(Page(report_html(result)).words)
    assert report_markdown(result)


def test_the_verdict_stands_on_page_one_with_its_ten_rows_in_both_forms() -> None:
    result = result_of()
    for form in (report_html, report_markdown):
        text = form(result, decision=DECISION, change=advice_of("dynamic", DECISION))
        head = text.split("1. What is in force now")[0].replace("\\", "")
        assert "Nothing to change: it is on and clearly faster." in head
        assert [asked for asked in ASKED.values() if asked not in head] == []
        assert "6 paired rounds" in head
        assert "What would overturn it: " in head
        assert "Answered by: On my prompts? (up to 5 min)" in head


def test_a_report_of_one_result_judges_what_it_knows_and_no_more() -> None:
    page = report_html(result_of(rounds=1))
    assert "Not enough evidence yet: 1 of 10 answered." in page
    assert "Missing for any verdict: rows 1, 3." in page


def test_a_verdict_that_rests_on_more_results_is_told_as_it_was_given() -> None:
    wanted = Workload(other_s=100.0, target_s=1.0)
    more = ready_to_decide(wanted, [result_of()], beside=[of_setting(DECISION)])
    page, mark = report_html(result_of(rounds=1), readiness=more), report_markdown(result_of(rounds=1), readiness=more)
    assert "Look elsewhere: generation is" in page
    assert "Look elsewhere: generation is" in mark.replace("\\", "")
    assert "What will your user notice?" in page
