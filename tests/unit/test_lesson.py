"""The lesson as a teacher uses it: its links open, its commands parse, and every number in it is what the page shows."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from statistics import median
from urllib.parse import parse_qs, urlsplit

import pytest
import typer

from kvdemo.backend import Backend
from kvdemo.cli.main import commands
from kvdemo.cli.page import parse
from kvdemo.cli.session import last
from kvdemo.experiments.comparison import ComparisonResult
from kvdemo.experiments.pieces import plain
from kvdemo.facts.plans import MemoryPlan, MemoryRequest
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds
from kvdemo.models.source import resolve
from kvdemo.models.tokenizer import load_tokenizer
from kvdemo.questions.recorded import recorded_names, recorded_result
from kvdemo.questions.table import QUESTIONS, question_of
from kvdemo.report.replay import replay_within
from kvdemo.report.spreadsheet import runs_csv
from kvdemo.settings import Settings
from kvdemo.ui.foot import EXPERIMENTS, TITLE, foot
from kvdemo.ui.memory.links import Asked, asked_by
from kvdemo.ui.memory.words import headline
from kvdemo.ui.page import TABS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "LESSON.md").read_text(encoding="utf-8")
LINKS = re.findall(r"http://[^\s)>]+", TEXT)
PAGE = "http://127.0.0.1:7860"


def one_line(text: str) -> str:
    return " ".join(text.split())


SECTIONS = {part.splitlines()[0]: one_line(part) for part in TEXT.split("\n## ")[1:]}


def section(title: str) -> str:
    [found] = [words for name, words in SECTIONS.items() if title in name]
    return found


class Query(dict[str, str]):
    """A query as the page sees it."""

    def __init__(self, link: str) -> None:
        self.all = parse_qs(urlsplit(link).query)
        super().__init__({name: values[-1] for name, values in self.all.items()})

    def getlist(self, name: str) -> list[str]:
        return self.all.get(name, [])


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    """No model is loaded: the links of Memory need none."""
    made = Backend(Settings())
    yield made
    made.close()


def linked(backend: Backend, link: str) -> Asked:
    return asked_by(Query(link), backend.catalogue(), hub=True)


def plan_of(backend: Backend, link: str, *, one_page_size: bool = False) -> MemoryPlan:
    asked = linked(backend, link)
    geometry = asked.choice.architecture(backend)
    return backend.plan_of(geometry, asked.form.request(geometry), one_page_size=one_page_size)


# --- links, commands, columns ---------------------------------------------------------------------------------------


def test_links_lead_to_the_page_as_make_run_opens_it() -> None:
    assert {f"{urlsplit(link).scheme}://{urlsplit(link).netloc}" for link in LINKS} == {PAGE}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"make run     # sets up .venv and opens the page at {PAGE}" in readme
    assert "[LESSON.md](LESSON.md)" in readme


@pytest.mark.parametrize("link", [link for link in LINKS if "?" in link])
def test_every_link_opens_what_it_names(backend: Backend, link: str) -> None:
    query = Query(link)
    assert query["tab"] in TABS
    assert linked(backend, link).problems == ()
    if query["tab"] == "memory":
        assert plan_of(backend, link).capacity is not None
        assert query.getlist("with") == list(linked(backend, link).beside.models)
    elif "result" in query:
        assert query["result"] in recorded_names()
        assert question_of(recorded_result(query["result"])).title


def test_every_command_of_the_lesson_parses() -> None:
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    started = [words for words in lines if words[:2] == ["make", "run"]]
    assert [parse(words[2].removeprefix("ARGS=").split() if words[2:] else []).model for words in started] == [
        None,
        "tiny-window",
    ]
    app = typer.main.get_command(commands(QUESTIONS, last))
    for words in (one for one in lines if one not in started):
        assert words[:3] == ["python", "-m", "kvdemo"]
        command = app.commands[words[3]]  # type: ignore[attr-defined]
        command.make_context(words[3], words[4:]).close()
    assert len(lines) > 5


def test_a_class_that_works_with_the_file_as_it_is_told_finds_the_headlines_ratio() -> None:
    rows = list(csv.DictReader(io.StringIO(runs_csv(recorded_result("compare")), newline="")))
    words = section("Figures for the class")
    named = set(re.findall(r"`([a-z_]+)`", words))
    assert {"generation_s", "ttft_s", "positions_computed_total", "round"} <= named
    assert named - {"none", "dynamic"} <= rows[0].keys()
    took = {(row["strategy"], row["round"]): float(row["generation_s"]) for row in rows if row["round"] != "0"}
    ratios = [took["none", number] / took["dynamic", number] for arm, number in took if arm == "none"]
    assert f"takes the middle: {format_ratio(median(ratios))}." in words


def test_the_foot_of_the_page_names_the_same_experiments_with_the_same_links() -> None:
    titles = [name.split(". ", 1)[1].rsplit(" (", 1)[0] for name in SECTIONS if name[0].isdigit()]
    assert titles == [one.title for one in EXPERIMENTS]
    for one in EXPERIMENTS:
        assert f"{PAGE}/{one.query}" in section(one.title)
    said = unescape(str(foot()))
    assert TITLE in said
    assert f'"{TITLE}"' in one_line(TEXT)
    assert [one.query for one in EXPERIMENTS] == re.findall(r'href="([^"]+)"', said)


def test_twenty_minutes_are_twenty_minutes() -> None:
    assert sum(map(int, re.findall(r"^## \d.* \((\d+) minutes\)$", TEXT, re.MULTILINE))) == 20


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared() -> ComparisonResult:
    result = recorded_result("compare")
    assert isinstance(result, ComparisonResult)
    return result


def sums(prompt: int, new: int) -> tuple[int, int]:
    """(positions without a cache, with one)."""
    return new * prompt + new * (new - 1) // 2, prompt + new - 1


def test_the_sums_of_the_first_experiment_are_those_of_the_recorded_run(compared: ComparisonResult) -> None:
    without, kept = sums(4, 300)
    assert [compared.counted(arm)[0].total_computed for arm in ("none", "dynamic")] == [without, kept]
    words = section("Triangle")
    for said in (
        f"Without a cache: {format_count(without)} positions computed",
        f"With the cache: {format_count(kept)} positions computed",
        f"here {format_count(300 * 4)} + {format_count(300 * 299 // 2)}. That is {without / kept:.0f} times as many",
    ):
        assert said in words


def steps_ms(compared: ComparisonResult, arm: str, first: int, after: int) -> str:
    """The usual step from token `first` to before `after`: the median over the rounds of its mean."""
    means = []
    for run in compared.counted(arm):
        times = run.times_by_token_s
        means.append((times[after - 1] - times[first - 1]) / (after - first))
    return format_seconds(median(means))


def test_the_times_of_the_second_experiment_are_those_of_the_recorded_run(compared: ComparisonResult) -> None:
    words = section("Why it is not")
    kept, without = steps_ms(compared, "dynamic", 290, 300), steps_ms(compared, "none", 290, 300)
    early = steps_ms(compared, "none", 1, 11)
    times = float(without.removesuffix(" ms")) / float(kept.removesuffix(" ms"))
    assert f"The last ten take {kept} each" in words
    assert f"takes {early} at the beginning and {without} at the end" in words
    assert f"not 300 times as long, but {format_ratio(times)} times" in words
    assert f"times less and are {format_ratio(times)} times faster" in section("said wrong")
    assert f"{format_bytes(compared.model.weight_bytes)} in this model" in words
    told = words.replace("**", "")
    head = plain(question_of(compared).words.headline(compared))
    [found] = re.findall(r"The headline: (.*?\(.*?\))", told)
    assert found in head
    faster = re.search(r"([\d.]+) times faster", found)
    assert faster is not None
    assert f"takes the middle: {faster[1]}." in section("Figures for the class")
    first = next(item for item in compared.comparisons if item.metric == "ttft_s")
    assert first.low is not None
    assert first.high is not None
    assert first.low < 1 < first.high, "the lesson says that the first token takes the same time in both"
    replay = replay_within(question_of(compared), compared)
    assert replay is not None
    one_of_six = (
        f"one of six rounds, {format_ratio(replay.times_faster)} times faster. The headline is the median of all six, "
    )
    assert f"{one_of_six}{faster[1]}." in section("Triangle")
    short, one = sums(4, 120)
    assert f"{format_count(short)} positions against {format_count(one)}: {short / one:.0f} times less" in words


def test_the_recorded_step_that_the_third_experiment_quotes_says_so(compared: ComparisonResult) -> None:
    replay = replay_within(question_of(compared), compared)
    assert replay is not None
    [quoted] = re.findall(r'there step 7 says "(.*?)"', section("newest token"))
    assert replay.step(7).startswith("Step 7. ")
    assert quoted.rstrip(".") in replay.step(7)


@pytest.mark.real
def test_the_lengths_of_the_third_experiment_are_those_of_the_models_template(backend: Backend, tmp_path: Path) -> None:
    words = section("newest token")
    [message] = re.findall(r"Write `(.*?)` in the box", words)
    tokenizer = load_tokenizer(resolve(None, tmp_path, weights=False), tmp_path).tokenizer
    asked = [{"role": "user", "content": message}]
    text = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    prompt = len(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert f"Step 1: computed {prompt} of {prompt} positions." in words
    step = "Step {}: computed 1, read {}, appended 1."
    assert f"{step.format(2, prompt)} Layer 0 keys [1, 3, {prompt}, 64] to [1, 3, {prompt + 1}, 64]" in words
    assert step.format(3, prompt + 1) in words
    layers = backend.architecture("tiny-window").layers
    held = [min(layer.held_window or prompt + 2, prompt + 2) for layer in layers]
    told = section("A window")
    assert f'"Layer 0: {prompt + 2 - held[0]} forgotten, {held[0]} held"' in told
    assert f"Choose layer 2: {held[2]} held" in told
    assert [index for index, kept in enumerate(held) if kept == prompt + 2] == [2, 5]
    assert 2 * held[0] < prompt + 2
    model = backend.architecture("SmolLM2-135M")
    each = backend.plan_of(model, MemoryRequest(1, cache_dtype="float32")).bytes_per_token
    assert f"{format_bytes(each)} more over {len(model.layers)} layers" in words
    assert f"= {format_count(each)} bytes" in words


def test_the_table_of_the_fourth_experiment_is_the_planners(backend: Backend) -> None:
    words = section("Sharing heads")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("|")]
    links = [link for link in LINKS if "kv_heads" in link]
    assert len(links) == 3
    for link, row in zip(links, rows[2:5], strict=True):
        plan = plan_of(backend, link)
        assert plan.weight_bytes is not None
        assert plan.capacity is not None
        assert row[0].split()[0] == Query(link)["kv_heads"]
        assert row[1] == f"{format_count(plan.bytes_per_token)} bytes"
        assert row[2] == whole_gib(plan.held_bytes)
        assert row[3] == whole_gib(plan.held_bytes + plan.weight_bytes)
        assert row[4] == ("fits" if plan.capacity.fits else "does not fit")
        assert row[3].removesuffix(" GiB") in headline(plan)
        assert f"The weights take {whole_gib(plan.weight_bytes)}" in words
    built = plan_of(backend, next(link for link in LINKS if "model=Llama-3.1-8B" in link and "batch=8" in link))
    assert built.held_bytes == plan_of(backend, links[1]).held_bytes


def whole_gib(size: int) -> str:
    return f"{size / 2**30:.0f} GiB"


def test_the_windows_of_the_fifth_experiment_are_the_planners(backend: Backend) -> None:
    words = section("A window")
    mistral = next(link for link in LINKS if "Mistral" in link)
    short, long = (plan_of(backend, mistral.replace("32768", length)) for length in ("4096", "32768"))
    llama = mistral.replace("Mistral-7B-v0.1", "Llama-3.1-8B")
    assert short.held_bytes == long.held_bytes
    assert f"stays flat at {long.held_bytes / 2**20:.0f} MiB" in words
    assert f"to {whole_gib(plan_of(backend, llama).held_bytes)} at 32,768 tokens" in words
    per_token = f"{format_count(plan_of(backend, llama).bytes_per_token)} bytes per token"
    assert per_token in words
    assert (
        plan_of(backend, mistral.replace("32768", "2048")).held_bytes
        == plan_of(backend, llama.replace("32768", "2048")).held_bytes
    )
    gemma = next(link for link in LINKS if "Gemma" in link)
    plan = plan_of(backend, gemma)
    full = [layer for layer in plan.layers if layer.footprint.window is None]
    sliding = [layer for layer in plan.layers if layer.footprint.window == 512]
    assert f"{len(full)} full layers and {len(sliding)} with a window of 512" in words
    assert f"shows {plan.held_bytes / 2**20:.0f} MiB" in words
    assert f"the {len(full)} full layers hold {sum(layer.held_bytes for layer in full) / 2**20:.0f}." in words
    every = plan_of(backend, gemma, one_page_size=True)
    assert f"takes {every.held_bytes / 2**20:.0f} MiB" in words
